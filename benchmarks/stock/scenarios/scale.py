"""Many pods that run: what does it cost to be started among them, and to hold them?

The same scenario at several sizes tells how each cost grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp

from benchmarks.result import Column
from benchmarks.stock.arm import Broken
from benchmarks.stock.scenario import Outcome, Room
from benchmarks.stock.spread import percentile
from benchmarks.stock.story import Story, submit
from benchmarks.stock.usage import usage
from runtime.clock import SystemClock
from runtime.tasks import TaskScope

__all__ = ["Scale", "lag"]

_MIB = 2**20
_PODS_PER_JOB = 20
_LOOK = 0.25
_PATIENCE = 300.0
_LAG_LOOK = 0.1
"""Half of the time between two measurements of the lag, or less."""
_COORDINATION = "apis/coordination.k8s.io/v1"
_CLUSTERS_OWN = frozenset({"kube-system", "kube-node-lease"})
_LAG = "runtime_event_loop_lag_seconds"


@dataclass(frozen=True, slots=True)
class Scale:
    """An operator is started again among so many running pods."""

    pods: int
    before: int = 0
    """How many of them run already, of a smaller one before."""
    restarts: int = 3
    """It costs little beside the pods, and a machine that is slow for a moment would decide a single one."""

    @property
    def name(self) -> str:
        """`scale-10000`."""
        return f"scale-{self.pods}"

    @property
    def title(self) -> str:
        """Say how many."""
        return f"Started again among {self.pods:,} pods"

    @property
    def conditions(self) -> str:
        """Say what is timed."""
        return (
            f"{self.pods // _PODS_PER_JOB:,} jobs of {_PODS_PER_JOB} pods run. {self.restarts} times the operator is stopped, leases that it "
            "held are deleted, and it is started again, while a new job of one pod is POSTed until it is taken. Timed from the start "
            "until it says that it is ready, and until the new job's pod is created. Requests, processor seconds and memory are those "
            "until it has written nothing for 3 s. Lag is the latest that its event loop ran, where an operator tells it. Medians."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Seconds and costs."""
        return (
            Column("ready", "ready s", 2),
            Column("works", "new job served s", 2),
            Column("requests", "requests", 0),
            Column("cpu", "CPU s", 2),
            Column("peak_memory", "peak MiB", 0),
            Column("memory", "memory MiB", 0),
            Column("lag", "loop lag s", 3),
        )

    async def run(self, room: Room) -> Outcome:
        """Bring the pods to life, then start the operator again.

        Raises: Broken when the pods do not run, or when the new job gets none.
        """
        arm, story = room.arm, Story(room)
        new = self.pods - self.before
        count = new // _PODS_PER_JOB
        await submit(room, [arm.job(f"{self.name}-{number}", pods=_PODS_PER_JOB) for number in range(count)])
        await story.follow(pods=new, runs=True, patience=_PATIENCE, told=self.name)
        was_calm = await story.calm()
        found = [await self._restart(room, f"{self.name}-late-{number}") for number in range(self.restarts)]
        notes = (
            {}
            if was_calm and all(is_calm for _, is_calm in found)
            else {"requests": "it still wrote after 30 s, before or after its start"}
        )
        rounds = [figures for figures, _ in found]
        if not all("lag" in figures for figures in rounds):
            notes["lag"] = "not told"
        shared = [key for key in rounds[0] if all(key in figures for figures in rounds)]
        return Outcome({key: percentile([figures[key] for figures in rounds], 0.5) for key in shared}, notes)

    async def _restart(self, room: Room, late: str) -> tuple[dict[str, float], bool]:
        """Start the operator again; return its figures, and whether it became calm.

        Raises: Broken when the late job gets no pod.
        """
        arm = room.arm
        await arm.stop()
        await _release_leases(room)
        story, clock = Story(room), SystemClock()
        room.say(f"{self.name}: the operator starts")
        began = clock.utcnow().timestamp()
        seen: list[float] = []
        async with TaskScope() as scope:
            scope.spawn(_look_at_lag(arm.metrics_url, seen), name="lag")
            scope.spawn(_submit_late(room, late), name="late job")
            await arm.start(room.cluster)
            ready = clock.utcnow().timestamp() - began
            created = await _served(story, late)
            is_calm = await story.calm()
            scope.cancel()
        used = usage(arm.pids())
        figures = {
            "ready": ready,
            "works": created - began,
            "requests": sum(each.verb != "watch" for each in story.asked),
            "cpu": used.cpu,
            "peak_memory": used.peak_memory / _MIB,
            "memory": used.memory / _MIB,
            **({"lag": max(seen)} if seen else {}),
        }
        return figures, is_calm


async def _submit_late(room: Room, name: str) -> None:
    """Submit one more job as soon as it is taken: an operator's webhook may not answer yet."""
    while True:
        try:
            await submit(room, [room.arm.job(name, pods=1)])
        except Broken:
            await asyncio.sleep(_LOOK)
        else:
            return


async def _served(story: Story, job: str) -> float:
    """Return when the late job's pod was created."""
    clock = SystemClock()
    deadline = clock.monotonic() + _PATIENCE
    while not (times := story.created().get(job)):
        if clock.monotonic() > deadline:
            raise Broken(f"a new job got no pod within {_PATIENCE:.0f} s of the operator's start")
        await asyncio.sleep(_LOOK)
        story.look()
    return times[0]


def lag(page: str) -> float | None:
    """Return what a page of metrics says of the event loop's lag, None where it says nothing."""
    lines = (line.split() for line in page.splitlines())
    return next((float(words[1]) for words in lines if len(words) == 2 and words[0] == _LAG), None)


async def _look_at_lag(url: Callable[[], str], seen: list[float]) -> None:
    """Collect the lag that an operator tells, faster than it measures it, until cancelled."""
    async with aiohttp.ClientSession() as session:
        while True:
            with suppress(aiohttp.ClientError):  # it does not serve yet
                if address := url():
                    async with session.get(address) as answer:
                        if (found := lag(await answer.text())) is not None:
                            seen.append(found)
            await asyncio.sleep(_LAG_LOOK)


async def _release_leases(room: Room) -> None:
    """Delete the leases that an operator leaves behind, so that none waits for its own to run out."""
    for lease in (await room.cluster.request("GET", f"{_COORDINATION}/leases"))["items"]:
        namespace, name = lease["metadata"]["namespace"], lease["metadata"]["name"]
        if namespace not in _CLUSTERS_OWN:
            await room.cluster.request("DELETE", f"{_COORDINATION}/namespaces/{namespace}/leases/{name}")
