"""This operator, as people run it: the process of `trainer-operator operator`, with its own defaults.

The clamped one has the limits that training-operator has by default, and one worker: 20 requests a second, 30 at once.
A Trainer's pods have the agent beside the container that all arms have; kwok's nodes run neither, so its pods are
Running for Kubernetes, and for the operator they are members that have not reported yet.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import aiohttp

from benchmarks.stock.arm import NAMESPACE, BenchCluster, Broken, Json, container
from benchmarks.stock.waiting import until
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.names import TRAINER_LABEL
from trainer_operator.devcluster.certificates import CertificateAuthority
from trainer_operator.devcluster.ports import LOOPBACK, free_ports
from trainer_operator.devcluster.process import Process

__all__ = ["Clamped", "Ours", "trainer"]

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Where it is set, no start but the first one of an installed operator is measured: it would compile itself each time."""
_ROOT = Path(__file__).resolve().parents[3]


def trainer(name: str, *, pods: int, servers: int = 0) -> Json:
    """Return a Trainer of so many pods, workers and servers; a failed one is replaced as often as it takes."""
    shape = container("trainer")
    return {
        "apiVersion": API_VERSION,
        "kind": "Trainer",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "epochs": 1,
            "image": shape["image"],
            "command": shape["command"],
            "resources": shape["resources"],
            "topology": {"workers": pods - servers} | ({"parameterServers": servers} if servers else {}),
            "retryPolicy": {"backoffLimit": 100},
        },
    }


class Ours:
    """The operator with its defaults."""

    name = "ours"
    versions: Mapping[str, str] = {"trainer-operator": metadata.version("trainer-operator")}
    job_resource = f"apis/{API_VERSION}/namespaces/{NAMESPACE}/trainers"
    pod_label = TRAINER_LABEL
    flags: Sequence[str] = ()

    def __init__(self) -> None:
        self._process: Process | None = None
        self._metrics_url = ""

    async def install(self, cluster: BenchCluster) -> None:
        """Apply what a cluster gets: CRDs, namespace, roles."""
        cluster.kubectl("apply", "-k", str(_ROOT / "deploy" / "base"))
        cluster.kubectl.wait_established()

    async def start(self, cluster: BenchCluster) -> None:
        """Start the process and wait until it is ready, which it is when its caches are."""
        folder = cluster.folder / "operator"
        CertificateAuthority.open(folder).issue_server("tls", hosts=[LOOPBACK, "localhost"], folder=folder)
        agents, health = free_ports(2, rng=random.Random())
        self._metrics_url = f"http://{LOOPBACK}:{health}/metrics"
        process = self._process = Process(
            self.name,
            [
                sys.executable,
                "-m",
                "trainer_operator.cli.main",
                "operator",
                f"--kubeconfig={cluster.controller_kubeconfig('trainer-operator')}",
                f"--certificate-folder={folder}",
                f"--agent-bind-address={LOOPBACK}:{agents}",
                f"--agent-url=https://{LOOPBACK}:{agents}",
                f"--health-probe-bind-address={LOOPBACK}:{health}",
                *self.flags,
            ],
            log=cluster.folder / "logs" / "operator.log",
            environ={name: value for name, value in os.environ.items() if name != _NO_BYTECODE},
            directory=cluster.folder,
        )

        async def ready() -> bool:
            if process.exit_code() is not None:
                raise Broken(f"the operator ended: {process.tail(lines=1) or 'it said nothing'}")
            return await _answers(f"http://{LOOPBACK}:{health}/readyz")

        await until(ready, within=60, failing="the operator was not ready")

    def pids(self) -> Sequence[int]:
        """Return the operator's process."""
        return [self._process.pid] if self._process is not None else []

    def metrics_url(self) -> str:
        """Return the page that Prometheus reads."""
        return self._metrics_url

    async def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """End it as a rollout would."""
        if self._process is not None:
            await self._process.stop(grace=5)

    def job(self, name: str, *, pods: int) -> Json:
        """Return a Trainer."""
        return trainer(name, pods=pods)

    def served_job(self, name: str, *, pods: int) -> Json:
        """Return a Trainer with one parameter server."""
        return trainer(name, pods=pods, servers=1)


class Clamped(Ours):
    """The operator behind the limits that training-operator has by default."""

    name = "ours-clamped"
    flags = ("--kube-api-qps=20", "--kube-api-burst=30", "--workers=1")


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False
