"""Which objects to look at when another one changes (C6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from runtime.objects import AnyObject, ObjectKey, Resource, key_of, owner

__all__ = ["Mapping", "own_key", "owner_of"]

Mapping = Callable[[AnyObject], Iterable[ObjectKey]]
"""Names the objects to look at when the given one changes; must be quick and must not raise."""


def own_key(obj: AnyObject) -> Iterable[ObjectKey]:
    """Look at the object itself."""
    return (key_of(obj),)


def owner_of(resource: Resource) -> Mapping:
    """Look at the object's controlling owner, if it is of the given kind.

    Group and kind are compared, the version is not: owners written before an upgrade of the API still own.
    """

    def keys(obj: AnyObject) -> Iterable[ObjectKey]:
        reference = owner(obj)
        if reference is None or reference.get("kind") != resource.kind:
            return ()
        group, _, version = (reference.get("apiVersion") or "").rpartition("/")
        if group != resource.group or not version:
            return ()
        name = reference.get("name") or ""
        if not name:
            return ()
        return (ObjectKey(key_of(obj).namespace if resource.namespaced else "", name),)

    return keys
