"""Checkpoint objects as they were last written, by us or by others (R2).

The cache may lag behind a write of our own. A pin that we set must not be missed then (CS3), nor a target chosen twice
(CK2), so each write is remembered until the cache shows it.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import structlog
from pydantic import ValidationError

from runtime.cache.index import OWNER_UID
from runtime.client.errors import NotFound
from runtime.client.rest import Client
from runtime.objects import ObjectKey, key_of
from runtime.resourceversion import compare
from trainer_operator.api.checkpoint import Checkpoint, CheckpointStatus
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.resources import CHECKPOINTS
from trainer_operator.api.timelines import current_path
from trainer_operator.api.trainer import Trainer
from trainer_operator.checkpoint.retention import Kept, read_kept, to_forget

_log = structlog.get_logger("checkpoint")


class Objects(Protocol):
    """The part of an informer that is used here."""

    def get(self, key: ObjectKey) -> Mapping[str, Any] | None:
        """Return the object or None."""

    def by_index(self, index: str, value: str) -> "list[Mapping[str, Any]]":
        """Return the objects under an index value."""


class CheckpointObjects:
    """The Checkpoint objects of all Trainers.

    Guarantees: what is read is never older than what was written through this object.
    """

    def __init__(self, client: Client, cache: Objects) -> None:
        self._client, self._cache = client, cache
        self._written: dict[ObjectKey, Checkpoint] = {}

    def is_gone(self, key: ObjectKey) -> bool:
        """Whether the object does not exist (any more); what was remembered of it is forgotten."""
        gone = self._cache.get(key) is None
        if gone:
            self._written.pop(key, None)
        return gone

    def get(self, key: ObjectKey) -> Checkpoint | None:
        """Return the object; None when there is none that can be read."""
        cached = self._cache.get(key)
        if cached is None:
            return None
        written = self._newer(cached)
        if written is not None:
            return written
        self._written.pop(key, None)
        try:
            return Checkpoint.read(cached)
        except ValidationError as error:
            _log.error("checkpoint is not readable", checkpoint=str(key), problem=str(error))
            return None

    def keys(self, trainer: Trainer) -> list[ObjectKey]:
        """Return the keys of all checkpoints of a Trainer."""
        return [key_of(each) for each in self._cache.by_index(OWNER_UID, trainer.metadata.uid)]

    def siblings(self, trainer: Trainer) -> list[Kept]:
        """Return all checkpoints of a Trainer as retention sees them."""
        found, path = [], current_path(trainer.status.timelines)
        for cached in self._cache.by_index(OWNER_UID, trainer.metadata.uid):
            written = self._newer(cached)
            status = written.status.dump() if written is not None else cached.get("status") or {}
            found.append(read_kept(cached, status, path))
        return found

    async def write(self, checkpoint: Checkpoint, status: CheckpointStatus) -> Checkpoint:
        """Replace the status of the object as it was read.

        Raises: Conflict when it changed meanwhile.
        """
        body = {
            "apiVersion": API_VERSION,
            "kind": "Checkpoint",
            "metadata": {
                "name": checkpoint.metadata.name,
                "namespace": checkpoint.metadata.namespace,
                "uid": checkpoint.metadata.uid,
                "resourceVersion": checkpoint.metadata.resource_version,
            },
            "spec": checkpoint.spec.dump(),
            "status": status.dump(),
        }
        stored = Checkpoint.read(await self._client.replace(CHECKPOINTS, body, subresource="status"))
        self._written[ObjectKey(checkpoint.metadata.namespace or "", checkpoint.metadata.name)] = stored
        return stored

    async def forget_old(self, trainer: Trainer) -> None:
        """Delete objects of checkpoints that are long gone from the store (GC8)."""
        for name in to_forget(self.siblings(trainer)):
            try:
                await self._client.delete(CHECKPOINTS, name, trainer.metadata.namespace)
            except NotFound:
                continue

    def _newer(self, cached: Mapping[str, Any]) -> Checkpoint | None:
        """Return what was last written, where the cache lags behind."""
        metadata = cached["metadata"]
        written = self._written.get(key_of(cached))
        if written is None or written.metadata.uid != metadata.get("uid"):
            return None
        ours, theirs = written.metadata.resource_version or "", metadata.get("resourceVersion") or ""
        return written if compare(ours, theirs) == 1 else None
