"""Time until a job is whole again, by kind of failure: one number for all kinds would say nothing.

A job is whole when as many pods as it has run elsewhere than what failed. Operators that restart more than what failed
are timed until the last pod they restarted runs. Jobs fail one after the other, so that none waits for another's
recovery, except where many pods fail at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.result import Column
from benchmarks.stock.audit import Tail
from benchmarks.stock.cluster import KWOK_USER
from benchmarks.stock.injections import (
    PODS_PER_JOB,
    Injection,
    delete,
    evict,
    fail,
    kill_operator,
    lose_node,
    pods_by_job,
    started,
)
from benchmarks.stock.recovery import Pod, created_after, replacements, seconds, victims
from benchmarks.stock.scenario import Group, Outcome, Room
from benchmarks.stock.scenarios.crashloop import CrashLoop
from benchmarks.stock.spread import percentile
from benchmarks.stock.waiting import pause_after
from runtime.tasks import run_all

__all__ = ["BACKS_OFF", "PATIENT", "Failure", "full", "quick", "waiting"]

_SERVER = "-ps-"
"""What names of parameter servers have in them, whoever makes them."""
PATIENT = ("stock-tuned", "v2-tuned")
"""Arms that leave a node that is lost, and a process that hangs, to Kubernetes."""
BACKS_OFF = ("v2-tuned",)
"""Arms whose pods Kubernetes replaces after ten seconds or more."""
_POLL = 0.05  # seconds; the audit log is the clock, so a slow look costs no accuracy
_RARE_POLL = 1.0  # where it takes minutes: looks cost those a part of the processor that run side by side
_PATIENCE = 60.0
_NODE_PATIENCE = 600.0
"""Kubernetes' defaults add up to 380 s: unreachable after 50 s, tolerated for 300 s, 30 s of grace."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One kind of failure."""

    name: str
    title: str
    conditions: str
    inject: Injection = field(repr=False)  # a plan is recognized by what it prints
    jobs: int
    share: float = 0.0
    """Part of all pods that fail at once; 0: the last pod of each job, one job after the other."""
    failing: int = 0
    """In how many of the jobs a pod fails, where not in each."""
    patience: float = _PATIENCE
    server: bool = False
    """Whether it is the parameter server of each job that fails."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the figures, in seconds and pods."""
        return (
            Column("created", "replacement created s, median", 3),
            Column("created_p99", "p99", 3),
            Column("median", "seconds until whole, median", 3),
            Column("slowest", "slowest", 3),
            Column("started", "pods started per failed pod", 2),
        )

    async def run(self, room: Room) -> Outcome:
        """Start the jobs, then let pods fail.

        Raises: Broken when the jobs do not start.
        """
        names = [f"{self.name}-{number}" for number in range(self.jobs)]
        room.say(f"starting {self.jobs} jobs")
        pods = await started(room, names, with_server=self.server)
        if self.share:
            chosen = victims([pod for name in names for pod in pods[name]], share=self.share)
        elif self.server:
            chosen = [pod for name in names for pod in pods[name] if _SERVER in pod.name]
        else:
            chosen = [pods[name][-1] for name in names[: self.failing or None]]
        rounds = [chosen] if self.share else [[pod] for pod in chosen]
        created: list[float] = []
        took: list[float] = []
        fresh = 0
        for number, failing in enumerate(rounds, start=1):
            room.say(f"failure {number} of {len(rounds)}")
            found = await self._fail(room, failing)
            if found is None:
                note = f"not recovered in {_span(self.patience)}, failure {number} of {len(rounds)}"
                return Outcome(dict.fromkeys(column.key for column in self.columns), {"created": note})
            created += found[0]
            took += found[1]
            fresh += found[2]
        figures = {"median": percentile(took, 0.5), "slowest": max(took), "started": fresh / len(chosen)}
        if created:
            figures |= {"created": percentile(created, 0.5), "created_p99": percentile(created, 0.99)}
        return Outcome(figures)

    async def _fail(self, room: Room, failing: Sequence[Pod]) -> tuple[list[float], list[float], int] | None:
        """Return the seconds to each first replacement, to each whole job, and how many pods were started.

        None when it took too long.
        """
        tail = Tail(room.cluster.audit_log)
        before = await pods_by_job(room, {pod.job for pod in failing})
        known = {pod.uid for found in before.values() for pod in found}
        nodes = {pod.node for pod in failing} if self.inject is lose_node else set()
        lost = {pod.uid for found in before.values() for pod in found if pod.node in nodes}
        lost |= {pod.uid for pod in failing}
        deadline = time.monotonic() + self.patience
        marks = await run_all(*(self.inject(room, pod) for pod in failing))
        is_long = self.patience > _PATIENCE
        if is_long:
            room.only_waits()
        while True:
            looked = time.monotonic()
            after = await pods_by_job(room, before)
            fresh = {
                job: replacements(found, size=PODS_PER_JOB, lost=lost, before=known)
                for job, found in after.items()
            }
            whole = {job: found for job, found in fresh.items() if found is not None}
            if len(whole) == len(before):
                break
            if (now := time.monotonic()) > deadline:
                return None
            await asyncio.sleep(pause_after(now - looked, at_least=_RARE_POLL if is_long else _POLL))
        await asyncio.sleep(_POLL)  # the server writes its log behind its answers
        entries = tail.read()
        took = [
            seconds(entries, mark, whole[pod.job], node=KWOK_USER)
            for pod, mark in zip(failing, marks, strict=True)
        ]
        by_job = {pod.job: mark for pod, mark in zip(failing, marks, strict=True)}
        created = created_after(entries, by_job, label=room.arm.pod_label, node=KWOK_USER)
        return list(created.values()), took, sum(len(found) for found in whole.values())


def _span(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


_SKIPPED: Mapping[str, str] = {"raw": "nobody replaces a pod"}
_ALIKE = {
    **_SKIPPED,
    **dict.fromkeys(
        ("ours-clamped", "stock-defaults", "v2-defaults"),
        "limits do not matter for a single pod",
    ),
}
_SLOW = {
    **_SKIPPED,
    **dict.fromkeys(
        ("ours-clamped", "stock-defaults", "v2-defaults"),
        "limits make it minutes to start the jobs; measured by a storm",
    ),
}
_SLOW_JOBS = "ten seconds for each of 100 failures; measured with 5"
_TIMED = "Timed from the request that was the failure until the replacement runs."


def quick() -> tuple[Group, ...]:
    """Return three kinds, twice each."""
    return (Group("failures", _singles(2), _SKIPPED),)


def waiting() -> tuple[Group, ...]:
    """Return the kinds that Kubernetes' own times hold up for minutes, the slowest first; each has a cluster of its own."""
    lost = Failure(
        "node-lost",
        "A node is lost",
        "A node's heartbeats end, and pods on it cannot end either. Kubernetes' own times are as shipped: 50 s until the "
        f"node counts as unreachable, 300 s of toleration. {_TIMED}",
        lose_node,
        1,
        patience=_NODE_PATIENCE,
    )
    killed = Failure(
        "operator-killed",
        "The operator is killed",
        "The operator gets SIGKILL, a pod fails with exit code 137, and the operator is started again at once. "
        f"{_TIMED}",
        kill_operator,
        3,
    )
    return (
        Group("node-lost", (lost,), _ALIKE, repetitions=1, patient=PATIENT),
        Group("failures", (*_singles(5), CrashLoop(60)), _ALIKE, repetitions=1, patient=BACKS_OFF),
        Group("operator-killed", (killed,), _ALIKE, repetitions=1, patient=BACKS_OFF),
    )


def full() -> tuple[Group, ...]:
    """Return the other kinds: one that fills the cluster, and one that not all offer."""
    jobs = 250
    mass = Failure(
        "pods-failed",
        "A tenth of all pods fail at once",
        f"{jobs} jobs of {PODS_PER_JOB} pods; {jobs * PODS_PER_JOB // 10} pods fail at once. {_TIMED}",
        fail,
        jobs,
        share=0.1,
    )
    crowded = Failure(
        "pod-failed-1000",
        "A pod fails among 1,000",
        f"{jobs} jobs of {PODS_PER_JOB} pods; in 100 of them, one after the other, a pod fails with exit code 137. {_TIMED}",
        fail,
        jobs,
        failing=100,
    )
    server = Failure(
        "server-lost",
        "A parameter server fails",
        f"3 jobs of 3 workers and a parameter server, whose pod fails with exit code 137, in one after the other. {_TIMED}",
        fail,
        3,
        server=True,
    )
    return (
        Group("pods-failed", (mass,), _SLOW, repetitions=1),
        Group("pod-failed-1000", (crowded,), {**_SKIPPED, **_ALIKE, "v2-tuned": _SLOW_JOBS}, repetitions=1),
        Group("server-lost", (server,), {**_ALIKE, "v2-tuned": "not offered"}, repetitions=1),
    )


def _singles(rounds: int) -> tuple[Failure, ...]:
    return (
        Failure(
            "pod-failed",
            "A pod fails",
            f"{rounds} jobs of {PODS_PER_JOB} pods; in one after the other, a pod fails with exit code 137. {_TIMED}",
            fail,
            rounds,
        ),
        Failure(
            "pod-deleted", "A pod is deleted", f"The same, the pod being deleted. {_TIMED}", delete, rounds
        ),
        Failure(
            "pod-evicted",
            "A pod is evicted",
            f"The same, the pod being evicted through the API. {_TIMED}",
            evict,
            rounds,
        ),
    )
