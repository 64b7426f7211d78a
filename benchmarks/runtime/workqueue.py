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
_SIZES = {Scale.QUICK: 50_000, Scale.FULL: 500_000}


async def _ours(count: int) -> None:
    queue: WorkQueue[int] = WorkQueue("bench", clock=SystemClock(), metrics=Metrics())
    for key in range(count):
        queue.add(key)
    for _ in range(count):
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
    for key in range(count):
        queue.put_nowait(key)
    for _ in range(count):
        await queue.get()
        queue.task_done()


def measure(scale: Scale) -> Result:
    """Time each pattern, the best of three runs."""
    count = _SIZES[scale]
    subjects: dict[str, Callable[[int], Awaitable[None]]] = {
        _OURS: _ours,
        "ours: add of a key that is waiting already": _repeated,
        "ours: add with a delay": _delayed,
        "`asyncio.Queue`: put, get, task_done (no keys, no priorities)": _asyncio_queue,
    }
    rows = tuple(Row(subject, {"micros": _best(run, count) * 1e6}) for subject, run in subjects.items())
    return Result(
        "workqueue",
        "Work queue",
        f"{count:,} keys, one consumer, best of three runs; processor time.",
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

    return min(uvloop.run(timed()) for _ in range(3))
