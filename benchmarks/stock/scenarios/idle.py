"""Nothing to do: what do the jobs cost that the scenarios before have left running?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from benchmarks.result import Column
from benchmarks.stock import audit
from benchmarks.stock.audit import READS
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.story import Story
from benchmarks.stock.usage import usage

__all__ = ["Idle"]

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Idle:
    """So many seconds in which nobody changes anything."""

    jobs: int
    """How many run; they come from the storm before."""
    seconds: float = 120.0

    @property
    def name(self) -> str:
        """`idle-300`."""
        return f"idle-{self.jobs}"

    @property
    def title(self) -> str:
        """Say how many jobs run."""
        return f"Idle: {self.jobs:,} running jobs of 4 pods, {self.seconds:.0f} seconds"

    @property
    def conditions(self) -> str:
        """Say what is counted."""
        return (
            "After the storm, once the arm had written nothing for 3 s. Requests are the arm's; watches, which last for "
            "minutes, are not counted, nor are renewals of its leader's lease."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Requests and what the processes use."""
        return (
            Column("writes", "API writes", 0),
            Column("requests", "API requests", 0),
            Column("cpu_percent", "CPU %", 2),
            Column("memory", "memory MiB", 0),
        )

    async def run(self, room: Room) -> Outcome:
        """Wait for calm, then count."""
        is_calm = await Story(room).calm()
        story = Story(room)
        before = usage(room.arm.pids())
        room.say(f"{self.name}: {self.seconds:.0f} s of nothing")
        await asyncio.sleep(self.seconds)
        after = usage(room.arm.pids())
        story.look()
        asked = [each for each in story.asked if each.what != "leases" and each.verb != "watch"]
        writes = [each for each in asked if each.verb not in READS]
        notes = {} if is_calm else {"writes": "it was still writing 30 s after the last pod ran"}
        if asked:
            notes["requests"] = ", ".join(
                f"{count} {kind}" for kind, count in audit.requests(asked).most_common(8)
            )
        return Outcome(
            {
                "writes": len(writes),
                "requests": len(asked),
                "cpu_percent": (after.cpu - before.cpu) / self.seconds * 100,
                "memory": after.memory / _MIB,
            },
            notes,
        )
