"""One moment of the demo as people see it: pure, from the timeline. The screen and the plain lines both show this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_operator.demo.measures import Row
from trainer_operator.demo.timeline import (
    EventSeen,
    PodSeen,
    ProcessSeen,
    StatusSeen,
    StepSeen,
    Timeline,
)
from trainer_operator.demo.verify import Check, Reference

QUIET = 1.5
"""Seconds without a step after which a member counts as waiting."""
PULSE_SECONDS = 1.0
"""Time that one character of the pulse stands for."""


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step of the set-up; without `seconds` it is under way."""

    title: str
    began: float
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A member as the table shows it."""

    name: str
    pod: str
    node: str
    state: str
    step: int
    pid: int | None
    starts: int
    """Training processes that it has had."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint as the table shows it."""

    step: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Everything there is to see at one moment."""

    elapsed: float = 0.0
    setup: tuple[SetupStep, ...] = ()
    activity: str = ""
    trainer: str = ""
    epochs: int = 0
    total_steps: int | None = None
    status: StatusSeen | None = None
    step: int = 0
    pulse: tuple[int, ...] = ()
    """Steps in each of the last seconds, the oldest first."""
    members: tuple[MemberRow, ...] = ()
    checkpoints: tuple[CheckpointRow, ...] = ()
    events: tuple[EventSeen, ...] = ()
    nodes: tuple[tuple[str, bool], ...] = ()
    leader: str = ""
    rows: tuple[Row, ...] = ()
    planned: int = 0
    checks: tuple[Check, ...] = ()
    reference: Reference | None = None


def member_rows(timeline: Timeline, *, now: float) -> tuple[MemberRow, ...]:
    """Return the members that have a pod, servers first."""
    nodes = timeline.nodes()
    processes = timeline.processes()
    steps: dict[str, StepSeen] = {}
    for applied in timeline.of(StepSeen, after=now - 60.0):
        steps[applied.member] = applied
    runs: dict[str, set[tuple[int, int]]] = {}
    for seen in timeline.of(ProcessSeen):
        if seen.process is not None:
            runs.setdefault(seen.member, set()).add(seen.process)
    rows = []
    for member, pod in sorted(timeline.pods().items(), key=lambda item: _order(item[0])):
        step = steps.get(member)
        process = processes.get(member)
        rows.append(
            MemberRow(
                name=member,
                pod=pod.name,
                node=pod.node,
                state=_state(
                    pod,
                    is_node_ready=nodes.get(pod.node, True),
                    has_process=process is not None,
                    had_process=member in runs and pod.phase == "Running",
                    since_step=now - step.at if step is not None else None,
                ),
                step=step.step if step is not None else 0,
                pid=process[0] if process is not None else None,
                starts=len(runs.get(member, ())),
            )
        )
    return tuple(rows)


def checkpoint_rows(timeline: Timeline, *, limit: int = 6) -> tuple[CheckpointRow, ...]:
    """Return the newest checkpoints, the newest first; collected ones are left out while there are others."""
    rows = [
        CheckpointRow(seen.step, seen.state, seen.reason)
        for seen in reversed(timeline.checkpoints().values())
        if seen.state != "GarbageCollected"
    ]
    return tuple(rows[:limit])


def pulse(timeline: Timeline, *, now: float, length: int) -> tuple[int, ...]:
    """Return how many steps were applied in each of the last seconds."""
    counts = [0] * length
    began = now - length * PULSE_SECONDS
    steps: set[tuple[int, int]] = set()
    for seen in timeline.of(StepSeen, after=began):
        if (seen.step, seen.server_epoch) not in steps:  # each member tells of it
            steps.add((seen.step, seen.server_epoch))
            counts[min(length - 1, int((seen.at - began) / PULSE_SECONDS))] += 1
    return tuple(counts)


def compose(
    timeline: Timeline,
    *,
    now: float,
    setup: Sequence[SetupStep] = (),
    activity: str = "",
    trainer: str = "",
    epochs: int = 0,
    leader: str = "",
    rows: Sequence[Row] = (),
    planned: int = 0,
    checks: Sequence[Check] = (),
    reference: Reference | None = None,
    events: int = 40,
    pulse_length: int = 60,
) -> Frame:
    """Compose the frame of this moment."""
    status = timeline.last(StatusSeen)
    return Frame(
        elapsed=now,
        setup=tuple(setup),
        activity=activity,
        trainer=trainer,
        epochs=epochs,
        total_steps=reference.steps if reference is not None else None,
        status=status,
        step=max(timeline.step(), status.step if status is not None else 0)
        if status is None or status.phase != "Succeeded"
        else status.step,
        pulse=pulse(timeline, now=now, length=pulse_length),
        members=member_rows(timeline, now=now),
        checkpoints=checkpoint_rows(timeline),
        events=tuple(timeline.of(EventSeen))[-events:],
        nodes=tuple(sorted(timeline.nodes().items())),
        leader=leader,
        rows=tuple(rows),
        planned=planned,
        checks=tuple(checks),
        reference=reference,
    )


def _state(
    pod: PodSeen, *, is_node_ready: bool, has_process: bool, had_process: bool, since_step: float | None
) -> str:
    if pod.phase == "Succeeded":
        return "done"
    if pod.phase == "Failed":
        return "failed"
    if not is_node_ready:
        return "node down"
    if pod.is_ending:
        return "ending"
    if not has_process:
        return "down" if had_process else "starting"
    return "training" if since_step is not None and since_step < QUIET else "waiting"


def _order(member: str) -> tuple[int, int]:
    role, _, index = member.rpartition("-")
    return ({"ps": 0, "master": 1}.get(role, 2), int(index) if index.isdecimal() else 0)
