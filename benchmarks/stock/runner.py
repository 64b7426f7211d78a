"""Runs a plan, cell by cell: a fresh cluster, the arm, a few jobs to warm up, the scenarios of the group.

Whatever goes wrong within a cell is its outcome: a broken arm is recorded with its error and never skipped. An
interruption ends the run between two records, and the next run goes on there.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TextIO

from benchmarks.stock.arm import Arm
from benchmarks.stock.cluster import running
from benchmarks.stock.journal import Journal, Record
from benchmarks.stock.plan import Cell, Plan, new_arm
from benchmarks.stock.processnodes import process_nodes
from benchmarks.stock.scenario import Group, Outcome, Room
from benchmarks.stock.scenarios.storm import Storm
from runtime.clock import SystemClock

__all__ = ["Progress", "run", "run_cell"]

CELL_LIMIT = 1800.0
"""Seconds after which a cell is broken, whatever it waits for."""
WARM_UP_JOBS = 3


class Progress:
    """One line on a terminal that says where the run is; elsewhere a line for each cell."""

    def __init__(self, stream: TextIO = sys.stderr, *, total: int, done: int = 0) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._total, self._done = total, done
        self._cell = ""

    def begin(self, cell: Cell) -> None:
        """Name the cell that begins."""
        self._cell = f"{cell.group}, {cell.arm}, repetition {cell.repetition + 1}"
        self.say("a fresh cluster")

    def say(self, text: str) -> None:
        """Show what goes on in the cell, on a terminal only."""
        if self._is_terminal:
            line = f"[{self._done + 1}/{self._total}] {self._elapsed()} {self._cell}: {text}"
            self._stream.write(f"\r\x1b[2K{line[:150]}")
            self._stream.flush()

    def end(self, record: Record) -> None:
        """Say how the cell ended."""
        self._done += 1
        said = "; ".join(f"{name} is broken: {error}" for name, error in record.errors.items()) or "done"
        start = "\r\x1b[2K" if self._is_terminal else ""
        self._stream.write(f"{start}[{self._done}/{self._total}] {self._elapsed()} {self._cell}: {said}\n")
        self._stream.flush()

    def _elapsed(self) -> str:
        minutes, seconds = divmod(int(self._clock.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}"


async def run(
    plan: Plan, journal: Journal, *, arm_of: Callable[[str], Arm] = new_arm, nodes: int = 16
) -> None:
    """Measure what the journal does not have yet."""
    cells, done = plan.cells(), journal.done()
    progress = Progress(total=len(cells), done=len(done))
    for cell in cells:
        if cell in done:
            continue
        progress.begin(cell)
        record = await run_cell(cell, plan.group(cell.group), arm_of=arm_of, say=progress.say, nodes=nodes)
        journal.add(record)
        progress.end(record)


async def run_cell(
    cell: Cell, group: Group, *, arm_of: Callable[[str], Arm], say: Callable[[str], None], nodes: int
) -> Record:
    """Measure one cell; its errors are in the record."""
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
                    await _measure(Room(cluster, arm, say), group, nodes, outcomes, errors, missing)
    except Exception as error:
        # Every kind of it: what an arm or its set-up can raise is not ours to know, and it belongs into the result.
        for name in missing:
            errors[name] = _sentence(error)
    return Record(cell, versions, outcomes, errors)


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
