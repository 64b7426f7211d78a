"""Which changes are worth a reconcile (C5).

A predicate sees the object before and after: an object that appears has no *before*, one that goes has no *after*.
The ready-made ones let both pass and compare only updates. They remember nothing: the informer hands over both
states, so there is no memory per object that would have to expire (RT30).

Generation counts changes of the spec, but not every kind has one: where it is missing, the version is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runtime.objects import AnyObject, resource_version_of

__all__ = [
    "Predicate",
    "all_of",
    "annotations_changed",
    "any_of",
    "deletion_changed",
    "finalizers_changed",
    "generation_changed",
    "labels_changed",
    "negate",
    "version_changed",
]

Predicate = Callable[[AnyObject | None, AnyObject | None], bool]
"""Tells from an object's state before and after whether the change matters."""


def generation_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let a change of the spec pass; a status write does not raise the generation (RT20)."""
    if old is None or new is None:
        return True
    before, after = _metadata(old, "generation"), _metadata(new, "generation")
    if not before or not after:
        return version_changed(old, new)
    return bool(before != after)


def version_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let every change pass, but not the same object told twice."""
    return old is None or new is None or resource_version_of(old) != resource_version_of(new)


def labels_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let a change of labels pass."""
    return _differs(old, new, "labels", empty={})


def annotations_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let a change of annotations pass."""
    return _differs(old, new, "annotations", empty={})


def finalizers_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let a change of finalizers pass."""
    return old is None or new is None or _finalizers(old) != _finalizers(new)


def deletion_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let the begin of a deletion pass."""
    return _differs(old, new, "deletionTimestamp", empty="")


def all_of(*predicates: Predicate) -> Predicate:
    """Let pass what every one of them lets pass."""
    return lambda old, new: all(predicate(old, new) for predicate in predicates)


def any_of(*predicates: Predicate) -> Predicate:
    """Let pass what at least one of them lets pass."""
    return lambda old, new: any(predicate(old, new) for predicate in predicates)


def negate(predicate: Predicate) -> Predicate:
    """Let pass what the predicate holds back, objects that appear and go included."""
    return lambda old, new: not predicate(old, new)


def _differs(old: AnyObject | None, new: AnyObject | None, field: str, *, empty: object) -> bool:
    if old is None or new is None:
        return True
    # Absent, null and empty mean the same to the API.
    return bool((_metadata(old, field) or empty) != (_metadata(new, field) or empty))


def _finalizers(obj: AnyObject) -> tuple[str, ...]:
    return tuple(_metadata(obj, "finalizers") or ())


_ATTRIBUTES = {"deletionTimestamp": "deletion_timestamp"}


def _metadata(obj: AnyObject, field: str) -> Any:
    if isinstance(obj, Mapping):
        return (obj.get("metadata") or {}).get(field)
    return getattr(obj.metadata, _ATTRIBUTES.get(field, field), None)
