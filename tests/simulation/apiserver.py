"""The API server and caches of it in memory; the operator may die at any write, before or after it took effect."""

from collections import deque
from dataclasses import dataclass, field

import msgspec

from runtime.cache.index import OWNER_UID
from runtime.client.errors import AlreadyExists, Conflict, NotFound
from runtime.client.rest import ListResult
from runtime.clock import format_time
from runtime.objects import PODS, ObjectKey, key_of, owner_references
from runtime.testing.clock import SimClock
from runtime.testing.objectlog import ObjectLog
from trainer_operator.trainer.surroundings import NODE_INDEX


class Killed(Exception):
    """The operator's process died at this call."""


@dataclass
class Api:
    """The API server as the client sees it; the operator can be killed at the n-th write, or a write can fail."""

    clock: SimClock
    log: ObjectLog = field(default_factory=ObjectLog)
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    kill_at: int | None = None
    kill_after_effect: bool = False
    dead: bool = False
    planned: deque = field(default_factory=deque)
    """Errors for the next writes; None lets one pass."""
    refused: dict = field(default_factory=dict)
    """Errors for lists, by kind."""
    listed: list = field(default_factory=list)
    """Kinds that were listed."""

    async def fetch_page(self, resource, namespace, *, params):
        self.listed.append(resource)
        if resource in self.refused:
            raise self.refused[resource]
        return b"{}"

    async def get(self, resource, name, namespace=None):
        found = self.log.get(resource, ObjectKey(namespace or "", name))
        if found is None:
            raise NotFound(f"{resource} {name}", status=404, reason="NotFound")
        return found

    async def list(self, resource, namespace=None, *, fields=None):
        self.listed.append(resource)
        if resource in self.refused:
            raise self.refused[resource]
        path, _, value = (fields or "=").partition("=")
        found = [obj for obj in self.log.objects(resource, namespace) if not path or _at(obj, path) == value]
        return ListResult(found, str(self.log.version))

    async def create(self, resource, body, *, namespace=None):
        name = body["metadata"]["name"]
        key = ObjectKey(namespace or body["metadata"].get("namespace") or "", name)

        def effect():
            if self.log.get(resource, key) is not None:
                raise AlreadyExists(f"{resource} {name} exists", status=409, reason="AlreadyExists")
            metadata = {**body["metadata"], "namespace": key.namespace, "generation": 1}
            metadata["creationTimestamp"] = format_time(self.clock.utcnow())
            return self.log.put(resource, {**body, "metadata": metadata})

        return self._write("create", resource, name, effect=effect)

    async def replace(self, resource, body, *, subresource=None):
        key = key_of(body)

        def effect():
            found = self._existing(resource, key)
            sent = body["metadata"]
            if sent.get("resourceVersion") != found["metadata"]["resourceVersion"]:
                raise Conflict(f"{key} has changed", status=409, reason="Conflict")
            if sent.get("uid") != found["metadata"]["uid"]:
                raise Conflict(f"{key} has another uid", status=409, reason="Conflict")
            changed = {"status": body["status"]} if subresource == "status" else {"spec": body["spec"]}
            return self.log.put(resource, {**found, **changed})

        return self._write(f"replace {subresource}", resource, key.name, effect=effect)

    async def patch(self, resource, name, body, *, namespace=None, subresource=None, kind=None):
        key = ObjectKey(namespace or "", name)

        def effect():
            found = self._existing(resource, key)
            if isinstance(body, list):
                return self._patch_finalizers(resource, found, body)
            if "data" in body:
                return self.log.put(resource, {**found, "data": {**found.get("data", {}), **body["data"]}})
            if "spec" in body:
                return self.log.put(resource, {**found, "spec": {**found["spec"], **body["spec"]}})
            if "status" not in body:
                changed = {**found["metadata"].get("annotations", {}), **body["metadata"]["annotations"]}
                kept = {name: value for name, value in changed.items() if value is not None}
                return self.log.put(
                    resource, {**found, "metadata": {**found["metadata"], "annotations": kept}}
                )
            return self.log.put(resource, {**found, "status": {**found.get("status", {}), **body["status"]}})

        return self._write(f"patch {subresource or 'finalizers'}", resource, name, effect=effect)

    def _patch_finalizers(self, resource, found, body):
        """Add or remove the one that the patch names; an object that is being deleted goes with its last one."""
        metadata, change = found["metadata"], body[-1]
        present = list(metadata.get("finalizers") or ())
        if change["op"] == "add":
            present += change["value"] if isinstance(change["value"], list) else [change["value"]]
        else:
            del present[int(change["path"].rpartition("/")[2])]
        metadata["finalizers"] = present
        if not present and metadata.get("deletionTimestamp"):
            self.log.delete(resource, key_of(found))
            return found
        return self.log.put(resource, found)

    async def delete(self, resource, name, namespace=None, *, propagation=None, grace_seconds=None, uid=None):
        key = ObjectKey(namespace or "", name)

        def effect():
            found = self._existing(resource, key)
            if uid is not None and found["metadata"]["uid"] != uid:
                raise Conflict(f"{key} has another uid", status=409, reason="Conflict")
            if resource is PODS:
                found["metadata"].setdefault("deletionTimestamp", format_time(self.clock.utcnow()))
                return self.log.put(resource, found)
            self.log.delete(resource, key)
            return {"kind": "Status", "status": "Success"}

        return self._write("delete", resource, name, effect=effect)

    def _existing(self, resource, key):
        found = self.log.get(resource, key)
        if found is None:
            raise NotFound(f"{resource} {key}", status=404, reason="NotFound")
        return found

    def _write(self, verb, resource, name, *, effect):
        if self.dead:
            raise Killed("a dead process writes nothing")
        last = self.kill_at is not None and len(self.writes) + 1 == self.kill_at
        if last and not self.kill_after_effect:
            self.dead = True
            raise Killed(f"before {verb} {resource.kind} {name}")
        error = self.planned.popleft() if self.planned else None
        if error is not None:
            raise error
        answer = effect()
        self.writes.append((verb, resource.kind, name))
        if last:
            self.dead = True
            raise Killed(f"after {verb} {resource.kind} {name}")
        return answer


def _at(obj, path):
    """Return what is at a path of names with points between them."""
    for name in path.split("."):
        obj = obj[name]
    return obj


class Cached:
    """An informer over the API server: always current, unless it is frozen."""

    has_synced = True

    def __init__(self, api, resource, projection=None):
        self._api, self._resource, self._projection = api, resource, projection
        self._frozen = None
        self._current = (0, [])
        self._projected = (None, [])

    def freeze(self):
        """Show the present state until `thaw`."""
        self._frozen = (self._api.log.version, self._api.log.objects(self._resource))

    def thaw(self):
        self._frozen = None

    def seen_version(self, namespace):
        return str(self._frozen[0] if self._frozen is not None else self._api.log.version)

    def has_uid(self, key, uid):
        return any(key_of(obj) == key and obj["metadata"]["uid"] == uid for obj in self._objects())

    def get(self, key):
        return next((obj for obj in self.list() if key_of(obj) == key), None)

    def list(self, namespace=None):
        objects = self._objects()
        if self._projection is not None:
            if self._projected[0] is not objects:
                self._projected = (objects, [msgspec.convert(obj, self._projection) for obj in objects])
            return list(self._projected[1])
        return [obj for obj in objects if namespace in (None, obj["metadata"].get("namespace"))]

    def by_index(self, index, value):
        if index == NODE_INDEX:
            return [obj for obj in self.list() if obj.node_name == value]
        assert index == OWNER_UID
        return [
            obj
            for obj in self.list()
            if any(owner.get("controller") and owner.get("uid") == value for owner in owner_references(obj))
        ]

    def _objects(self):
        if self._frozen is not None:
            return self._frozen[1]
        if self._current[0] != self._api.log.version:
            self._current = (self._api.log.version, self._api.log.objects(self._resource))
        return self._current[1]
