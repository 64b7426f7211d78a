"""What an operation of the work queue costs (G7), beside the least that asyncio offers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import uvloop

from benchmarks.result import Column, Ratio, Result, Row, Scale
from runtime.clock import SystemClock
from runtime.metrics import Metrics
from runtime.workqueue import WorkQueue

__all__ = ["measure"]

_OURS = "ours: add, get, done"
_DEPTH = 10_000
"""Keys that are ready at once in the first row: as many as a large cluster has objects of a kind."""
_SIZES = {Scale.QUICK: 50_000, Scale.FULL: 100_000}


async def _ours(count: int) -> None:
    await _waves(count, depth=_DEPTH)


async def _deep(count: int) -> None:
    await _waves(count, depth=count)


async def _waves(count: int, *, depth: int) -> None:
    queue: WorkQueue[int] = WorkQueue("bench", clock=SystemClock(), metrics=Metrics())
    for _ in range(0, count, depth):
        for key in range(depth):
            queue.add(key)
        for _ in range(depth):
            queue.done((await queue.get())[0])


async def _repeated(count: int) -> None:
    queue: WorkQueue[int] = WorkQueue("bench", clock=SystemClock(), metrics=Metrics())
    for _ in range(count):
        queue.add(0)
    queue.done((await queue.get())[0])


async def _delayed(count: int) -> None:
    queue: WorkQueue[int] = WorkQueue("bench", clock=SystemClock(), metrics=Metrics())
    for key in range(count):
        queue.add_after(key, 1000.0 + key % 97)
    queue.shutdown()


async def _asyncio_queue(count: int) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    for _ in range(0, count, _DEPTH):
        for key in range(_DEPTH):
            queue.put_nowait(key)
        for _ in range(_DEPTH):
            await queue.get()
            queue.task_done()


def measure(scale: Scale) -> Result:
    """Time each pattern, the best of ten runs."""
    count = _SIZES[scale]
    subjects: dict[str, Callable[[int], Awaitable[None]]] = {
        _OURS: _ours,
        "ours: the same, all keys ready at once": _deep,
        "ours: add of a key that is waiting already": _repeated,
        "ours: add with a delay": _delayed,
        "`asyncio.Queue`: put, get, task_done (no keys, no priorities)": _asyncio_queue,
    }
    rows = tuple(Row(subject, {"micros": _best(run, count) * 1e6}) for subject, run in subjects.items())
    return Result(
        "workqueue",
        "Work queue",
        f"{count:,} operations on {_DEPTH:,} keys that are ready at once, one consumer, best of ten runs; processor "
        "time.",
        (Column("micros", "µs per operation", 2),),
        rows,
        (
            Ratio("add, get and done of one key (G7)", rows[0].values["micros"], at_most=3.0, unit=" µs"),
            Ratio("the same against `asyncio.Queue`", rows[0].values["micros"] / rows[-1].values["micros"]),
        ),
    )


def _best(run: Callable[[int], Awaitable[None]], count: int) -> float:
    async def timed() -> float:
        begun = time.process_time()
        await run(count)
        return (time.process_time() - begun) / count

    return min(uvloop.run(timed()) for _ in range(10))
