"""Where keys come from: an informer's changes, or other code that noticed something (C6, C9, Q4).

A source only puts keys into a queue and never awaits. It works from the moment it is attached, so the queue of a
standby is warm before its workers start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from runtime.controller.mapping import Mapping
from runtime.controller.predicate import Predicate
from runtime.objects import AnyObject, ObjectKey

__all__ = [
    "BACKGROUND_PRIORITY",
    "URGENT_PRIORITY",
    "ChannelSource",
    "Enqueue",
    "InformerSource",
    "Newcomer",
    "Patience",
]

Patience = Callable[[AnyObject | None, AnyObject | None], float | None]
"""From an object's state before and after: how many seconds a look at it may wait, so that changes which come
together cost one look; None if it goes before all others. It is asked as predicates are: what appears has no *before*,
what goes no *after*."""

Newcomer = Callable[[AnyObject], bool]
"""Whether an object of an initial list is news all the same: nobody has looked at it yet."""

BACKGROUND_PRIORITY = -100
"""For initial Adds and resyncs: news goes first (Q4)."""
URGENT_PRIORITY = 100
"""For what must not wait behind a thousand objects that are new."""


class Enqueue(Protocol):
    """How a source hands a key to its controller."""

    def __call__(self, key: ObjectKey, *, after: float = 0.0, priority: int = 0, reason: str) -> None:
        """Queue the key; must not block."""


class InformerSource:
    """An informer's handler that queues what a mapping names.

    Guarantees: never blocks; a deletion whose final state is unknown, and a resync, pass whatever the predicate says.
    """

    def __init__(
        self,
        kind: str,
        enqueue: Enqueue,
        *,
        mapping: Mapping,
        predicate: Predicate | None = None,
        patience: Patience | None = None,
        newcomer: Newcomer | None = None,
    ) -> None:
        self._kind = kind
        self._enqueue = enqueue
        self._mapping = mapping
        self._predicate = predicate
        self._patience = patience
        self._newcomer = newcomer

    def on_add(self, obj: AnyObject, *, initial: bool) -> None:
        """Queue for an object that appeared."""
        if self._admits(None, obj):
            known = initial and not (self._newcomer is not None and self._newcomer(obj))
            after, priority = (0.0, BACKGROUND_PRIORITY) if known else self._haste(None, obj)
            self._queue(obj, after=after, priority=priority, reason="added")

    def on_update(self, old: AnyObject, new: AnyObject) -> None:
        """Queue for both states: what an object left must look again as much as what it joined.

        A resync (old is new) is never held back: it asks for a look without a change.
        """
        if old is new:
            self._queue(new, after=0.0, priority=BACKGROUND_PRIORITY, reason="resynced")
        elif self._admits(old, new):
            after, priority = self._haste(old, new)
            self._queue(old, after=after, priority=priority, reason="updated")
            self._queue(new, after=after, priority=priority, reason="updated")

    def on_delete(self, obj: AnyObject, *, final_state_unknown: bool) -> None:
        """Queue for an object that is gone; its last known state is enough to name its owner."""
        if final_state_unknown or self._admits(obj, None):
            after, priority = (0.0, 0) if final_state_unknown else self._haste(obj, None)
            self._queue(obj, after=after, priority=priority, reason="deleted")

    def _admits(self, old: AnyObject | None, new: AnyObject | None) -> bool:
        return self._predicate is None or self._predicate(old, new)

    def _haste(self, old: AnyObject | None, new: AnyObject | None) -> tuple[float, int]:
        wait = self._patience(old, new) if self._patience is not None else 0.0
        return (0.0, URGENT_PRIORITY) if wait is None else (wait, 0)

    def _queue(self, obj: AnyObject, *, after: float, priority: int, reason: str) -> None:
        for key in self._mapping(obj):
            self._enqueue(key, after=after, priority=priority, reason=f"{self._kind} {reason}")


class ChannelSource:
    """A way for other code to ask for a look at an object without knowing who looks.

    Assumptions: used from the event loop's thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._enqueues: list[Enqueue] = []

    def attach(self, enqueue: Enqueue) -> None:
        """Add a controller; what was notified before is not repeated for it."""
        self._enqueues.append(enqueue)

    def notify(self, key: ObjectKey, *, after: float = 0.0, priority: int = 0) -> None:
        """Ask every attached controller to look at `key` in `after` seconds."""
        for enqueue in self._enqueues:
            enqueue(key, after=after, priority=priority, reason=f"notified by {self.name}")
