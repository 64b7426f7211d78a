"""A store in memory whose calls fail in every way that a real one's do, and whose callers die between two of them.

Faults of the network: the request is lost, the answer is lost, the request arrives late or twice, 409, 412, 500, 503.
Faults of the store itself: it says yes and keeps nothing, a part, or other bytes; it lists what was there before.
"""

import threading
from collections.abc import Callable
from enum import Enum, auto

from trainer_operator.agent.backends import (
    Conflict,
    Entry,
    Exists,
    NotFound,
    Page,
    Throttled,
    TooLarge,
    Unreachable,
)
from trainer_operator.agent.backends.protocol import PAGE, check_key, check_keys, check_prefix


class Fault(Enum):
    LOST_REQUEST = auto()
    LOST_ANSWER = auto()
    LATE = auto()
    TWICE = auto()
    CONFLICT = auto()
    EXISTS = auto()
    ERROR = auto()
    THROTTLED = auto()
    LOST_WRITE = auto()
    TORN = auto()
    FLIPPED = auto()
    STALE_LIST = auto()


LIES = frozenset({Fault.LOST_WRITE, Fault.TORN, Fault.FLIPPED})
"""Faults after which the store does not hold what it said; the others are the network's."""
HONEST = tuple(fault for fault in Fault if fault not in LIES)
_BEFORE = {
    Fault.LOST_REQUEST: Unreachable,
    Fault.ERROR: Unreachable,
    Fault.CONFLICT: Conflict,
    Fault.THROTTLED: Throttled,
}


class Died(BaseException):
    """The process that uses the store is gone; nothing of it goes on."""


class MemoryStore:
    """Objects in a dictionary. `faults` are used up one a call; `die_at` is the call that the caller doesn't survive."""

    def __init__(
        self, *, watch: Callable[["MemoryStore", str], None] = lambda _store, _key: None, page: int = PAGE
    ):
        self.objects: dict[str, bytes] = {}
        self.faults: list[Fault | None] = []
        self.calls = 0
        self.die_at: int | None = None
        self.dies_after = False
        self._watch, self._page = watch, page
        self._late: list[tuple[str, bytes]] = []
        self._before: dict[str, int] = {}
        self._dead = False
        self._lock = threading.RLock()

    @property
    def address(self):
        return "memory"

    def plan(self, *, faults=(), die_at=None, dies_after=False):
        """Start a new process with these faults ahead of it."""
        with self._lock:
            self.faults = list(faults)
            self.calls, self.die_at, self.dies_after, self._dead = 0, die_at, dies_after, False

    def create(self, key, data):
        check_key(key)
        with self._call() as fault:
            if fault is Fault.EXISTS:
                raise Exists(f"{key} exists, it was said")
            if fault is Fault.LATE:
                self._late.append((key, bytes(data)))
                raise Unreachable("no answer")
            if key in self.objects:
                if fault is Fault.LOST_ANSWER:
                    raise Unreachable("no answer")
                raise Exists(f"{key} exists")
            self._keep(key, bytes(data), fault)
            if fault is Fault.TWICE:
                raise Exists(f"{key} exists: the same request had come before")
            if fault is Fault.LOST_ANSWER:
                raise Unreachable("no answer")

    def put(self, key, data):
        check_key(key)
        with self._call() as fault:
            self._keep(key, bytes(data), fault)
            if fault in {Fault.LOST_ANSWER, Fault.LATE}:
                raise Unreachable("no answer")

    def get(self, key, *, limit):
        check_key(key)
        with self._call():
            data = self._read(key)
            if len(data) > limit:
                raise TooLarge(f"{key} has more than {limit} bytes")
            return data

    def get_range(self, key, *, start, length):
        check_key(key)
        with self._call():
            return self._read(key)[start : start + length]

    def list(self, prefix, *, cursor="", shallow=False):
        check_prefix(prefix)
        with self._call() as fault:
            sizes = self._before if fault is Fault.STALE_LIST else self._sizes()
            rows: dict[str, int | None] = {}
            for key, size in sorted(sizes.items()):
                if key.startswith(prefix):
                    name, deeper, _ = key[len(prefix) :].partition("/")
                    rows[prefix + name + "/" if shallow and deeper else key] = (
                        None if shallow and deeper else size
                    )
            left = [(name, size) for name, size in rows.items() if name > cursor]
            page = left[: self._page]
            return Page(
                tuple(Entry(name, size) for name, size in page if size is not None),
                tuple(name for name, size in page if size is None),
                page[-1][0] if len(left) > self._page else "",
            )

    def delete_many(self, keys):
        with self._call() as fault:
            self._before = self._sizes()
            found = [key for key in check_keys(keys) if self.objects.pop(key, None) is not None]
            for key in found:
                self._watch(self, key)
            if fault in {Fault.LOST_ANSWER, Fault.LATE}:
                raise Unreachable("no answer")
            return len(found)

    def sweep(self, prefix):
        check_prefix(prefix)
        with self._call():
            return

    def _call(self):
        return _Call(self)

    def _keep(self, key, data, fault):
        self._before = self._sizes()
        if fault is Fault.LOST_WRITE:
            return
        if fault is Fault.TORN:
            data = data[: len(data) // 2]
        if fault is Fault.FLIPPED and data:
            data = bytes([data[0] ^ 1]) + data[1:]
        self.objects[key] = data
        self._watch(self, key)

    def _read(self, key):
        if key not in self.objects:
            raise NotFound(f"{key} does not exist")
        return self.objects[key]

    def _sizes(self):
        return {key: len(data) for key, data in self.objects.items()}

    def arrive(self):
        """Let requests that were under way arrive."""
        with self._lock:
            late, self._late = self._late, []
            for key, data in late:
                if key not in self.objects:
                    self._keep(key, data, None)


class _Call:
    """One call: dies or fails before it, or dies after it."""

    def __init__(self, store):
        self._store = store

    def __enter__(self):
        store = self._store
        store._lock.acquire()
        try:
            if store._dead or (store.calls == store.die_at and not store.dies_after):
                store._dead = True
                raise Died
            fault = store.faults.pop(0) if store.faults else None
            if fault in _BEFORE:
                store.calls += 1
                raise _BEFORE[fault]("it failed before it was done")
        except BaseException:
            store._lock.release()
            raise
        return fault

    def __exit__(self, *_):
        store = self._store
        dies = store.calls == store.die_at and store.dies_after
        store.calls += 1
        store._dead = store._dead or dies
        store._lock.release()
        if dies:
            raise Died
