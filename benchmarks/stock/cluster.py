"""The cluster of one repetition: the real control plane on fresh data, with kwok's nodes and limits that hurt nobody.

Scheduler, controller manager and kwok get client limits that no arm reaches, so that what is measured is the arm and
the API server. All programs share the machine with the arm and with this process, which is the same for all arms.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from benchmarks.stock import peers
from benchmarks.stock.arm import NAMESPACE, BenchCluster, Broken, Json
from benchmarks.stock.waiting import until
from runtime.tasks import run_all
from trainer_operator.devcluster.assets import PROGRAMS
from trainer_operator.devcluster.build import ensure
from trainer_operator.devcluster.controlplane import (
    APISERVER,
    CONTROLLER_MANAGER,
    ETCD,
    SCHEDULER,
    ControlPlane,
)
from trainer_operator.devcluster.kubectl import Kubectl
from trainer_operator.devcluster.ports import free_ports
from trainer_operator.devcluster.process import Process

__all__ = ["CONTROLLERS", "KWOK_LABEL", "KWOK_USER", "NODES", "Cluster", "control_plane_pids", "running"]

CONTROLLERS = "bench:"
"""Users of the arms' controllers begin so."""
KWOK_USER = "kwok"
KWOK_LABEL = "bench"
"""kwok keeps the nodes alive whose label of this name is `kwok`."""
NODES = 16
IN_FLIGHT = 64
_STAGES = Path(__file__).with_name("kwok.yaml")
_UNLIMITED = ("--kube-api-qps=10000", "--kube-api-burst=10000")
_READY_PATIENCE = 60.0
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Request  # a pod's labels say whose it is
  verbs: [create]
  resources: [{group: "", resources: [pods]}]
- level: Metadata
"""


class Cluster:
    """One running cluster; see `arm.BenchCluster`, which it is."""

    def __init__(self, folder: Path, plane: ControlPlane, session: aiohttp.ClientSession) -> None:
        """Wrap what runs; `running` makes one."""
        self.folder = folder
        self.plane = plane
        self._session = session

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.plane.url

    @property
    def authority_file(self) -> Path:
        """Certificate that signs the API server's."""
        return self.plane.authority_file

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.plane.audit_log

    @property
    def kubectl(self) -> Kubectl:
        """The real kubectl as administrator."""
        return Kubectl(self.plane.assets.path("kubectl"), self.plane.kubeconfig)

    def controller_kubeconfig(self, name: str) -> Path:
        """Write and return the kubeconfig of an arm's controller."""
        return self.plane.user_kubeconfig(f"{CONTROLLERS}{name}", ["system:masters"])

    async def request(self, verb: str, path: str, body: object = None, *, content_type: str = "") -> Json:
        """Send one request as administrator and return the answer.

        Raises: Broken with the API server's message when it refuses.
        """
        headers = {"Content-Type": content_type or "application/json", "Accept": "application/json"}
        data = None if body is None else orjson.dumps(body)
        async with self._session.request(verb, f"{self.url}/{path}", data=data, headers=headers) as answer:
            found: dict[str, Any] = orjson.loads(await answer.read())
            if not answer.ok:
                raise Broken(f"the API server refused {verb} {path}: {found.get('message', answer.status)}")
            return found

    async def restart(self) -> None:
        """Stop and start the API server, on the same data."""
        await self.plane.stop_component(APISERVER)
        await self.plane.start_component(APISERVER)

    async def etcd_written(self) -> float:
        """Return how many bytes etcd has written to its log since it started."""
        address = f"http://127.0.0.1:{self.plane.ports.etcd}/metrics"
        async with self._session.get(address) as answer:
            lines = (await answer.text()).splitlines()
        name = "etcd_disk_wal_write_bytes_total "
        return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)


@asynccontextmanager
async def running(folder: Path, *, nodes: int = NODES) -> AsyncIterator[Cluster]:
    """Run a cluster for the block, in an empty folder; with no nodes, neither kwok runs nor is it built.

    Raises: ClusterFault, Broken.
    """
    policy = _write_policy(folder)
    plane = ControlPlane(
        folder / "control-plane",
        arguments={SCHEDULER: _UNLIMITED, CONTROLLER_MANAGER: _UNLIMITED},
        apiserver_args=[f"--audit-policy-file={policy}", "--audit-log-maxsize=4000"],
        assets=ensure(PROGRAMS),
        grace=0,
    )
    async with plane:
        context = ssl.create_default_context(cafile=str(plane.authority_file))
        config = plane.config
        assert config.client_certificate_file is not None
        context.load_cert_chain(config.client_certificate_file, config.client_key_file)
        connector = aiohttp.TCPConnector(ssl=context, limit=IN_FLIGHT)
        async with aiohttp.ClientSession(connector=connector) as session:
            cluster = Cluster(folder, plane, session)
            await cluster.request("POST", "api/v1/namespaces", _named("v1", "Namespace", NAMESPACE))
            kwok = await _start_nodes(cluster, nodes) if nodes else None
            try:
                await _until_ready(cluster, nodes)
                yield cluster
            finally:
                if kwok is not None:
                    kwok.kill()


def control_plane_pids(cluster: BenchCluster) -> list[int]:
    """Return the processes that work for every arm alike."""
    found = cluster.plane.pids()
    return [found[name] for name in (ETCD, APISERVER, SCHEDULER, CONTROLLER_MANAGER) if name in found]


def _write_policy(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "audit-policy.yaml"
    policy.write_text(_AUDIT_POLICY)
    return policy


async def _start_nodes(cluster: Cluster, count: int) -> Process:
    (port,) = free_ports(1, rng=random.Random())
    program = peers.ensure([peers.KWOK]) / peers.KWOK.program
    kwok = Process(
        "kwok",
        [
            str(program),
            f"--kubeconfig={cluster.plane.user_kubeconfig(KWOK_USER, ['system:masters'])}",
            f"--config={_STAGES}",
            f"--manage-nodes-with-label-selector={KWOK_LABEL}=kwok",
            f"--server-address=127.0.0.1:{port}",
        ],
        log=cluster.folder / "logs" / "kwok.log",
        directory=cluster.folder,
    )
    await run_all(*(cluster.request("POST", "api/v1/nodes", _node(number)) for number in range(count)))
    return kwok


def _node(number: int) -> dict[str, Any]:
    capacity = {"cpu": "1000", "memory": "4Ti", "pods": "2000", "nvidia.com/gpu": "8"}
    node = _named("v1", "Node", f"kwok-{number}")
    labels = {KWOK_LABEL: "kwok", "kubernetes.io/hostname": f"kwok-{number}", "kubernetes.io/os": "linux"}
    node["metadata"]["labels"] = labels
    return {**node, "status": {"capacity": capacity, "allocatable": capacity, "phase": "Running"}}


def _named(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


async def _until_ready(cluster: Cluster, nodes: int) -> None:
    """Wait for the namespace's service account, without which pods are refused, and for nodes without taints."""

    async def ready() -> bool:
        return await _has_account(cluster) and await _ready_nodes(cluster) >= nodes

    await until(ready, within=_READY_PATIENCE, failing=f"the cluster and its {nodes} nodes were not ready")


async def _has_account(cluster: Cluster) -> bool:
    found = await cluster.request("GET", f"api/v1/namespaces/{NAMESPACE}/serviceaccounts")
    return any(account["metadata"]["name"] == "default" for account in found["items"])


async def _ready_nodes(cluster: Cluster) -> int:
    nodes = (await cluster.request("GET", "api/v1/nodes"))["items"]
    return sum(
        not node["spec"].get("taints")
        and any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", ())
        )
        for node in nodes
    )
