"""The limit: the pods and the service that this operator makes, POSTed by the harness, with nobody to decide anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from benchmarks.stock.arm import NAMESPACE, BenchCluster, Json
from benchmarks.stock.arms.ours import trainer
from trainer_operator.api.names import TRAINER_LABEL
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.pods import owner_reference, pod_manifest
from trainer_operator.trainer.service import service_manifest
from trainer_operator.trainer.views import Settings

__all__ = ["Raw"]


class Raw:
    """No operator at all."""

    name = "raw"
    versions: Mapping[str, str] = {"aiohttp": metadata.version("aiohttp")}
    job_resource = f"api/v1/namespaces/{NAMESPACE}/pods"
    pod_label = TRAINER_LABEL

    async def install(self, cluster: BenchCluster) -> None:
        """Nothing is needed."""

    async def start(self, cluster: BenchCluster) -> None:
        """Nothing is started."""

    def pids(self) -> Sequence[int]:
        """Return none: the harness itself works, as it does for all arms."""
        return []

    def metrics_url(self) -> str:
        """Return none."""
        return ""

    async def kill(self) -> None:
        """There is nothing to kill."""

    async def stop(self) -> None:
        """There is nothing to stop."""

    def job(self, name: str, *, pods: int) -> Json:
        """Return the pods of a Trainer of this name, but without an owner, which does not exist."""
        owner = Trainer.read(_stored(trainer(name, pods=pods)))
        settings = Settings(agent_urls=("https://127.0.0.1:9443",))
        members = [pod_manifest(owner, MemberId("worker", index), 0, settings) for index in range(pods)]
        items = [service_manifest(owner, owner_reference(owner)), *members]
        for item in items:
            item["metadata"].pop("ownerReferences", None)
        return {"apiVersion": "v1", "kind": "List", "items": items}

    def served_job(self, name: str, *, pods: int) -> None:
        """Return none: there are no parameter servers."""


def _stored(wanted: Json) -> dict[str, Any]:
    """Return the object as the API server would have stored it, as far as pods depend on it."""
    uid = "00000000-0000-4000-8000-000000000000"
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid, "resourceVersion": "1", "generation": 1}}
