"""Finalizers: hold an object until what it caused outside is cleaned up (R6).

The order is fixed: add the finalizer before the first external effect, clean up idempotently (also if set-up never
ran), remove the finalizer as the very last write. Each patch carries JSON-patch tests of the uid and of the list it
was computed from, so that it can never touch a successor of the same name or drop another party's finalizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from runtime.client.errors import ApiError, Conflict, Invalid, NotFound
from runtime.client.rest import PatchKind
from runtime.objects import JsonObject, Resource, key_of, uid_of

__all__ = ["add_finalizer", "add_patch", "has_finalizer", "remove_finalizer", "remove_patch"]

ATTEMPTS = 5
"""How often a patch whose test failed is computed anew before the conflict is raised (R4)."""


class Patcher(Protocol):
    """The part of the client that finalizers need."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Read an object."""

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        kind: PatchKind = ...,
    ) -> dict[str, Any]:
        """Patch an object."""


def has_finalizer(obj: JsonObject, finalizer: str) -> bool:
    """Tell whether the object is held by `finalizer`."""
    return finalizer in _finalizers(obj)


def add_patch(obj: JsonObject, finalizer: str) -> list[dict[str, Any]]:
    """Return the guarded JSON patch that adds `finalizer`; empty if it is there."""
    present = _finalizers(obj)
    if finalizer in present:
        return []
    path = "/metadata/finalizers"
    if not present:
        # An absent list tests equal to null; adding to it needs the whole list.
        return [*_same_object(obj), _op("test", path, None), _op("add", path, [finalizer])]
    return [*_same_object(obj), _op("test", path, present), _op("add", f"{path}/-", finalizer)]


def remove_patch(obj: JsonObject, finalizer: str) -> list[dict[str, Any]]:
    """Return the guarded JSON patch that removes `finalizer`; empty if it is not there."""
    present = _finalizers(obj)
    if finalizer not in present:
        return []
    path = f"/metadata/finalizers/{present.index(finalizer)}"
    return [*_same_object(obj), _op("test", path, finalizer), {"op": "remove", "path": path}]


async def add_finalizer(
    client: Patcher, resource: Resource, obj: JsonObject, *, finalizer: str
) -> JsonObject:
    """Make sure the object is held by `finalizer` and return its newest known state.

    Raises: NotFound when the object is gone or was replaced by another of its name; ApiError otherwise.
    """
    changed = await _patch(client, resource, obj, finalizer, add=True)
    if changed is None:
        message = f"{resource.kind} {key_of(obj)} is gone, no finalizer was added"
        raise NotFound(message, status=404, reason="NotFound")
    return changed


async def remove_finalizer(
    client: Patcher, resource: Resource, obj: JsonObject, *, finalizer: str
) -> JsonObject | None:
    """Make sure the object is not held by `finalizer`; None means it is gone, which is just as good."""
    return await _patch(client, resource, obj, finalizer, add=False)


async def _patch(
    client: Patcher, resource: Resource, obj: JsonObject, finalizer: str, *, add: bool
) -> JsonObject | None:
    key, uid = key_of(obj), uid_of(obj)
    namespace = key.namespace or None
    failure: ApiError | None = None
    for _ in range(ATTEMPTS):
        body = add_patch(obj, finalizer) if add else remove_patch(obj, finalizer)
        if not body:
            return obj
        try:
            return await client.patch(resource, key.name, body, namespace=namespace, kind=PatchKind.JSON)
        except NotFound:
            return None
        except (
            Conflict,
            Invalid,
        ) as error:  # a failed test is answered with 422, a concurrent write with 409
            failure = error
        try:
            obj = await client.get(resource, key.name, namespace)
        except NotFound:
            return None
        if uid_of(obj) != uid:
            return None
    assert failure is not None
    raise failure


def _finalizers(obj: JsonObject) -> list[str]:
    return list((obj.get("metadata") or {}).get("finalizers") or ())


def _same_object(obj: Mapping[str, Any]) -> list[dict[str, Any]]:
    uid = uid_of(obj)
    return [_op("test", "/metadata/uid", uid)] if uid else []


def _op(op: str, path: str, value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}
