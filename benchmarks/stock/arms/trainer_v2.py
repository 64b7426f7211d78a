"""Kubeflow Trainer, version 2, on JobSet: a TrainJob becomes a JobSet, that a Job, that pods.

Both controllers are installed as they are published, webhooks included, and started with the configuration files that
they publish, in which only addresses are ours. The Jobs are run by kube-controller-manager, whose CPU is not counted as
the arm's. A TrainJob refers to the published runtime `torch-distributed`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.stock import peers
from benchmarks.stock.arm import NAMESPACE, BenchCluster, Json, container
from benchmarks.stock.gooperator import GoOperator
from benchmarks.stock.peers import JOBSET, TRAINER
from benchmarks.stock.published import config_file
from trainer_operator.devcluster.ports import free_ports

__all__ = ["TrainerV2", "defaults", "jobset_config", "trainer_config", "tuned"]

_CONFIG = "controller_manager_config.yaml"
_TRAINER_NAMESPACE = "kubeflow-system"
_JOBSET_NAMESPACE = "jobset-system"
_LIMITS = {"qps": 10000, "burst": 10000}
_THREADS = 16


class TrainerV2:
    """TrainJobs of N nodes; the Job controller replaces their failed pods."""

    job_resource = f"apis/trainer.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/trainjobs"
    pod_label = "jobset.sigs.k8s.io/jobset-name"

    def __init__(self, name: str, *, is_tuned: bool) -> None:
        self.name = name
        self.versions: Mapping[str, str] = {peer.program: peer.version for peer in (TRAINER, JOBSET)}
        self._is_tuned = is_tuned
        ports = free_ports(7, rng=random.Random())
        self._jobset = GoOperator(
            JOBSET,
            ports=ports[:3],
            namespace=_JOBSET_NAMESPACE,
            secret="jobset-webhook-server-cert",
            controller="jobset",
        )
        self._trainer = GoOperator(
            TRAINER,
            ports=ports[3:],
            namespace=_TRAINER_NAMESPACE,
            secret="kubeflow-trainer-webhook-cert",
            controller="trainjob_controller",
        )
        self._files: dict[str, Path] = {}

    async def install(self, cluster: BenchCluster) -> None:
        """Install JobSet's default and Trainer's manager overlay, which would download JobSet."""
        for operator, source, overlay, without in (
            (self._jobset, "config", "default", ()),
            (self._trainer, "manifests", "overlays/manager", ("../../third-party/jobset",)),
        ):
            objects = await operator.render(cluster, source, overlay, without=without)
            config = config_file(objects, _CONFIG)
            change = jobset_config if operator is self._jobset else trainer_config
            file = cluster.folder / f"{operator.peer.program}.yaml"
            file.write_text(yaml.safe_dump(change(config, operator=operator, is_tuned=self._is_tuned)))
            self._files[operator.peer.program] = file
            await operator.install(cluster, objects)

    async def start(self, cluster: BenchCluster) -> None:
        """Start JobSet, then Trainer, whose webhook has to admit the runtime."""
        for operator in (self._jobset, self._trainer):
            await operator.start(cluster, [f"--config={self._files[operator.peer.program]}"])
        file = peers.files(TRAINER) / "manifests/base/runtimes/torch_distributed.yaml"
        runtimes = await asyncio.to_thread(lambda: list(yaml.safe_load_all(file.read_text())))
        await self._trainer.apply(cluster, [found for found in runtimes if found])

    def pids(self) -> Sequence[int]:
        """Return the two controllers."""
        return [*self._jobset.pids(), *self._trainer.pids()]

    def metrics_url(self) -> str:
        """Return none: Go has no event loop."""
        return ""

    async def kill(self) -> None:
        """End both by SIGKILL."""
        self._trainer.kill()
        self._jobset.kill()

    async def stop(self) -> None:
        """End both."""
        await self._trainer.stop()
        await self._jobset.stop()

    def job(self, name: str, *, pods: int) -> Json:
        """Return a TrainJob; Trainer calls the container `node` by itself."""
        wanted = container("node")
        trainer = {
            "numNodes": pods,
            "image": wanted["image"],
            "command": wanted["command"],
            "resourcesPerNode": wanted["resources"],
        }
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
        }

    def served_job(self, name: str, *, pods: int) -> None:
        """Return none: there are no parameter servers."""


def trainer_config(config: Mapping[str, Any], *, operator: GoOperator, is_tuned: bool) -> dict[str, Any]:
    """Return Trainer's configuration with our addresses and, when tuned, without limits that hold it up."""
    metrics, status = operator.other_ports
    changed: dict[str, Any] = {
        **config,
        "health": {**config["health"], "healthProbeBindAddress": f"127.0.0.1:{operator.health_port}"},
        "metrics": {**config["metrics"], "bindAddress": f"127.0.0.1:{metrics}"},
        "webhook": {**config["webhook"], "port": operator.webhook_port},
        "statusServer": {**config["statusServer"], "port": status},
        "leaderElection": {**config["leaderElection"], "resourceNamespace": _TRAINER_NAMESPACE},
    }
    if is_tuned:
        controller = config["controller"]
        threads = {**controller["groupKindConcurrency"], "TrainJob.trainer.kubeflow.org": _THREADS}
        changed["controller"] = {**controller, "groupKindConcurrency": threads}
        changed["clientConnection"] = _LIMITS
    return changed


def jobset_config(config: Mapping[str, Any], *, operator: GoOperator, is_tuned: bool) -> dict[str, Any]:
    """Return JobSet's configuration with our addresses and, when tuned, without limits that hold it up."""
    changed: dict[str, Any] = {
        **config,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{operator.health_port}"},
        "metrics": {"bindAddress": f"127.0.0.1:{operator.other_ports[0]}"},
        "webhook": {"port": operator.webhook_port},
        "leaderElection": {**config["leaderElection"], "resourceNamespace": _JOBSET_NAMESPACE},
    }
    if is_tuned:
        changed["clientConnection"] = _LIMITS
    return changed


def defaults() -> TrainerV2:
    """Return it with the configuration it publishes: 50 requests a second for Trainer, 500 for JobSet."""
    return TrainerV2("v2-defaults", is_tuned=False)


def tuned() -> TrainerV2:
    """Return it without limits that hold it up."""
    return TrainerV2("v2-tuned", is_tuned=True)
