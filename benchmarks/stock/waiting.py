"""Wait for a condition with a deadline, and say in a sentence what did not come about.

Looks at what is measured cost what is measured: lists of a thousand pods, one after the other, keep a processor busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from benchmarks.stock.arm import Broken
from runtime.clock import SystemClock

__all__ = ["pause_after", "until"]

_LOOKING = 0.1
"""Part of the time that may be spent on looking, at most."""
_LONGEST_PAUSE = 2.0
"""Seconds: a server that is busy answers late, which says nothing of what the look cost."""


def pause_after(look: float, *, at_least: float) -> float:
    """Return the seconds until the next look, of what the last one took; the audit log is the clock, so none is late."""
    return max(at_least, min(look * (1 / _LOOKING - 1), _LONGEST_PAUSE))


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
