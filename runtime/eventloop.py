"""Keeping an event loop responsive although there is a garbage collector (PY1).

The collector walks over objects in proportion to how many are made. While a large collection is decoded or stored,
nothing it could reclaim is made, and its walks are what others wait for. Later a cache that changes all the time
makes the collector walk over all of it again and again: with 10,000 Pods as dicts and 2,000 changes a second that was
four fifths of the process's work, in pauses of a second (measured), and what it looks for, cycles that have grown old,
hardly exists here.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from runtime.clock import Clock

__all__ = ["FULL_COLLECTION_PERIOD", "collect_by_time", "collector_held"]

FULL_COLLECTION_PERIOD: Final = 600.0
"""Seconds between full collections; what an old cycle holds may live so long after its end."""

_NEVER: Final = 2**31 - 1


@contextmanager
def collector_held() -> Iterator[None]:
    """Keep the garbage collector still for a block without awaits."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


async def collect_by_time(clock: Clock, *, period: float = FULL_COLLECTION_PERIOD) -> None:
    """Have full collections at a fixed pace instead of whenever much was allocated, until cancelled.

    Young cycles, such as those of a failed request, are collected as before. This holds for the whole process.

    Guarantees: the collector is as it was found when this ends.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    try:
        while True:
            await clock.sleep(period)
            gc.collect()
    finally:
        gc.set_threshold(young, middle, old)
