"""Runs a plan, cell by cell: a fresh cluster, the arm, a few jobs to warm up, the scenarios of the group.

Whatever goes wrong within a cell is its outcome: a broken arm is recorded with its error and never skipped. An
interruption ends the run between two records, and the next run goes on there. Cells of arms that wait for minutes run
side by side.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.stock.arm import Arm
from benchmarks.stock.cluster import running
from benchmarks.stock.journal import Journal, Record
from benchmarks.stock.plan import Cell, Plan, new_arm
from benchmarks.stock.processnodes import process_nodes
from benchmarks.stock.progress import Progress
from benchmarks.stock.scenario import Group, Outcome, Room
from benchmarks.stock.scenarios.storm import Storm
from benchmarks.stock.sidebyside import side_by_side
from runtime.clock import SystemClock

__all__ = ["run", "run_cell"]

CELL_LIMIT = 1800.0
"""Seconds after which a cell is broken, whatever it waits for."""
WARM_UP_JOBS = 3
SIDE_BY_SIDE = 6
"""Clusters at once, at most: each has an API server, and a cluster that waits costs up to 0.1 processors."""


async def run(
    plan: Plan, journal: Journal, *, arm_of: Callable[[str], Arm] = new_arm, nodes: int = 16
) -> None:
    """Measure what the journal does not have yet."""
    done = journal.done()
    progress = Progress(total=len(plan.cells()), done=len(done))

    async def measure(cell: Cell, only_waits: Callable[[], None]) -> None:
        say, group = progress.begin(cell), plan.group(cell.group)
        record = await run_cell(cell, group, arm_of=arm_of, say=say, only_waits=only_waits, nodes=nodes)
        journal.add(record)
        progress.end(record)

    for step in plan.steps():
        works = [partial(measure, cell) for cell in step if cell not in done]
        await side_by_side(works, at_most=SIDE_BY_SIDE)


async def run_cell(
    cell: Cell,
    group: Group,
    *,
    arm_of: Callable[[str], Arm],
    say: Callable[[str], None],
    nodes: int,
    only_waits: Callable[[], None] = lambda: None,
) -> Record:
    """Measure one cell; its errors are in the record."""
    clock = SystemClock()
    began, since = clock.utcnow().timestamp(), clock.monotonic()
    outcomes: dict[str, Outcome] = {}
    errors: dict[str, str] = {}
    versions: dict[str, str] = {}
    missing = [scenario.name for scenario in group.scenarios]
    try:
        async with asyncio.timeout(CELL_LIMIT):
            arm = arm_of(cell.arm)
            versions |= arm.versions
            with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
                async with AsyncExitStack() as stack:
                    nodes = 0 if group.on_processes else nodes
                    cluster = await stack.enter_async_context(running(Path(folder), nodes=nodes))
                    if group.on_processes:
                        await stack.enter_async_context(process_nodes(cluster))
                    await _measure(
                        Room(cluster, arm, say, only_waits), group, nodes, outcomes, errors, missing
                    )
    except Exception as error:
        # Every kind of it: what an arm or its set-up can raise is not ours to know, and it belongs into the result.
        for name in missing:
            errors[name] = _sentence(error)
    return Record(cell, versions, outcomes, errors, began, clock.monotonic() - since)


async def _measure(
    room: Room,
    group: Group,
    nodes: int,
    outcomes: dict[str, Outcome],
    errors: dict[str, str],
    missing: list[str],
) -> None:
    try:
        room.say("install")
        await room.arm.install(room.cluster)
        room.say("start")
        await room.arm.start(room.cluster)
        if not group.on_processes:  # there, what a job runs decides what becomes of it
            await Storm(WARM_UP_JOBS, pods=2, runs=nodes > 0).run(room)
        for scenario in group.scenarios:
            try:
                outcomes[scenario.name] = await scenario.run(room)
            except Exception as error:  # as above; the scenarios after it have their own chance
                errors[scenario.name] = _sentence(error)
            missing.remove(scenario.name)
    finally:
        await room.arm.stop()


def _sentence(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not end within {CELL_LIMIT / 60:.0f} min"
    if isinstance(error, BaseExceptionGroup):
        return _sentence(error.exceptions[0])
    return " ".join((str(error) or type(error).__name__).split())[:400]
