"""Reading one's own writes (R2).

A reconciler that acts on a cache older than its last write creates what it has created already. The barrier keeps,
for each parent, how far the child cache must have come: the newest version written, or the absence of what was
deleted. Both events and bookmarks move the cache, so a quiet kind does not hold its parents up, and no time limit
lets a slow one through. Only where versions cannot be compared does an expectation of uids take over, for 5 min.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from runtime.cache.informer import Informer
from runtime.clock import Clock
from runtime.objects import AnyObject, ObjectKey, key_of, resource_version_of, uid_of
from runtime.resourceversion import compare, is_comparable, newer

__all__ = ["Barrier"]

K = TypeVar("K", bound=Hashable)

_EXPECTATION_LIFETIME = 300.0


@dataclass(slots=True)
class _Expected:
    versions: dict[str, str] = field(default_factory=dict)
    """By namespace, the version the cache must have seen."""
    present: dict[str, tuple[ObjectKey, float]] = field(default_factory=dict)
    """By uid, what must be in the cache and until when that is believed."""
    absent: dict[str, ObjectKey] = field(default_factory=dict)
    """By uid, what must have left the cache."""

    def __bool__(self) -> bool:
        return bool(self.versions or self.present or self.absent)


class Barrier(Generic[K]):
    """What the cache of one kind of children must show before a parent is reconciled again.

    Guarantees: `is_open` is false from a recorded write until the cache has it; entries go when they are met, so an
    idle parent costs nothing. A child deleted by somebody else is simply missing, never "still to come" (R3).
    """

    def __init__(self, children: Informer[Any], *, clock: Clock) -> None:
        self._children = children
        self._clock = clock
        self._expected: dict[K, _Expected] = {}

    def __len__(self) -> int:
        return len(self._expected)

    def wrote(self, parent: K, child: AnyObject) -> None:
        """Record the server's answer to a create, replace, patch or apply of a child."""
        key, version = key_of(child), resource_version_of(child)
        expected = self._expected.setdefault(parent, _Expected())
        if is_comparable(version) and self._seen_is_comparable(key.namespace):
            expected.versions[key.namespace] = newer(expected.versions.get(key.namespace, ""), version)
        else:
            expected.present[uid_of(child)] = (key, self._clock.monotonic() + _EXPECTATION_LIFETIME)

    def deleted(self, parent: K, child: AnyObject, *, answer: AnyObject | None = None) -> None:
        """Record a successful delete of a cached child; `answer` is the server's.

        A graceful deletion only marks the child: then the mark is what the cache must show.
        """
        marked = isinstance(answer, dict) and (answer.get("metadata") or {}).get("deletionTimestamp")
        if marked and answer is not None and uid_of(answer) == uid_of(child):
            self.wrote(parent, answer)
        else:
            self._expected.setdefault(parent, _Expected()).absent[uid_of(child)] = key_of(child)

    def is_open(self, parent: K) -> bool:
        """Tell whether the cache shows all that was written for a parent."""
        expected = self._expected.get(parent)
        if expected is None:
            return True
        now = self._clock.monotonic()
        expected.versions = {
            namespace: version
            for namespace, version in expected.versions.items()
            if compare(self._children.seen_version(namespace), version) in (-1, None)
        }
        expected.present = {
            uid: (key, until)
            for uid, (key, until) in expected.present.items()
            if until > now and not self._children.has_uid(key, uid)
        }
        expected.absent = {
            uid: key for uid, key in expected.absent.items() if self._children.has_uid(key, uid)
        }
        if expected:
            return False
        del self._expected[parent]
        return True

    def forget(self, parent: K) -> None:
        """Drop what is recorded for a parent that no longer exists."""
        self._expected.pop(parent, None)

    def _seen_is_comparable(self, namespace: str) -> bool:
        seen = self._children.seen_version(namespace)
        return not seen or is_comparable(seen)
