"""A process of a training fails: on process nodes, with real processes, until the training takes its steps again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import Column
from benchmarks.stock import audit
from benchmarks.stock.arm import Json
from benchmarks.stock.audit import Entry
from benchmarks.stock.injections import PODS_PER_JOB
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.story import Story, submit
from benchmarks.stock.waiting import until
from runtime.clock import SystemClock

__all__ = [
    "Line",
    "ProcessFailure",
    "Recovery",
    "begun",
    "cause",
    "read",
    "recovery",
    "trained",
    "with_command",
]

_PROGRAM = Path(__file__).resolve().parents[1] / "member.py"
_STEPS = 60
"""Steps of each process before the failure: what a usual step takes has to be known by then."""
_START_PATIENCE = 180.0
_PATIENCE = 600.0
_LOOK = 0.1
_RARE_LOOK = 1.0
"""Where it takes minutes. The processes and the audit log are the clock, so it costs no accuracy."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a process of the training told."""

    at: float
    event: str
    process: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a training went on after a cause; seconds since then."""

    started: float
    """When the last new process started."""
    step: float
    """When the last new process had taken its first step, so that all took steps again."""
    processes: int
    """How many were started."""


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """One process of a job fails, of its own accord."""

    order: str
    """What the program is told: `exit` or `hang`."""
    title: str
    patience: float = _PATIENCE

    @property
    def name(self) -> str:
        """`process-exit`."""
        return f"process-{self.order}"

    @property
    def conditions(self) -> str:
        """Say what is done and timed."""
        done = "exits with code 137" if self.order == "exit" else "hangs, without using the processor"
        return (
            f"A job of {PODS_PER_JOB} pods on two process nodes, each a process that takes a step every 0.2 s; one of them {done}. "
            "Timed by the processes themselves, until as many as before take steps again; a pod that is created for it by the "
            "audit log. Others that were started anew count as innocent."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Seconds, and who else had to start again."""
        return (
            Column("created", "replacement created s", 2),
            Column("started", "process started s", 2),
            Column("step", "next step s", 2),
            Column("innocent", "innocent restarts", 0),
        )

    async def run(self, room: Room) -> Outcome:
        """Start a job, give the order, and wait for the training to go on.

        Raises: Broken when the job does not take steps.
        """
        folder = await begun(room, self.name, steps=_STEPS)
        log, story, clock = folder / "log", Story(room), SystemClock()
        (folder / self.order).touch()
        room.only_waits()
        deadline = clock.monotonic() + self.patience
        while (found := recovery(read(log), size=PODS_PER_JOB)) is None:
            if clock.monotonic() > deadline:
                note = f"not recovered in {self.patience / 60:g} min"
                return Outcome(dict.fromkeys(column.key for column in self.columns), {"created": note})
            room.say(f"{self.name}: {self.order} {self.patience - deadline + clock.monotonic():.0f} s ago")
            await asyncio.sleep(_LOOK if self.order == "exit" else _RARE_LOOK)
        story.look()
        created = _created(story.entries, label=room.arm.pod_label, since=cause(read(log)))
        figures: dict[str, float | None] = {
            "started": found.started,
            "step": found.step,
            "innocent": found.processes - 1,
        }
        if created is None:
            return Outcome(figures, {"created": "in place"})
        return Outcome({**figures, "created": created})


async def begun(room: Room, name: str, *, steps: int) -> Path:
    """Start a job of this name, and return its folder when each of its processes has taken so many steps.

    Raises: Broken when they do not.
    """
    folder = room.cluster.folder / name
    folder.mkdir()
    job = with_command(room.arm.job(name, pods=PODS_PER_JOB), ["python3", str(_PROGRAM), str(folder)])
    await submit(room, [job])

    async def trains() -> bool:
        lines = read(folder / "log")
        room.say(f"{name}: {len(lines)} steps")
        return trained(lines, steps=steps) >= PODS_PER_JOB

    failing = f"{PODS_PER_JOB} processes did not take {steps} steps"
    await until(trains, within=_START_PATIENCE, failing=failing)
    return folder


def with_command(job: Json, command: Sequence[str]) -> dict[str, Any]:
    """Return a job of any kind whose containers run this command instead."""

    def changed(found: Any) -> Any:
        if isinstance(found, dict):
            return {
                key: list(command) if key == "command" else changed(value) for key, value in found.items()
            }
        return [changed(value) for value in found] if isinstance(found, list) else found

    return {key: changed(value) for key, value in job.items()}


def read(log: Path) -> list[Line]:
    """Return what all processes told so far; a line that is half written is left for later."""
    whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
    words = (line.split() for line in whole.splitlines())
    return [Line(float(at), event, process) for at, event, process in words]


def recovery(lines: Sequence[Line], *, size: int) -> Recovery | None:
    """Return how the training went on after its cause, None while fewer than before take steps."""
    since = cause(lines)
    starts = [line for line in lines if line.event == "start" and line.at > since]
    if not starts:
        return None
    latest = max(line.at for line in starts)
    if len({line.process for line in lines if line.event == "step" and line.at > latest}) < size:
        return None
    firsts: dict[str, float] = {}
    for line in lines:
        if line.event == "step" and line.at > since:
            firsts.setdefault(line.process, line.at)
    new = {line.process for line in starts}
    step = max(at for process, at in firsts.items() if process in new)
    return Recovery(latest - since, step - since, len(starts))


def cause(lines: Sequence[Line]) -> float:
    """Return when the first process failed, infinity before that."""
    return next((line.at for line in lines if line.event == "cause"), float("inf"))


def trained(lines: Sequence[Line], *, steps: int) -> int:
    """Return how many processes took so many steps since the last one started."""
    latest = max((line.at for line in lines if line.event == "start"), default=0.0)
    taken = Counter(line.process for line in lines if line.event == "step" and line.at > latest)
    return sum(count >= steps for count in taken.values())


def _created(entries: Sequence[Entry], *, label: str, since: float) -> float | None:
    """Return when the first pod was created after the cause, in seconds since then."""
    times = (at for found in audit.creations(entries, label=label).values() for at in found)
    return min((at - since for at in times if at >= since), default=None)
