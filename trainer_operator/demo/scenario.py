"""The sequence of disturbances: wait until training is steady, act, wait until it is whole again, measure.

What is done here is done from outside, as it would happen: signals to processes, kubectl as a user has it, and the
power switch of a node. Nothing asks the operator for anything.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from runtime.clock import Clock
from trainer_operator.demo import processes
from trainer_operator.demo.disturbances import PLAN, Disturbance, Incident, Kind
from trainer_operator.demo.measures import Row, measure
from trainer_operator.demo.operators import Operators
from trainer_operator.demo.steady import has_checkpoint, has_ended, recovered, trains
from trainer_operator.demo.timeline import LeadersSeen, PodSeen, Timeline
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault

STEADY_PATIENCE = 60.0
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Act:
    """What was done, and to whom."""

    victims: tuple[str, ...]
    target: str
    killed_operator: str = ""


class Scenario:
    """Carries the disturbances out, one after the other."""

    def __init__(
        self,
        *,
        timeline: Timeline,
        clock: Clock,
        origin: float,
        cluster: Cluster,
        operators: Operators,
        trainer: str,
        announce: Callable[[str], None],
        plan: Sequence[Disturbance] = PLAN,
    ) -> None:
        self._timeline = timeline
        self._clock = clock
        self._origin = origin
        self._cluster = cluster
        self._operators = operators
        self._trainer = trainer
        self._announce = announce
        self._plan = plan
        self.rows: list[Row] = []

    async def run(self) -> None:
        """Carry out the plan; ends early when training does, or does not become steady."""
        since = self._now
        for disturbance in self._plan:
            self._announce("training; the next disturbance comes when it is steady")
            if not await self._until(partial(self._is_steady, disturbance, since), STEADY_PATIENCE):
                return
            incident = await self._disturb(disturbance)
            self.rows.append(measure(self._timeline, incident))
            since = self._now

    def _is_steady(self, disturbance: Disturbance, since: float) -> bool:
        return trains(self._timeline, since=since, steps=disturbance.steady_steps) and (
            not disturbance.after_checkpoint or has_checkpoint(self._timeline)
        )

    async def _disturb(self, disturbance: Disturbance) -> Incident:
        self._announce(disturbance.title)
        began = self._now
        act = await self._act(disturbance)
        self._announce(f"{disturbance.title}: {act.target}")
        survived = await self._until(
            lambda: recovered(
                self._timeline, disturbance, began=began, victims=act.victims, killed=act.killed_operator
            ),
            disturbance.patience,
        )
        settled = self._now
        await self._clean_up(disturbance, act)
        return Incident(disturbance, began, settled, act.victims, act.target, survived)

    async def _act(self, disturbance: Disturbance) -> Act:
        match disturbance.kind:
            case Kind.KILL_WORKER:
                return self._kill_process(self._worker())
            case Kind.KILL_SERVER:
                return self._kill_process("ps-0")
            case Kind.DELETE_POD:
                return await self._delete_pod(self._worker(last=True))
            case Kind.KILL_NODE:
                return await self._kill_node()
            case Kind.SCALE_UP | Kind.SCALE_DOWN:
                before = sum(member.startswith("worker-") for member in self._timeline.pods())
                await self._kubectl("scale", "trainer", self._trainer, f"--replicas={disturbance.workers}")
                return Act((), f"{before} → {disturbance.workers} workers")
            case Kind.KILL_LEADER:
                return self._kill_leader()

    async def _clean_up(self, disturbance: Disturbance, act: Act) -> None:
        match disturbance.kind:
            case Kind.KILL_NODE:
                await asyncio.to_thread(self._cluster.start_node, act.target)
            case Kind.KILL_LEADER:
                self._operators.start(act.killed_operator)
            case _:
                pass

    def _kill_process(self, member: str) -> Act:
        process = self._timeline.processes().get(member)
        if process is None or not processes.kill(process, signal.SIGKILL):
            raise ClusterFault(f"{member} has no training process to kill")
        return Act((member,), f"{member}, pid {process[0]}")

    async def _delete_pod(self, member: str) -> Act:
        pod = self._pod(member)
        await self._kubectl("delete", "pod", pod.name, "--wait=false")
        return Act((member,), pod.name)

    async def _kill_node(self) -> Act:
        node = choose_node(self._timeline.pods())
        if node is None:
            raise ClusterFault("no node runs a worker")
        victims = tuple(sorted(member for member, pod in self._timeline.pods().items() if pod.node == node))
        await asyncio.to_thread(self._cluster.kill_node, node)
        return Act(victims, node)

    def _kill_leader(self) -> Act:
        leaders = self._timeline.last(LeadersSeen)
        if leaders is None or len(leaders.leaders) != 1:
            raise ClusterFault("it is not known which operator leads")
        name = leaders.leaders[0]
        self._operators.kill(name)
        return Act((), name, killed_operator=name)

    def _worker(self, *, last: bool = False) -> str:
        workers = sorted(member for member in self._timeline.processes() if member.startswith("worker-"))
        if not workers:
            raise ClusterFault("there is no worker to disturb")
        return workers[-1] if last else workers[len(workers) // 2]

    def _pod(self, member: str) -> PodSeen:
        pod = self._timeline.pods().get(member)
        if pod is None:
            raise ClusterFault(f"{member} has no pod")
        return pod

    async def _kubectl(self, *arguments: str) -> str:
        return await asyncio.to_thread(self._cluster.kubectl, *arguments)

    async def _until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait for a condition; false when training ends or the time is over before."""
        deadline = self._clock.monotonic() + timeout
        while not condition():
            if has_ended(self._timeline) or self._clock.monotonic() > deadline:
                return condition()
            await self._clock.sleep(_POLL)
        return True

    @property
    def _now(self) -> float:
        return self._clock.monotonic() - self._origin


def choose_node(pods: dict[str, PodSeen]) -> str | None:
    """Choose a node to lose: with workers, if possible without a parameter server, and with few members."""
    members: dict[str, list[str]] = {}
    for member, pod in pods.items():
        if pod.node:
            members.setdefault(pod.node, []).append(member)

    def cost(node: str) -> tuple[bool, int, str]:
        return (any(name.startswith("ps-") for name in members[node]), len(members[node]), node)

    with_workers = [
        node for node, names in members.items() if any(name.startswith("worker-") for name in names)
    ]
    return min(with_workers, key=cost, default=None)
