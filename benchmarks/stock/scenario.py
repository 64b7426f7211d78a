"""What a scenario is: something that is done to one arm in one cluster, and the figures that are read off.

Scenarios of one group share a cluster and run in order, so that one may go on with what another left (the idle row
with the jobs of the storm before it). Every repetition of a group gets a fresh cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.result import Column
from benchmarks.stock.arm import Arm, BenchCluster

__all__ = ["Group", "Outcome", "Room", "Scenario"]


@dataclass(frozen=True, slots=True)
class Room:
    """What a scenario works with: one arm that is installed and runs."""

    cluster: BenchCluster
    arm: Arm
    say: Callable[[str], None] = lambda _: None
    """Show on the terminal how far it is, in a few words."""
    only_waits: Callable[[], None] = lambda: None
    """Called once nothing is done any more but wait, for minutes: cells that run side by side begin one after the other."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one repetition gave; raw figures by the keys of the columns."""

    figures: Mapping[str, float | None]
    """None: it did not happen within the time that the scenario gives; the note of that key says so."""
    notes: Mapping[str, str] = field(default_factory=dict)


class Scenario(Protocol):
    """One section of the report. A value: the same one runs for all arms and repetitions."""

    @property
    def name(self) -> str:
        """Key in the result, such as `storm-300`; also a prefix for the names of its jobs."""

    @property
    def title(self) -> str:
        """Heading in the report."""

    @property
    def conditions(self) -> str:
        """One or two sentences below the heading: what was done, and from when to when it was timed."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Figures in the order of the table."""

    async def run(self, room: Room) -> Outcome:
        """Do it once.

        Raises: Broken when the arm does not do what every arm must.
        """


@dataclass(frozen=True, slots=True)
class Group:
    """Scenarios that share a cluster."""

    name: str
    scenarios: tuple[Scenario, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Arms that are left out, with the reason, which the report gives: never because they fail."""
    repetitions: int = 0
    """At most so many, for what takes long; 0: as many as the plan says."""
    rare: tuple[str, ...] = ()
    """Arms that are slow and so measured in the first repetition only."""
    patient: tuple[str, ...] = ()
    """Arms that mostly wait there, as a rule for Kubernetes' own times: their cells run side by side with others such.

    A scenario that calls `only_waits` lets the next one in; cells in which none does run one at a time, beside those.
    """
    on_processes: bool = False
    """Whether pods are real processes, on process nodes, instead of kwok's words."""

    def has(self, arm: str, repetition: int) -> bool:
        """Say whether the arm takes part in this repetition, counted from 0."""
        if self.repetitions and repetition >= self.repetitions:
            return False
        return arm not in self.skipped and not (repetition and arm in self.rare)
