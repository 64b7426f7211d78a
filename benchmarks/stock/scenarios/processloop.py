"""A real process that exits whenever it is started: how often is it, and what does that cost the cluster?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.result import Column
from benchmarks.stock import audit
from benchmarks.stock.injections import PODS_PER_JOB
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.scenarios.processes import Line, begun, cause, read
from benchmarks.stock.story import Story
from benchmarks.stock.waiting import until

__all__ = ["ProcessLoop", "starts"]

_STEPS = 10
_CAUSE_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class ProcessLoop:
    """One process of a job exits, and so does every one that is started from then on, for so many seconds."""

    duration: float = 60.0
    name: str = "process-loop"
    title: str = "A process exits again and again"

    @property
    def conditions(self) -> str:
        """Say what is done."""
        return (
            f"A job of {PODS_PER_JOB} such processes, beside the one before. One exits with code 137, and so does every process "
            f"of the job that is started from then on, a step after its start, for {self.duration:.0f} s. Fewer is better."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return what it cost."""
        return (
            Column("processes", "processes started", 0),
            Column("pods", "pods created", 0),
            Column("requests", "requests of the controllers", 0),
        )

    async def run(self, room: Room) -> Outcome:
        """Start a job, give the order, and count until the time is up.

        Raises: Broken when the job does not take steps, or none of its processes exits.
        """
        folder = await begun(room, self.name, steps=_STEPS)
        log, story = folder / "log", Story(room)
        (folder / "loop").touch()

        async def has_failed() -> bool:
            return cause(read(log)) < float("inf")

        await until(has_failed, within=_CAUSE_PATIENCE, failing="no process exited")
        room.say(f"{self.name}: {self.duration:.0f} s")
        await asyncio.sleep(self.duration)
        story.look()
        lines, until_then = read(log), cause(read(log)) + self.duration
        created = audit.creations(story.entries, label=room.arm.pod_label).get(self.name, ())
        asked = (each for each in story.asked if each.what != "leases" and each.verb != "watch")
        return Outcome(
            {
                "processes": starts(lines, until=until_then),
                "pods": sum(at <= until_then for at in created),
                "requests": sum(each.received <= until_then for each in asked),
            }
        )


def starts(lines: Sequence[Line], *, until: float) -> int:
    """Return how many processes were started after the cause and until then."""
    since = cause(lines)
    return sum(line.event == "start" and since < line.at <= until for line in lines)
