"""A real node, and the operator as a process outside of it, shared by the session: `make e2e`.

The node's room has no way out: everything that the pods need is in images made from this checkout.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import signal
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from trainer_operator.demo.invariants import check
from trainer_operator.demo.manifests import service_account_kubeconfig
from trainer_operator.devcluster.auditlog import AuditLog
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.kubectl import Kubectl
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.realnode import images, programs
from trainer_operator.devcluster.realnode.images import PYTHON_PATH, SANDBOX, Image, folder_files
from trainer_operator.devcluster.realnode.node import RealNode

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "trainer-operator"
USER = f"system:serviceaccount:{NAMESPACE}:trainer-operator"
OPERATOR_IMAGE = "localhost/trainer-operator:e2e"
DIGITS_IMAGE = "localhost/digits:e2e"
CLAIM = "digits-checkpoints"
DAMAGE = {"retryPolicy": {"backoff": {"baseSeconds": 1, "capSeconds": 2}}}
AGENT_PORT, HEALTH_PORT = 9443, 8081  # the room has all ports to itself
PATIENCE = 90
_numbers = itertools.count(1)


def pytest_configure(config):
    config.addinivalue_line("markers", "short: what most needs a real node, in a few minutes")


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.timeout(600))


def operator_image():
    package = ROOT / "trainer_operator"
    files = folder_files(package / "agent", f"{PYTHON_PATH}/trainer_operator/agent")
    files[f"{PYTHON_PATH}/trainer_operator/__init__.py"] = package / "__init__.py"
    return Image(OPERATOR_IMAGE, files)


def digits_image():
    sklearn = Path(importlib.util.find_spec("sklearn").origin).parent
    table = "sklearn/datasets/data/digits.csv.gz"
    files = folder_files(ROOT / "examples" / "digits", "digits")
    files[f"{PYTHON_PATH}/{table}"] = sklearn.parent / table
    return Image(DIGITS_IMAGE, files)


@dataclass
class World:
    """The control plane, its one node, and the operator."""

    plane: ControlPlane
    node: RealNode
    kubectl: Kubectl
    folder: Path
    operator: Process | None = None
    volumes: Path = field(default_factory=Path)

    def apply(self, *objects):
        body = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("e2e")
    plane = ControlPlane(folder / "control-plane", grace=0)
    node = RealNode(plane, programs.ensure())
    archive = folder / "images.tar"
    images.write_archive(archive, images.ensure_base(), [SANDBOX, operator_image(), digits_image()])

    async def start():
        await plane.start()
        await node.start(archive)

    asyncio.run(start())
    archive.unlink()
    kubectl = Kubectl(plane.assets.path("kubectl"), plane.kubeconfig)
    world = World(plane, node, kubectl, folder, volumes=folder / "volumes")
    try:
        world.operator = start_operator(world)
        yield world
    finally:
        if world.operator is not None:
            world.operator.kill()
        asyncio.run(node.stop())
        asyncio.run(plane.stop())


def start_operator(world):
    """Install the operator's manifests and start it outside of the cluster, under its shipped role."""
    kubectl = world.kubectl
    kubectl("apply", "-k", str(ROOT / "crds"))
    kubectl.wait_established()
    kubectl("apply", "-k", str(ROOT / "deploy" / "base"))
    token = kubectl("create", "token", "trainer-operator", "-n", NAMESPACE, "--duration=2h").strip()
    kubeconfig = world.folder / "operator.kubeconfig"
    kubeconfig.write_text(service_account_kubeconfig(world.plane.kubeconfig.read_text(), token, user=USER))
    command = [sys.executable, "-m", "trainer_operator.cli.main", "operator", f"--kubeconfig={kubeconfig}"]
    command += [f"--certificate-folder={certificates(world)}", f"--operator-image={OPERATOR_IMAGE}"]
    command += [f"--agent-bind-address=0.0.0.0:{AGENT_PORT}"]
    command += [f"--agent-url=https://{world.node.address}:{AGENT_PORT}"]
    command += [f"--health-probe-bind-address=127.0.0.1:{HEALTH_PORT}", "--voluntary-interval=1"]
    process = Process("operator", command, log=world.folder / "operator.log", directory=world.folder)
    eventually(serves, f"the operator to serve; it says: {process.tail()}")
    return process


def serves():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HEALTH_PORT}/readyz", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def certificates(world):
    authority = CertificateAuthority.open(world.folder / "authority")
    folder = world.folder / "tls"
    pair = authority.issue_server("tls", hosts=[world.node.address], folder=folder)
    (folder / "ca.crt").write_bytes(authority.certificate_file.read_bytes())
    assert {pair.certificate.name, pair.key.name} == {"tls.crt", "tls.key"}
    return folder


@pytest.fixture
def jobs(world):
    """Make Trainers in a namespace of the test's own, which enforces restricted pods and has a claim and a secret."""
    namespace = f"e2e-{next(_numbers)}"
    log = AuditLog(world.plane.audit_log)
    mark = log.mark()
    volume = world.volumes / namespace
    volume.mkdir(parents=True)
    volume.chmod(0o777)  # as a network file system that everybody may write
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        },
        persistent_volume(namespace, volume),
    )
    world.apply(claim(namespace), secret(namespace))
    eventually(
        lambda: world.kubectl("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found"),
        "a service account",
    )
    yield Jobs(world, namespace, volume)
    world.kubectl("delete", "trainers", "--all", "-n", namespace)
    eventually(lambda: is_empty(world, namespace), "the pods to be gone")
    violations = check(log.since(mark), operator=USER)
    world.kubectl("delete", "namespace", namespace, "--wait=false")
    assert not violations, "\n" + "\n".join(map(str, violations))


def is_empty(world, namespace):
    """Delete again what the operator may have made meanwhile; a pod's own grace can be long."""
    arguments = ("pods", "--all", "-n", namespace, "--grace-period=1", "--wait=false")
    world.kubectl("delete", *arguments)
    return not world.get("pods", "-n", namespace)["items"]


def persistent_volume(namespace, folder):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"volume-{namespace}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(folder), "type": "Directory"},
            "claimRef": {"namespace": namespace, "name": CLAIM},
        },
    }


def claim(namespace):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def secret(namespace):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "settings", "namespace": namespace},
        "stringData": {"answer": "forty-two"},
    }


@dataclass
class Jobs:
    """Trainers of one test."""

    world: World
    namespace: str
    volume: Path

    def digits(self, *, workers=2, epochs=2000, pace=0.05, **spec):
        command = ["python3", "/digits/train.py", "--pace", str(pace)]
        checkpoint = {"bucket": CLAIM, "intervalMinutes": 0.05}
        topology = {"workers": workers, **spec.pop("topology", {})}
        return self.make("digits", command, epochs=epochs, topology=topology, checkpoint=checkpoint, **spec)

    def python(self, name, program, **spec):
        return self.make(name, ["python3", "-u", "-c", program], **spec)

    def make(self, name, command, *, epochs=1, **spec):
        self.world.apply(
            {
                "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
                "kind": "Trainer",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {
                    "epochs": epochs,
                    "image": DIGITS_IMAGE,
                    "command": command,
                    "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                    **DAMAGE,
                    **spec,
                },
            }
        )
        return Job(self.world, self.namespace, name)


@dataclass
class Job:
    """One Trainer, seen from outside."""

    world: World
    namespace: str
    name: str

    def status(self):
        return self.world.get("trainer", self.name, "-n", self.namespace).get("status") or {}

    def pods(self):
        found = self.world.get("pods", "-n", self.namespace, "-l", f"trainer-name={self.name}")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def logs(self, pod, *arguments):
        return self.world.kubectl("logs", pod, "-n", self.namespace, "-c", "trainer", *arguments)

    def words(self, pod):
        """Return what a container has said; nothing when it has not been started."""
        return self.world.kubectl.run("logs", pod, "-n", self.namespace, "-c", "trainer").stdout

    def wait_restarted(self, *, failures):
        def reached():
            status = self.status()
            return status.get("failures") == failures and status.get("phase") == "Running"

        eventually(reached, f"{failures} failures and a restart", self.tell)

    def wait_phase(self, phase):
        def reached():
            now = self.status().get("phase")
            assert now == phase or now not in {"Succeeded", "Failed"}, self.tell()
            return now == phase

        eventually(reached, f"phase {phase}", self.tell)
        return self.status()

    def wait_step(self, step):
        eventually(lambda: self.status().get("globalStep", 0) >= step, f"step {step}", self.tell)
        return self.status()

    def wait_trains_on(self, steps=20):
        return self.wait_step(self.status().get("globalStep", 0) + steps)

    def wait_committed(self):
        eventually(lambda: self.status().get("lastCheckpoint"), "a committed checkpoint", self.tell)
        return self.status()

    def tell(self):
        events = self.world.kubectl("get", "events", "-n", self.namespace)
        pods = self.world.kubectl("get", "pods", "-n", self.namespace, "-o", "wide")
        words = "".join(
            f"{name}: {self.world.kubectl.run('logs', name, '-n', self.namespace, '--all-containers').stdout}"
            for name in self.pods()
        )
        return f"{json.dumps(self.status(), indent=1)}\n{pods}\n{events}\n{words}"

    def processes(self, index, *, agent=False):
        """Return process ids of one worker: its training processes, or the agents that are their containers' first."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes()
                lines = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = {
                f"TRAINER_NAMESPACE={self.namespace}",
                f"TRAINER_NAME={self.name}",
                f"TRAINER_INDEX={index}",
            }
            is_agent = b"agent.pyz" in command
            if mine <= {line.decode(errors="replace") for line in lines} and is_agent is agent:
                found.append(int(entry.name))
        return found

    def kill(self, index, *, agent=False):
        eventually(lambda: len(self.processes(index, agent=agent)) == 1, "one process", self.tell)
        (pid,) = self.processes(index, agent=agent)
        os.kill(pid, signal.SIGKILL)


def eventually(check, what, tell=lambda: ""):
    """Wait for a condition; a slow machine only makes this slower."""
    deadline = time.monotonic() + PATIENCE
    while True:
        if found := check():
            return found
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}; {tell()}"
        time.sleep(0.3)


@pytest.fixture
def until():
    return eventually
