"""A cluster with process nodes and the operator as a process of its own, shared by the session.

The operator runs under exactly the shipped role; the audit log of the API server is the witness (RB5, TR41).
"""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from trainer_operator.demo.invariants import check
from trainer_operator.demo.manifests import service_account_kubeconfig
from trainer_operator.devcluster import certificates
from trainer_operator.devcluster.adminapi import AdminAPI
from trainer_operator.devcluster.auditlog import AuditLog
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.state import Settings

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "digits" / "train.py"
BASE = ROOT / "deploy" / "base"
NAMESPACE = "trainer-operator"
USER = f"system:serviceaccount:{NAMESPACE}:trainer-operator"
_numbers = itertools.count(1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Operator:
    """One operator process."""

    name: str
    command: list[str]
    folder: Path
    health: int
    process: Process | None = None

    def start(self):
        log = self.folder / f"{self.name}.log"
        self.process = Process(self.name, self.command, log=log, directory=self.folder)
        return self

    def wait_ready(self):
        eventually(lambda: self.page("/readyz") is not None, 90, f"{self.name} ready")
        return self

    def page(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=2) as answer:
                return answer.read().decode()
        except OSError:
            return None

    def leads(self):
        page = self.page("/metrics") or ""
        lines = [line for line in page.splitlines() if line.startswith("leader_election_master_status")]
        return any(line.endswith(" 1.0") for line in lines)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        eventually(lambda: self.process.exit_code() is not None, 20, f"{self.name} ended")


@dataclass
class World:
    """The cluster with what tests do to it."""

    cluster: Cluster
    folder: Path
    kubectl: object
    api: AdminAPI
    operators: list[Operator] = field(default_factory=list)
    registry: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    """Where the operators find a registry that tests serve."""
    hub: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    """Where pods find a hub that tests serve."""

    @property
    def operator_kubeconfig(self):
        return self.folder / "operator.kubeconfig"

    def install(self):
        """Apply CRDs and base, and write the operators' kubeconfig for the service account as it is now."""
        self.kubectl("apply", "-k", str(BASE))
        self.kubectl.wait_established()
        token = self.kubectl("create", "token", "trainer-operator", "-n", NAMESPACE, "--duration=2h").strip()
        admin = self.cluster.kubeconfig.read_text()
        self.operator_kubeconfig.write_text(service_account_kubeconfig(admin, token, user=USER))

    def start_operators(self):
        for operator in self.operators:
            operator.start().wait_ready()
        eventually(self.leader, 90, "a leader")

    def apply(self, manifest):
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def read(self, path, **query):
        """GET from the API server: what is asked for again and again; each kubectl costs a tenth of a second."""
        answer = self.api.request("GET", f"{path}?{urlencode(query)}")
        assert answer.status == 200, answer.body
        return answer.json()

    @property
    def audit(self):
        return AuditLog(self.cluster.audit_log)

    def leader(self):
        return next(
            (o for o in self.operators if o.process and o.process.exit_code() is None and o.leads()), None
        )


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    cluster = Cluster("tests", folder=folder / "cluster")
    cluster.up(Settings(nodes=3), tethered=True)
    try:
        world = World(cluster, folder, cluster.kubectl, administrator(cluster, folder))
        world.install()
        tls = certificate_folder(folder)
        ports = [(free_port(), free_port()) for _ in range(2)]
        urls = [f"--agent-url=https://127.0.0.1:{port}" for port, _ in ports]
        for number, (port, health) in enumerate(ports):
            command = [
                sys.executable,
                "-m",
                "trainer_operator.cli.main",
                "operator",
                f"--kubeconfig={world.operator_kubeconfig}",
            ]
            command += [f"--certificate-folder={tls}", f"--agent-bind-address=127.0.0.1:{port}", *urls]
            command += [
                f"--health-probe-bind-address=127.0.0.1:{health}",
                "--leader-elect",
                "--voluntary-interval=1",
                "--status-interval=1",  # most tests wait for some step, and would wait for five seconds more
                f"--registry=http://127.0.0.1:{world.registry.getsockname()[1]}",
                f"--hub=http://127.0.0.1:{world.hub.getsockname()[1]}",
            ]
            command += [f"--leader-election-namespace={NAMESPACE}"]
            world.operators.append(Operator(f"operator-{number}", command, folder, health))
        world.start_operators()
        yield world
        for operator in world.operators:
            if operator.process.exit_code() is None:
                operator.kill()
        world.registry.close()
        world.hub.close()
    finally:
        cluster.down()


def administrator(cluster, folder):
    authority = CertificateAuthority.open(cluster.folder / "control-plane" / "certificates")
    pair = authority.issue_client("tests", groups=certificates.ADMIN_GROUPS, folder=folder)
    return AdminAPI(urlsplit(cluster.state().url).port, authority=authority.certificate_file, client=pair)


def certificate_folder(folder):
    authority = CertificateAuthority.open(folder / "authority")
    pair = authority.issue_server("operator", hosts=["127.0.0.1", "localhost"])
    tls = folder / "tls"
    tls.mkdir()
    for source, name in (
        (pair.certificate, "tls.crt"),
        (pair.key, "tls.key"),
        (authority.certificate_file, "ca.crt"),
    ):
        (tls / name).write_bytes(Path(source).read_bytes())
    return tls


@pytest.fixture(autouse=True)
def _the_audit_log_breaks_no_invariant(request):
    """Check the part of the log that was written during the test, for the Trainers that were made in it."""
    if "world" not in request.fixturenames:
        yield
        return
    log = request.getfixturevalue("world").audit
    mark = log.mark()
    yield
    violations = check(log.since(mark), operator=USER)
    assert not violations, "\n" + "\n".join(map(str, violations))


@pytest.fixture
def job(world, tmp_path):
    """Make Trainers in a namespace of the test's own; they are deleted at its end."""
    namespace = f"job-{os.getpid()}-{next(_numbers)}"
    world.kubectl("create", "namespace", namespace)
    eventually(
        lambda: world.kubectl("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found"), 20
    )
    yield Jobs(world, namespace, tmp_path)
    world.kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")
    kill_leftovers(namespace)


def kill_leftovers(namespace):
    subprocess.run(["pkill", "-9", "-f", f"store-{namespace}"], check=False)


@dataclass
class Jobs:
    """Trainers of one test."""

    world: World
    namespace: str
    folder: Path

    def digits(
        self,
        name="digits",
        *,
        mode="allreduce",
        workers=2,
        servers=0,
        epochs=30,
        pace=0.03,
        minutes=0.05,
        copies=1,
        **spec,
    ):
        logs = self.folder / "steps"
        logs.mkdir(exist_ok=True)
        store = self.folder / f"store-{self.namespace}"
        store.mkdir(exist_ok=True)
        command = ["python3", str(DIGITS), "--mode", mode, "--pace", str(pace), "--log-dir", str(logs)]
        return self.make(
            name,
            logs=logs,
            command=command,
            topology={"workers": workers, "parameterServers": servers, "replicationFactor": copies},
            checkpoint={"bucket": f"file://{store}", "intervalMinutes": minutes},
            epochs=epochs,
            **spec,
        )

    def make(self, name, *, logs=None, epochs=1, **spec):
        self.world.apply(
            {
                "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
                "kind": "Trainer",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"epochs": epochs, "image": "none", **spec},
            }
        )
        return Job(self.world, self.namespace, name, logs or self.folder, self.folder)


@dataclass
class Job:
    """One Trainer, seen from outside."""

    world: World
    namespace: str
    name: str
    logs: Path
    folder: Path

    def object(self):
        kinds = f"/apis/trainer.operator.kubeflow.org/v1alpha1/namespaces/{self.namespace}/trainers"
        return self.world.read(f"{kinds}/{self.name}")

    def status(self):
        return self.object().get("status") or {}

    def pods(self):
        found = self.world.read(
            f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=f"trainer-name={self.name}"
        )
        return {pod["metadata"]["name"]: pod for pod in found["items"]}

    def events(self):
        return [e["reason"] for e in self.world.get("events", "-n", self.namespace)["items"]]

    def phase(self):
        return self.status().get("phase")

    def wait_phase(self, phase, seconds=60):
        def check():
            now = self.phase()
            assert now == phase or now not in {"Succeeded", "Failed"}, self.status()
            return now == phase

        eventually(check, seconds, f"{self.name} {phase}", tell=self.status)
        return self.status()

    def wait_step(self, step, seconds=60):
        eventually(
            lambda: self.status().get("globalStep", 0) >= step, seconds, f"step {step}", tell=self.status
        )
        return self.status()

    def wait_committed(self, seconds=30):
        eventually(
            lambda: self.status().get("lastCheckpoint"), seconds, "a committed checkpoint", tell=self.status
        )
        return self.status()["lastCheckpoint"]

    def wait_trains_on(self, steps=30, seconds=60):
        """Wait until it has trained for some steps more."""
        return self.wait_step(self.status().get("globalStep", 0) + steps, seconds)

    def patch(self, spec):
        self.world.kubectl(
            "patch",
            "trainer",
            self.name,
            "-n",
            self.namespace,
            "--type=merge",
            "-p",
            json.dumps({"spec": spec}),
        )

    def processes(self, role):
        """Process ids of the training processes of a role, by index."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                environment = dict(
                    pair.split(b"=", 1)
                    for pair in (entry / "environ").read_bytes().split(b"\0")
                    if b"=" in pair
                )
            except OSError:
                continue
            if b"train.py" not in command or b"agent.pyz" in command:
                continue
            same = environment.get(b"TRAINER_NAMESPACE") == self.namespace.encode()
            if same and environment.get(b"TRAINER_ROLE") == role.encode():
                found[int(environment[b"TRAINER_INDEX"])] = int(entry.name)
        return found

    def kill_process(self, role, index):
        pid = self.processes(role)[index]
        os.kill(pid, signal.SIGKILL)
        return pid


def eventually(check, seconds, what="it", *, tell=lambda: ""):
    """Wait for a condition; a slow machine only makes this slower."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}; {tell()}"
        time.sleep(0.2)


@pytest.fixture
def until():
    return eventually
