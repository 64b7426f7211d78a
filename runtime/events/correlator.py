"""Which events are worth writing (R8).

Three questions, in client-go's order and with its figures::

    1. Are there ten different messages of this object and reason within 10 min?  Then one combined message.
    2. Has this very event been written before?                                   Then its count goes up.
    3. Has the object used up its burst of 25?                                    Then drop; one more each 300 s.

All memory is in tables of at most 4,096 entries, oldest use first to go. Pure: told the time, it touches nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from runtime.events.reference import ObjectReference

__all__ = ["Bump", "Correlator", "Create", "Drop", "Happening", "Verdict"]

TABLE_SIZE = 4096
ALIKE_LIMIT = 10
"""Different messages of one object and reason after which they are combined."""
ALIKE_WINDOW = 600.0
"""Seconds without a like event after which counting starts afresh."""
BURST = 25
REFILL_PERIOD = 300.0
"""Seconds in which an object earns one more event."""
COMBINED_PREFIX = "(combined from similar events): "
LONGEST_MESSAGE = 1024
LONGEST_REASON = 128

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that was reported about an object."""

    about: ObjectReference
    type: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Create:
    """Write a new event."""

    key: Hashable
    message: str


@dataclass(frozen=True, slots=True)
class Bump:
    """Raise the count of the event written under `name`."""

    key: Hashable
    name: str
    message: str
    count: int
    first: datetime


@dataclass(frozen=True, slots=True)
class Drop:
    """Write nothing; the object talks too much."""


Verdict = Create | Bump | Drop


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass(slots=True)
class _Budget:
    tokens: float
    at: float


@dataclass(slots=True)
class _Known:
    name: str
    count: int
    first: datetime


class _Table(Generic[K, V]):
    """A mapping that forgets what was not used for longest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
        return value

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)


class Correlator:
    """Judges events, one after the other.

    Guarantees: memory is bounded by the size of its tables, whatever is reported.
    Assumptions: `wrote` follows each verdict that the API server has taken.
    """

    def __init__(self, *, table_size: int = TABLE_SIZE) -> None:
        self._similar: _Table[Hashable, _Similar] = _Table(table_size)
        self._budgets: _Table[Hashable, _Budget] = _Table(table_size)
        self._known: _Table[Hashable, _Known] = _Table(table_size)

    def judge(self, happening: Happening, *, now: float) -> Verdict:
        """Return what to do with an event that happened at monotonic time `now`."""
        about = happening.about
        who = (about.api_version, about.kind, about.namespace, about.name, about.uid)
        alike = (who, happening.type, happening.reason[:LONGEST_REASON])
        message = shorten(happening.message, LONGEST_MESSAGE)
        key: Hashable = (alike, message)
        if self._is_one_of_many(alike, message, now):
            key = alike
            message = shorten(COMBINED_PREFIX + message, LONGEST_MESSAGE)
        if not self._may_speak(who, now):
            return Drop()
        known = self._known.get(key)
        if known is None:
            return Create(key, message)
        return Bump(key, known.name, message, known.count + 1, known.first)

    def wrote(self, verdict: Create | Bump, *, name: str, at: datetime) -> None:
        """Remember an event that the API server has taken."""
        match verdict:
            case Create():
                self._known.put(verdict.key, _Known(name, 1, at))
            case Bump():
                self._known.put(verdict.key, _Known(name, verdict.count, verdict.first))

    def forget(self, verdict: Bump) -> None:
        """Forget an event that the API server no longer has; events expire after an hour."""
        self._known.drop(verdict.key)

    def __len__(self) -> int:
        """Return the size of the largest table."""
        return max(len(self._similar), len(self._budgets), len(self._known))

    def _is_one_of_many(self, alike: Hashable, message: str, now: float) -> bool:
        similar = self._similar.get(alike)
        if similar is None or now - similar.last > ALIKE_WINDOW:
            similar = self._similar.put(alike, _Similar())
        similar.last = now
        if len(similar.messages) >= ALIKE_LIMIT and message not in similar.messages:
            return True
        similar.messages.add(message)
        return False

    def _may_speak(self, who: Hashable, now: float) -> bool:
        budget = self._budgets.get(who)
        if budget is None:
            budget = self._budgets.put(who, _Budget(float(BURST), now))
        budget.tokens = min(float(BURST), budget.tokens + (now - budget.at) / REFILL_PERIOD)
        budget.at = now
        if budget.tokens < 1.0:
            return False
        budget.tokens -= 1.0
        return True


def shorten(text: str, limit: int) -> str:
    """Return the text cut to `limit` bytes of UTF-8, marked when it was cut."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    mark = "…"
    return encoded[: limit - len(mark.encode())].decode(errors="ignore") + mark
