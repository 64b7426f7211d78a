"""The stock training-operator, version 1: with the limits it ships with, and with limits that do not hold it up.

It is installed as its standalone overlay does, webhooks included, and started with the arguments of its Deployment
(none) and ports of its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from benchmarks.stock.arm import NAMESPACE, BenchCluster, Json, container
from benchmarks.stock.gooperator import GoOperator
from benchmarks.stock.peers import TRAINING_OPERATOR
from trainer_operator.devcluster.ports import free_ports

__all__ = ["TrainingOperator", "defaults", "tuned"]

_TUNED = ("-kube-api-qps=10000", "-kube-api-burst=10000", "-controller-threads=16")


class TrainingOperator:
    """PyTorchJobs of one master and N-1 workers under the restart policy ExitCode, the one that replaces pods."""

    job_resource = f"apis/kubeflow.org/v1/namespaces/{NAMESPACE}/pytorchjobs"
    pod_label = "training.kubeflow.org/job-name"

    def __init__(self, name: str, arguments: Sequence[str] = ()) -> None:
        self.name = name
        self.versions: Mapping[str, str] = {TRAINING_OPERATOR.program: TRAINING_OPERATOR.version}
        self._arguments = tuple(arguments)
        self._operator = GoOperator(
            TRAINING_OPERATOR,
            ports=free_ports(3, rng=random.Random()),
            namespace="kubeflow",
            secret="training-operator-webhook-cert",
            controller="pytorchjob-controller",
        )

    async def install(self, cluster: BenchCluster) -> None:
        """Install the standalone overlay."""
        objects = await self._operator.render(cluster, "manifests", "overlays/standalone")
        await self._operator.install(cluster, objects)

    async def start(self, cluster: BenchCluster) -> None:
        """Start the operator for all its kinds, as its Deployment does."""
        operator = self._operator
        ports = (
            f"-webhook-server-port={operator.webhook_port}",
            f"-health-probe-bind-address=127.0.0.1:{operator.health_port}",
            f"-metrics-bind-address=127.0.0.1:{operator.other_ports[0]}",
        )
        await operator.start(cluster, (*ports, *self._arguments))

    def pids(self) -> Sequence[int]:
        """Return the operator's process."""
        return self._operator.pids()

    def metrics_url(self) -> str:
        """Return none: Go has no event loop."""
        return ""

    async def kill(self) -> None:
        """End it by SIGKILL."""
        self._operator.kill()

    async def stop(self) -> None:
        """End it."""
        await self._operator.stop()

    def job(self, name: str, *, pods: int) -> Json:
        """Return a PyTorchJob."""
        return _object(
            "PyTorchJob", name, "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": pods - 1}
        )

    def served_job(self, name: str, *, pods: int) -> Json:
        """Return a TFJob of one parameter server, the others workers."""
        return _object("TFJob", name, "tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": pods - 1})


def _object(kind: str, name: str, field: str, container_name: str, roles: Mapping[str, int]) -> Json:
    """Return a job of these roles under the restart policy that replaces pods."""
    template = {"spec": {"containers": [container(container_name)]}}
    replicas = {
        role: {"replicas": count, "restartPolicy": "ExitCode", "template": template}
        for role, count in roles.items()
        if count
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {field: replicas},
    }


def defaults() -> TrainingOperator:
    """Return it as it ships: 20 requests a second, bursts of 30, one worker."""
    return TrainingOperator("stock-defaults")


def tuned() -> TrainingOperator:
    """Return it without limits that hold it up."""
    return TrainingOperator("stock-tuned", _TUNED)
