"""Wait for a condition with a deadline, and say in a sentence what did not come about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.stock.arm import Broken
from runtime.clock import SystemClock

__all__ = ["until"]


async def until(
    condition: Callable[[], Awaitable[bool]], *, within: float, failing: str, every: float = 0.1
) -> None:
    """Return when the condition holds.

    Raises: Broken, saying what failed, when it does not within so many seconds.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + within
    while not await condition():
        if clock.monotonic() > deadline:
            raise Broken(f"{failing} within {within:.0f} s")
        await asyncio.sleep(every)
