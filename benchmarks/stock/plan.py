"""What is measured, for whom, how often and in which order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import cast

from benchmarks.stock.arm import Arm
from benchmarks.stock.scenario import Group
from benchmarks.stock.scenarios import failures
from benchmarks.stock.scenarios.idle import Idle
from benchmarks.stock.scenarios.processes import ProcessFailure
from benchmarks.stock.scenarios.processloop import ProcessLoop
from benchmarks.stock.scenarios.resume import Resume
from benchmarks.stock.scenarios.scale import Scale
from benchmarks.stock.scenarios.storm import Storm
from benchmarks.stock.scenarios.underload import UnderLoad

__all__ = ["ARMS", "FULL", "QUICK", "Cell", "Plan", "new_arm"]

ARMS: Mapping[str, str] = {
    "ours": "benchmarks.stock.arms.ours:Ours",
    "stock-tuned": "benchmarks.stock.arms.training_operator:tuned",
    "v2-tuned": "benchmarks.stock.arms.trainer_v2:tuned",
    "raw": "benchmarks.stock.arms.raw:Raw",
    "ours-clamped": "benchmarks.stock.arms.ours:Clamped",
    "stock-defaults": "benchmarks.stock.arms.training_operator:defaults",
    "v2-defaults": "benchmarks.stock.arms.trainer_v2:defaults",
}
"""All arms, in the order of the tables; each is imported only when it runs."""

_SLOW = "at 20 requests a second it takes minutes; measured with 100 jobs"


@dataclass(frozen=True, slots=True)
class Cell:
    """One group of scenarios, for one arm, once."""

    group: str
    arm: str
    repetition: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run."""

    name: str
    """Of its result."""
    groups: tuple[Group, ...]
    arms: tuple[str, ...] = tuple(ARMS)
    repetitions: int = 1

    def cells(self) -> list[Cell]:
        """Return the cells in the order in which they begin."""
        return [cell for step in self.steps() for cell in step]

    def steps(self) -> list[tuple[Cell, ...]]:
        """Return the cells in order, those together that run side by side.

        Everything is measured once before anything is measured again. Arms take turns within a group, and each
        repetition begins with another one, so that a machine that is slow for a while is slow for all, and nobody is
        always first. Cells that only wait, of neighbouring groups that have such, are one step, after the others.
        """
        found: list[tuple[Cell, ...]] = []
        for repetition in range(self.repetitions):
            patient: list[Cell] = []
            first = repetition % len(self.arms)
            turns = self.arms[first:] + self.arms[:first]
            for group in self.groups:
                if not group.patient and patient:
                    found.append(tuple(patient))
                    patient = []
                for arm in turns:
                    if group.has(arm, repetition):
                        cell = Cell(group.name, arm, repetition)
                        if arm in group.patient:
                            patient.append(cell)
                        else:
                            found.append((cell,))
            if patient:
                found.append(tuple(patient))
        return found

    def group(self, name: str) -> Group:
        """Return the group of this name."""
        return next(group for group in self.groups if group.name == name)

    def limited(self, *, arms: Sequence[str] = (), groups: Sequence[str] = (), repetitions: int = 0) -> Plan:
        """Return the part that was asked for; what is empty or 0 stays as it is.

        Raises: ValueError naming what there is not.
        """
        for wanted, known, what in (
            (arms, self.arms, "arm"),
            (groups, [g.name for g in self.groups], "group"),
        ):
            if unknown := [name for name in wanted if name not in known]:
                raise ValueError(f"no {what} named {', '.join(unknown)}: there are {', '.join(known)}")
        return replace(
            self,
            arms=tuple(arm for arm in self.arms if not arms or arm in arms),
            groups=tuple(group for group in self.groups if not groups or group.name in groups),
            repetitions=repetitions or self.repetitions,
        )

    def fingerprint(self) -> str:
        """Return what an interrupted run must agree on to be gone on with."""
        said = [self.name, self.arms, self.repetitions, [repr(group) for group in self.groups]]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]


def new_arm(name: str) -> Arm:
    """Import and make an arm."""
    module, _, factory = ARMS[name].partition(":")
    return cast("Callable[[], Arm]", getattr(import_module(module), factory))()


_CLAMPED = {"ours-clamped": _SLOW, "stock-defaults": _SLOW}
_SLOW_MANY = "it takes a quarter of an hour to make 10,000 pods; measured with 1,000"
_LIMITED = {**_CLAMPED, "v2-defaults": "measured with 100 jobs"}
_AS_100 = {"v2-tuned": "measured with 100 jobs"}
_NOBODY = {"raw": "nobody replaces a pod"}
_STARTS = {
    "raw": "there is nothing to start",
    **dict.fromkeys(_LIMITED, "as the tuned one, but for its limits"),
}
_ALIKE = {**_NOBODY, **dict.fromkeys(_LIMITED, "limits do not matter for a single pod")}
_NO_CHECKPOINTS = {
    "ours-clamped": "restores ask the API server for nothing",
    **dict.fromkeys(("stock-tuned", "v2-tuned", "raw", "stock-defaults", "v2-defaults"), "not offered"),
}
_UNTUNED = ("ours-clamped", "stock-defaults", "v2-defaults")

QUICK = Plan(
    "quick",
    (Group("storm-300", (Storm(300), Idle(300, seconds=20))), *failures.quick()),
    ("ours", "stock-tuned", "v2-tuned", "raw"),
)
"""`make bench-quick`: about ten minutes on a machine that does nothing else."""

_ONCE = ("v2-tuned", *_UNTUNED)
"""Measured in the first repetition only: each takes minutes, and none is near the others."""

_EXIT = ProcessFailure("exit", "A process exits")
_HANG = ProcessFailure("hang", "A process hangs")

FULL = Plan(
    "full",
    (
        Group("storm-100", (Storm(100),), rare=_ONCE),
        Group("storm-300", (Storm(300),), _LIMITED, rare=_ONCE),
        Group("process-hang", (_HANG,), _ALIKE, 1, patient=failures.PATIENT, on_processes=True),
        *failures.waiting(),
        Group("process-exit", (_EXIT, ProcessLoop()), _ALIKE, repetitions=1, on_processes=True),
        *failures.full(),
        Group("underload-100", (UnderLoad(100, failures=20),), {**_NOBODY, **_LIMITED}, repetitions=1),
        Group("resume", (Resume(),), _NO_CHECKPOINTS, repetitions=1),
        Group("scale-1000", (Scale(100), Scale(1000, before=100)), _STARTS, repetitions=1),
        Group("storm-1x1000", (Storm(1, pods=1000),), _LIMITED, repetitions=1),
        Group("underload-1000", (UnderLoad(1000, failures=50),), {**_NOBODY, **_LIMITED, **_AS_100}, 1),
        Group("storm-1000", (Storm(1000), Idle(1000)), _LIMITED, repetitions=1),
        Group("scale-10000", (Scale(10_000),), {**_STARTS, "v2-tuned": _SLOW_MANY}, repetitions=1),
    ),
    repetitions=5,
)
"""`make bench`."""
