"""Mirror ConfigMaps into other namespaces: an operator that has nothing to do with training.

A ConfigMap with the label `mirror.example.com/source=yes` and the annotation `mirror.example.com/to: team-a,team-b`
is copied into those namespaces and kept equal there. A namespace that leaves the list loses its copy, a deleted
source all of them, as does one that loses its label. Owners cannot reach over namespaces, so a finalizer holds the
source until its copies are gone.

A namespace in the list that does not exist is told in an event and tried again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from runtime.cache import Barrier
from runtime.client import ClientConfig, Conflict, NotFound, apply
from runtime.controller import Controller, Request, Result, add_finalizer, has_finalizer, remove_finalizer
from runtime.leaderelection import LeaderElectionConfig
from runtime.logs import configure
from runtime.manager import Manager, run_manager
from runtime.objects import CONFIGMAPS, AnyObject, JsonObject, ObjectKey, key_of

SOURCE = "mirror.example.com/source"
TARGETS = "mirror.example.com/to"
ORIGIN = "mirror.example.com/origin"
FINALIZER = "mirror.example.com/copies"
FIELD_MANAGER = "configmap-mirror"

_BY_ORIGIN = "origin"
_RETRY = 10.0  # seconds until a namespace that did not exist is tried again


def targets_of(source: JsonObject) -> frozenset[str]:
    """Return the namespaces that a source names, its own left out: a copy must never overwrite its source."""
    text = (source["metadata"].get("annotations") or {}).get(TARGETS) or ""
    names = {name.strip() for name in text.split(",")}
    return frozenset(names - {"", key_of(source).namespace})


def copy_of(source: JsonObject, namespace: str) -> dict[str, Any]:
    """Return what the copy in a namespace has to be."""
    key = key_of(source)
    content = {field: source[field] for field in ("data", "binaryData") if source.get(field)}
    metadata = {
        "name": key.name,
        "namespace": namespace,
        "labels": {"mirror.example.com/copy": "yes"},
        "annotations": {ORIGIN: str(key)},
    }
    return {"metadata": metadata, **content}


def origin_of(copy: AnyObject) -> Iterable[ObjectKey]:
    """Name the source of a copy."""
    assert not hasattr(copy, "metadata")  # ConfigMaps are cached as JSON here
    namespace, slash, name = ((copy["metadata"].get("annotations") or {}).get(ORIGIN) or "").partition("/")
    return (ObjectKey(namespace, name),) if slash and name else ()


class Mirror:
    """Keeps the copies of each source as the source wants them."""

    def __init__(self, manager: Manager) -> None:
        self._client = manager.client
        self._events = manager.events
        self.sources = manager.informers.informer(CONFIGMAPS, labels=f"{SOURCE}=yes")
        self.copies = manager.informers.informer(CONFIGMAPS, labels="mirror.example.com/copy=yes")
        self.copies.add_index(_BY_ORIGIN, lambda copy: map(str, origin_of(copy)))
        self._written: Barrier[ObjectKey] = Barrier(self.copies, clock=manager.clock)

    async def reconcile(self, request: Request) -> Result | None:
        """Apply what differs, delete what is too much."""
        source = self.sources.get(request.key)
        if not self._written.is_open(request.key):
            return Result(requeue_after=0.1)
        is_leaving = source is None or bool(source["metadata"].get("deletionTimestamp"))
        wanted = frozenset() if source is None or is_leaving else targets_of(source)
        copies = {key_of(copy).namespace: copy for copy in self.copies.by_index(_BY_ORIGIN, str(request.key))}
        for namespace in sorted(copies.keys() - wanted):
            await self._delete(request.key, copies[namespace])
        if source is None:
            self._written.forget(request.key)
            await self._let_go(request)
            return None
        if is_leaving:
            await remove_finalizer(self._client, CONFIGMAPS, source, finalizer=FINALIZER)
            return None
        if wanted and not has_finalizer(source, FINALIZER):  # before the first copy exists
            await add_finalizer(self._client, CONFIGMAPS, source, finalizer=FINALIZER)
        missing = [
            namespace
            for namespace in sorted(wanted)
            if not await self._apply(request.key, source, namespace, known=copies.get(namespace))
        ]
        if not missing:
            return None
        self._events.event(
            source,
            type="Warning",
            reason="NoSuchNamespace",
            message=f"no copy in {', '.join(missing)}, trying again: there is no such namespace",
            resource=CONFIGMAPS,
        )
        return Result(requeue_after=_RETRY)

    async def _let_go(self, request: Request) -> None:
        """Free a ConfigMap that is no source any more: it is out of our cache, but may exist and still be held."""
        try:
            left = await self._client.get(CONFIGMAPS, request.name, request.namespace)
        except NotFound:
            return
        await remove_finalizer(self._client, CONFIGMAPS, left, finalizer=FINALIZER)

    async def _apply(
        self, key: ObjectKey, source: JsonObject, namespace: str, *, known: JsonObject | None
    ) -> bool:
        """Bring one copy up to date; false when its namespace does not exist."""
        copy = copy_of(source, namespace)
        if known is not None and all(known.get(field) == copy.get(field) for field in ("data", "binaryData")):
            return True
        try:
            written = await apply(self._client, CONFIGMAPS, copy, field_manager=FIELD_MANAGER, force=True)
        except NotFound:
            return False
        self._written.wrote(key, written)
        return True

    async def _delete(self, key: ObjectKey, copy: JsonObject) -> None:
        where = key_of(copy)
        try:
            answer = await self._client.delete(
                CONFIGMAPS, where.name, where.namespace, uid=copy["metadata"]["uid"]
            )
        except (NotFound, Conflict):  # gone, or another object bears the name now: none of ours
            return
        self._written.deleted(key, copy, answer=answer)


def build(config: ClientConfig | None = None) -> Manager:
    """Put the operator together."""
    config = config or ClientConfig.auto()
    manager = Manager(
        config,
        leader_election=LeaderElectionConfig(namespace=config.namespace, name="configmap-mirror"),
        health_address=("127.0.0.1", 0),
        component="configmap-mirror",
    )
    mirror = Mirror(manager)
    controller = Controller("mirror", mirror, clock=manager.clock, metrics=manager.metrics)
    controller.watch(mirror.sources)
    controller.watch(mirror.copies, mapping=origin_of)
    manager.add_controller(controller)
    return manager


if __name__ == "__main__":
    configure()
    sys.exit(run_manager(build))
