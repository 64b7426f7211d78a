"""A clock that stands still until a test moves it.

Use it for code that only asks what time it is; code that also waits is better tested on a `SimulatedLoop`, where
time passes by itself.
"""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count

__all__ = ["SimClock"]


class SimClock:
    """A `Clock` moved by hand; its wall clock may be wrong on purpose.

    Assumptions: used from one thread.
    """

    def __init__(self, start: float = 1000.0, *, origin: datetime | None = None) -> None:
        self._now = start
        self._start = start
        self._origin = origin or datetime(2026, 1, 1, tzinfo=UTC)
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def monotonic(self) -> float:
        """Return the simulated monotonic time."""
        return self._now

    def utcnow(self) -> datetime:
        """Return the simulated wall-clock time."""
        return self._origin + timedelta(seconds=self._now - self._start)

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has moved past the end of the sleep.

        Cancellation: safe.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), sleeper))
        await sleeper

    def advance(self, seconds: float) -> None:
        """Let time pass and wake whoever slept until then.

        Raises: ValueError when asked to go back.
        """
        if seconds < 0:
            raise ValueError("monotonic time never goes back; use jump_wall_clock for the wall clock")
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    def jump_wall_clock(self, seconds: float) -> None:
        """Move only the wall clock, in either direction, as a correction of the system time does."""
        self._origin += timedelta(seconds=seconds)
