"""Time, as the one thing everybody asks for and nobody takes for himself.

Durations are measured on a monotonic clock; wall-clock time exists only at the edge to the API, always aware and
in UTC (PY10). Both come from an injected :class:`Clock`, so that a test decides what time it is (P3).
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "LoopClock", "SystemClock", "format_microtime", "format_time", "parse_time"]


class Clock(Protocol):
    """What a component may know about time."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary origin; never goes back."""
        ...

    def utcnow(self) -> datetime:
        """Return the wall-clock time, aware and in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task."""
        ...


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)
    """The system's monotonic time: the function itself, since the work queue asks for it three times a key."""

    def utcnow(self) -> datetime:
        """Return the system's wall-clock time in UTC."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task on the running loop."""
        await asyncio.sleep(seconds)


class LoopClock:
    """The running event loop's own time: real on a real loop, simulated on a simulated one.

    The wall clock starts at a fixed origin, so that a simulated run prints the same times whenever it is run.
    """

    def __init__(self, *, origin: datetime | None = None) -> None:
        self._origin = origin or datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return the running loop's time."""
        return asyncio.get_running_loop().time()

    def utcnow(self) -> datetime:
        """Return the origin advanced by the loop's time."""
        return self._origin + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task in the loop's time."""
        await asyncio.sleep(seconds)


def format_time(moment: datetime) -> str:
    """Write a `metav1.Time`: seconds, UTC, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_microtime(moment: datetime) -> str:
    """Write a `metav1.MicroTime`: six digits of a second, UTC, `Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """Read a `metav1.Time` or `metav1.MicroTime`, with or without a fraction (L4).

    Raises: ValueError when the text is no RFC 3339 time or carries no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone, cannot tell which moment it means")
    return moment.astimezone(UTC)
