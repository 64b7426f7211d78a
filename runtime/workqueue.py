"""The work queue: which key may be worked on next (Q1-Q7).

The model, in four containers::

    add_after ──▶ waiting ──due──▶ ready ──get──▶ processing ──done──▶ (gone, or ready again if it was added meanwhile)
    add ─────────────────────────▶

- A key is *dirty* while it is in ready or waiting. It is never in both, and never twice in one (Q1, Q5).
- A dirty key that is being processed keeps its place in ready: `get` puts its entry aside when it comes to it, and
  `done` gives the entry back (Q1, Q5).
- Ready is ordered by priority, then by age. A raise goes to the end of the new level; nothing is lowered (Q4).
- Nothing bounds the number of keys and nothing awaits in `add`, so no producer ever blocks (Q7).

Each priority has a line of its own, in which new entries are always the youngest; what was given back is older than
all of its line. So taking a key costs the same however many are ready, where one heap of all costs twenty comparisons
at half a million (measured: half the price of a key).

The lines and the timetable are indexes with lazy deletion: the dict beside each holds the one entry that counts. Due
keys are moved by whoever touches the queue next; a timer exists only while a consumer waits, so the queue needs no
task.

All methods must be called from one event loop's thread; only `get` and `shutdown_with_drain` need a running loop.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from bisect import insort
from collections import deque
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

from runtime.clock import Clock
from runtime.errors import RuntimeFault
from runtime.metrics import Metrics, QueueSnapshot, Tally

K = TypeVar("K", bound=Hashable)

Entry = tuple[int, int, K, float]
"""A ready key as (-priority, age, key, ready since); ages are unique, so that comparing never reaches the key."""

LONGEST_DELAY = 365 * 24 * 3600.0
"""Seconds; a longer delay is clamped (Q2): one year is never, and keeps every deadline finite."""

HEARTBEAT = 10.0
"""Seconds after which a waiting consumer looks again, whatever the timers say (Q2)."""

KEPT_LINES = 16
"""Empty lines that are kept for the next key of their priority."""

SHORTEST_SLEEP = 0.001
"""Seconds; the loop's clock may run a little before ours, and a timer that fires early must not spin."""


class QueueShutDown(RuntimeFault):
    """The queue was shut down and holds nothing more for this consumer."""


class WorkQueue(Generic[K]):
    """A deduplicating priority queue with delays and per-key backoff.

    Guarantees: a key never runs twice at once; a key added while it runs runs exactly once more (Q1).
    Assumptions: every `get` is followed by exactly one `done` for the same key.
    """

    def __init__(
        self,
        name: str = "",
        *,
        clock: Clock,
        metrics: Metrics | None = None,
        base_delay: float = 0.005,
        max_delay: float = 60.0,
    ) -> None:
        self.name = name
        self._now = clock.monotonic
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._age = count()
        self._ready: dict[K, Entry[K]] = {}
        self._lines: dict[int, deque[Entry[K]]] = {}  # by negative priority, each in order of age
        self._order: list[int] = []  # the lines that are not empty, the most urgent first
        self._aside: dict[K, Entry[K]] = {}  # passed over because the key is being processed
        self._given_back: list[Entry[K]] = []  # a heap
        self._superseded = 0  # entries in the lines and in the heap that a raise has made void
        # (deadline, age, key, priority)
        self._waiting: dict[K, tuple[float, int, K, int]] = {}
        self._timetable: list[tuple[float, int, K, int]] = []
        self._processing: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._drainers: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._is_shut_down = False
        self._is_forced = False
        self._adds = 0
        self._retries = 0
        self._queue_time = Tally()
        self._work_time = Tally()
        if metrics is not None:
            metrics.queues.watch(name, self.snapshot)

    def __len__(self) -> int:
        """Return how many keys are ready, those being processed again included (Q5)."""
        self._promote(self._now())
        return len(self._ready)

    @property
    def is_shut_down(self) -> bool:
        """Whether the queue refuses new keys."""
        return self._is_shut_down

    def add(self, key: K, priority: int = 0) -> None:
        """Make `key` ready now. Ignored after shutdown (Q6)."""
        if self._is_shut_down:
            return
        self._adds += 1
        if self._waiting and (waiting := self._waiting.pop(key, None)) is not None:
            priority = max(priority, waiting[3])
        self._make_ready(key, priority, self._now())

    def add_after(self, key: K, delay: float, priority: int = 0) -> None:
        """Make `key` ready in `delay` seconds; the earliest deadline and the highest priority win (Q2, Q4).

        Raises: ValueError when the delay is not a finite number.
        """
        if not math.isfinite(delay):
            raise ValueError(f"delay of {key!r} must be a finite number of seconds, got {delay}")
        if self._is_shut_down:
            return
        if delay <= 0:
            self.add(key, priority)
            return
        self._adds += 1
        now = self._now()
        self._promote(now)
        if key in self._ready:  # already due: only the priority can still change
            self._make_ready(key, priority, now)
            return
        deadline = now + min(delay, LONGEST_DELAY)
        known = self._waiting.get(key)
        if known is not None:
            deadline = min(deadline, known[0])
            priority = max(priority, known[3])
            if (deadline, priority) == (known[0], known[3]):
                return
        entry = (deadline, next(self._age), key, priority)
        self._waiting[key] = entry
        heapq.heappush(self._timetable, entry)
        if len(self._timetable) > 64 + 2 * len(
            self._waiting
        ):  # repeated raises must not grow the index for ever
            self._timetable = list(self._waiting.values())
            heapq.heapify(self._timetable)
        if self._getters:
            self._arm(now)

    def add_rate_limited(self, key: K, priority: int = 0) -> None:
        """Make `key` ready after its own backoff, which doubles with each call until `forget` (Q3)."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._retries += 1
        # The exponent is capped before the power: 2.0**1024 overflows, and 2**63 * 5 ms is far beyond any cap.
        delay = min(self._base_delay * 2.0 ** min(failures, 63), self._max_delay)
        self.add_after(key, delay, priority)

    def forget(self, key: K) -> None:
        """Reset the backoff of `key`; a no-op for an unknown key."""
        self._failures.pop(key, None)

    def retries(self, key: K) -> int:
        """Return how often `key` was added rate-limited since it was last forgotten."""
        return self._failures.get(key, 0)

    def get_nowait(self) -> tuple[K, int] | None:
        """Take the next key and its priority, or return None if nothing may be taken now.

        Raises: QueueShutDown as `get` does.
        """
        now = self._now()
        if self._timetable:
            self._promote(now)
        entry = self._next_entry()
        if entry is not None:
            key = entry[2]
            del self._ready[key]
            self._processing[key] = now
            self._queue_time.observe(now - entry[3])
            if self._is_shut_down:
                self._settle()  # this was perhaps the last one, and the other consumers have nothing to come
            return key, -entry[0]
        # A dirty key in processing comes back with `done`: until then the queue is not empty.
        if self._is_forced or (self._is_shut_down and not self._ready):
            raise QueueShutDown(f"queue {self.name or 'without name'} was shut down")
        return None

    async def get(self) -> tuple[K, int]:
        """Wait for the next key and take it, with its priority.

        Cancellation: safe; a key is taken only after the wait, and a wake-up that the cancelled consumer had
        already received is handed on (RT22, RT39).
        Raises: QueueShutDown when the queue was shut down and is empty.
        """
        while (taken := self.get_nowait()) is None:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            self._arm(self._now())
            try:
                await getter
            except asyncio.CancelledError:
                if getter.done() and not getter.cancelled():
                    self._wake_one()
                else:
                    getter.cancel()
                raise
        return taken

    def done(self, key: K) -> None:
        """End the processing of `key`; if it was added meanwhile it becomes takeable at its old place (Q1).

        Raises: ValueError when the key is not being processed.
        """
        started = self._processing.pop(key, None)
        if started is None:
            raise ValueError(f"done() of {key!r}, which is not being processed")
        self._work_time.observe(self._now() - started)
        if key in self._ready:
            if (entry := self._aside.pop(key, None)) is not None:
                heapq.heappush(self._given_back, entry)
            if self._getters:
                self._wake_one()
        if self._is_shut_down:
            self._settle()

    def shutdown(self) -> None:
        """Refuse new keys and drop those not yet due; consumers may still empty the ready ones (Q6).

        A second call forces: ready keys are dropped too and waiting drains end.
        """
        if self._is_shut_down:
            self._force()
            return
        self._begin_shutdown()

    async def shutdown_with_drain(self) -> None:
        """Shut down, then wait until every ready key was taken and every taken key is done (Q6).

        May follow a `shutdown`. A second drain, or a `shutdown` during a drain, forces.
        Cancellation: safe; the queue stays shut down.
        """
        if self._is_forced:
            return
        if self._drainers:
            self._force()
            return
        if not self._is_shut_down:
            self._begin_shutdown()
        if not self._ready and not self._processing:
            return
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers.append(drained)
        try:
            await drained
        finally:
            if drained in self._drainers:
                self._drainers.remove(drained)

    def snapshot(self) -> QueueSnapshot:
        """Return the figures behind the metrics of Q7, computed when scraped so that the hot path stays cheap."""
        now = self._now()
        self._promote(now)
        depth: dict[int, int] = {}
        for entry in self._ready.values():
            depth[-entry[0]] = depth.get(-entry[0], 0) + 1
        ages = [now - started for started in self._processing.values()]
        return QueueSnapshot(
            depth=depth,
            adds=self._adds,
            retries=self._retries,
            queue_duration=self._queue_time,
            work_duration=self._work_time,
            unfinished_work=sum(ages),
            longest_running=max(ages, default=0.0),
        )

    def _make_ready(self, key: K, priority: int, since: float) -> None:
        known = self._ready.get(key)
        if known is not None:
            if priority <= -known[0]:
                return
            since = known[3]  # it has been ready since then; only its place changes
            if self._aside.pop(key, None) is None:
                self._superseded += 1
        entry = (-priority, next(self._age), key, since)
        self._ready[key] = entry
        line = self._lines.get(-priority)
        if line is None:
            line = self._lines[-priority] = deque()
        if not line:
            insort(self._order, -priority)
        line.append(entry)
        # Repeated raises must not grow the index for ever; the first comparison is the cheap one.
        if self._superseded > 64 and self._superseded > 64 + len(self._ready):
            self._drop_superseded()
        if self._getters and key not in self._processing:
            self._wake_one()

    def _next_entry(self) -> Entry[K] | None:
        """Take the entry of the first key that is not being processed out of the lines."""
        ready, order, given_back = self._ready, self._order, self._given_back
        while order or given_back:
            if given_back and (not order or given_back[0][0] <= order[0]):
                entry = heapq.heappop(given_back)
            else:
                line = self._lines[order[0]]
                entry = line.popleft()
                if not line:
                    emptied = order.pop(0)
                    if len(self._lines) > KEPT_LINES:
                        del self._lines[emptied]
            key = entry[2]
            if ready.get(key) is not entry:
                self._superseded -= 1
            elif key in self._processing:
                self._aside[key] = entry
            else:
                return entry
        return None

    def _drop_superseded(self) -> None:
        ready = self._ready
        self._given_back = [entry for entry in self._given_back if ready.get(entry[2]) is entry]
        heapq.heapify(self._given_back)
        lines = {
            level: deque(entry for entry in line if ready.get(entry[2]) is entry)
            for level, line in self._lines.items()
        }
        self._lines = {level: line for level, line in lines.items() if line}
        self._order = sorted(self._lines)
        self._superseded = 0

    def _promote(self, now: float) -> None:
        """Move what is due from waiting to ready, in order of deadline."""
        table = self._timetable
        while table and table[0][0] <= now:
            entry = heapq.heappop(table)
            key = entry[2]
            if self._waiting.get(key) is entry:
                del self._waiting[key]
                self._make_ready(key, entry[3], entry[0])

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _arm(self, now: float) -> None:
        """See to it that a waiting consumer looks again when the next key is due, and at each heartbeat."""
        if not self._waiting:
            return
        wait = max(SHORTEST_SLEEP, min(self._timetable[0][0] - now, HEARTBEAT))
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if not self._timer.cancelled() and self._timer.when() <= loop.time() + wait:
                return
            self._timer.cancel()
        self._timer = loop.call_later(wait, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = self._now()
        self._promote(now)
        if any(not getter.done() for getter in self._getters):
            self._arm(now)

    def _begin_shutdown(self) -> None:
        self._promote(self._now())
        self._is_shut_down = True
        self._waiting.clear()
        self._timetable.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._settle()

    def _force(self) -> None:
        self._is_forced = True
        self._ready.clear()
        self._lines.clear()
        self._order.clear()
        self._aside.clear()
        self._given_back.clear()
        self._superseded = 0
        self._settle()

    def _settle(self) -> None:
        """After shutdown: wake every getter that has nothing to come, and every drain that is over."""
        if self._ready:
            return
        while self._getters:
            self._wake_one()
        if self._is_forced or not self._processing:
            for drained in self._drainers:
                if not drained.done():
                    drained.set_result(None)
