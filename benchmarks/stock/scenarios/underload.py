"""Failures in the midst of a storm: does a job that runs wait for all those that only begin?"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from benchmarks.result import Column
from benchmarks.stock import audit
from benchmarks.stock.arm import Broken
from benchmarks.stock.cluster import KWOK_USER
from benchmarks.stock.injections import PODS_PER_JOB, fail, pods_by_job, started
from benchmarks.stock.recovery import Mark, Pod, created_after, ran_after, replacements
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.spread import percentile
from benchmarks.stock.story import Story, submit
from runtime.clock import SystemClock
from runtime.tasks import TaskScope

__all__ = ["UnderLoad"]

_LOOK = 0.1
_PATIENCE = 600.0
_STALL = 60.0
"""Seconds in which a storm that goes on creates a pod at least."""
_FIGURES = ("created_p50", "created_p99", "running_p50", "running_p99")


@dataclass(frozen=True, slots=True)
class UnderLoad:
    """So many failures, spread evenly over a storm of so many jobs."""

    jobs: int
    failures: int
    patience: float = _PATIENCE

    @property
    def name(self) -> str:
        """`underload-1000`."""
        return f"underload-{self.jobs}"

    @property
    def title(self) -> str:
        """Say how many."""
        return f"Failures during a storm of {self.jobs:,} jobs"

    @property
    def conditions(self) -> str:
        """Say what is timed."""
        return (
            f"{self.failures} jobs of {PODS_PER_JOB} pods run when {self.jobs:,} more are POSTed, 64 at a time. One pod of each "
            f"running job fails with exit code 137: the first as the storm begins, the others each time that another "
            f"{1 / self.failures:.0%} of the storm's pods were created, so that all arms have as much left to do. Timed "
            "from the request that was the failure until the replacement is created, and runs."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Seconds to the replacement."""
        labels = ("replacement created p50 s", "p99 s", "running p50 s", "p99 s")
        return tuple(Column(key, label, 3) for key, label in zip(_FIGURES, labels, strict=True))

    async def run(self, room: Room) -> Outcome:
        """Start jobs, begin the storm, and fail one of them after the other.

        Raises: Broken when the jobs do not start, or when the storm ends early.
        """
        room.say(f"starting {self.failures} jobs")
        victims = await started(room, [f"{self.name}-victim-{number}" for number in range(self.failures)])
        known = {pod.uid for pods in victims.values() for pod in pods}
        storm = [room.arm.job(f"{self.name}-{number}", pods=PODS_PER_JOB) for number in range(self.jobs)]
        story = Story(room)
        async with TaskScope() as scope:
            scope.spawn(submit(room, storm), name="storm")
            marks = await self._fail(room, story, {job: pods[-1] for job, pods in victims.items()})
        created = await self._replaced(room, story, marks)
        missing = len(marks) - len(created)
        if missing:
            note = f"{missing} of {len(marks)} not replaced in {self.patience / 60:.0f} min"
            return Outcome(dict.fromkeys(_FIGURES), {"created_p50": note})
        figures: dict[str, float | None] = {
            "created_p50": percentile(list(created.values()), 0.5),
            "created_p99": percentile(list(created.values()), 0.99),
            "running_p50": None,
            "running_p99": None,
        }
        fresh = await self._running(room, marks, known)
        if fresh is None:
            return Outcome(figures, {"running_p50": f"not all run after {self.patience / 60:.0f} min"})
        await asyncio.sleep(_LOOK)  # the server writes its log behind its answers
        story.look()
        running = list(ran_after(story.entries, marks, fresh, node=KWOK_USER).values())
        figures |= {"running_p50": percentile(running, 0.5), "running_p99": percentile(running, 0.99)}
        return Outcome(figures)

    async def _fail(self, room: Room, story: Story, victims: Mapping[str, Pod]) -> dict[str, Mark]:
        """Fail the victims as the storm goes on, and return the request that each failed by."""
        clock = SystemClock()
        created, moved_at = 0, clock.monotonic()
        marks: dict[str, Mark] = {}
        for number, (job, pod) in enumerate(victims.items()):
            wanted = number * self.jobs * PODS_PER_JOB // len(victims)
            while created < wanted:
                now = clock.monotonic()
                new = audit.creations(story.look(), label=room.arm.pod_label)
                if more := sum(len(times) for job, times in new.items() if job not in victims):
                    created, moved_at = created + more, now
                elif now - moved_at > _STALL:
                    raise Broken(f"the storm stopped after {created} pods, for {_STALL:.0f} s")
                if created < wanted:
                    await asyncio.sleep(_LOOK)
            room.say(f"{created} pods created, failure {number + 1} of {len(victims)}")
            marks[job] = await fail(room, pod)
        return marks

    async def _replaced(self, room: Room, story: Story, marks: Mapping[str, Mark]) -> dict[str, float]:
        """Return, by job, the seconds to each replacement that was created in time."""
        clock = SystemClock()
        deadline = clock.monotonic() + self.patience
        while True:
            story.look()
            found = created_after(story.entries, marks, label=room.arm.pod_label, node=KWOK_USER)
            if len(found) == len(marks) or clock.monotonic() > deadline:
                return found
            room.say(f"{len(found)} of {len(marks)} replaced")
            await asyncio.sleep(10 * _LOOK)

    async def _running(
        self, room: Room, jobs: Collection[str], known: Collection[str]
    ) -> dict[str, list[Pod]] | None:
        """Return the pods that are new, by job, when all jobs are whole again; None when that takes too long."""
        clock = SystemClock()
        deadline = clock.monotonic() + self.patience
        while True:
            pods = await pods_by_job(room, jobs)
            fresh = {
                job: replacements(found, size=PODS_PER_JOB, lost=(), before=known)
                for job, found in pods.items()
            }
            whole = {job: found for job, found in fresh.items() if found}
            if len(whole) == len(pods):
                return whole
            if clock.monotonic() > deadline:
                return None
            room.say(f"{len(whole)} of {len(pods)} run again")
            await asyncio.sleep(10 * _LOOK)
