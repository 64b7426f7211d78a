"""A program that fails whenever it is started: what an operator makes of it costs the whole cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.result import Column
from benchmarks.stock.arm import Broken
from benchmarks.stock.audit import Tail, by_controllers, creations, requests
from benchmarks.stock.cluster import CONTROLLERS
from benchmarks.stock.injections import fail, pods_by_job, started
from benchmarks.stock.scenario import Outcome, Room
from runtime.clock import SystemClock

__all__ = ["CrashLoop"]

_POLL = 0.05  # seconds for which each pod runs at the least


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """One pod of a job fails as soon as it runs, for so many seconds."""

    duration: float
    name: str = "crash-loop"
    title: str = "A pod fails again and again"

    @property
    def conditions(self) -> str:
        """Say what was done."""
        return (
            f"One job; for {self.duration:.0f} s, one of its pods fails with exit code 137 as soon as it runs, and so does "
            "whatever replaces it. Fewer is better: a program that cannot work is not worth a pod a moment."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return what it cost."""
        return (Column("restarts", "pods started", 0), Column("requests", "requests of the controllers", 0))

    async def run(self, room: Room) -> Outcome:
        """Start a job and fail one of its pods until the time is up.

        Raises: Broken when the job does not start.
        """
        pods = (await started(room, [self.name]))[self.name]
        healthy = {pod.uid for pod in pods[:-1]}
        failed: set[str] = set()
        clock = SystemClock()
        tail = Tail(room.cluster.audit_log)
        deadline = clock.monotonic() + self.duration
        while True:
            for pod in (await pods_by_job(room, [self.name]))[self.name]:
                if pod.is_running and pod.uid not in healthy and pod.uid not in failed:
                    with suppress(Broken):  # deleted since the list was made
                        await fail(room, pod)
                    failed.add(pod.uid)
                    room.say(f"failed {len(failed)} times")
            if clock.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL)
        entries = tail.read()
        restarts = len(creations(entries, label=room.arm.pod_label).get(self.name, ()))
        asked = sum(requests(by_controllers(entries, prefix=CONTROLLERS)).values())
        return Outcome({"restarts": restarts, "requests": asked})
