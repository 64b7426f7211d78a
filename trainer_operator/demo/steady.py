"""When training is whole again: the conditions that a disturbance waits for, pure, from the timeline."""

from __future__ import annotations

from trainer_operator.api.status import TERMINAL
from trainer_operator.demo.disturbances import Disturbance, Kind
from trainer_operator.demo.timeline import (
    CheckpointSeen,
    LeadersSeen,
    LeaseSeen,
    ProcessSeen,
    StepSeen,
    Timeline,
)

STEADY_STEPS = 6
"""Steps that have to follow before training counts as going on."""


def has_ended(timeline: Timeline) -> bool:
    """Whether the Trainer succeeded or failed."""
    return timeline.status().phase in TERMINAL


def steps_since(timeline: Timeline, since: float) -> int:
    """Return how many different steps were applied since a time."""
    return len({(seen.server_epoch, seen.step) for seen in timeline.of(StepSeen, after=since)})


def has_checkpoint(timeline: Timeline) -> bool:
    """Whether a checkpoint was committed."""
    return any(checkpoint.state == "Committed" for checkpoint in timeline.of(CheckpointSeen))


def trains(timeline: Timeline, *, since: float, steps: int = STEADY_STEPS) -> bool:
    """Whether everybody is there and training has gone on since a time.

    A pod that is ending takes no part: on a node without power it ends only when the node is back.
    """
    status = timeline.status()
    members = {member for member, pod in timeline.pods().items() if not pod.is_ending}
    return (
        status.phase == "Running"
        and not status.changing
        and members == set(timeline.processes())
        and steps_since(timeline, since) >= steps
    )


def recovered(
    timeline: Timeline, disturbance: Disturbance, *, began: float, victims: tuple[str, ...], killed: str = ""
) -> bool:
    """Whether a disturbance is over: noticed, repaired, and training goes on."""
    before, status = timeline.status(until=began), timeline.status()
    match disturbance.kind:
        case Kind.KILL_LEADER:
            lease = timeline.last(LeaseSeen, until=began)
            changed = [
                seen.at
                for seen in timeline.of(LeaseSeen, after=began)
                if seen.holder and (lease is None or seen.holder != lease.holder)
            ]
            leaders = timeline.last(LeadersSeen)
            if not changed or leaders is None or not leaders.leaders or killed in leaders.leaders:
                return False
            acts = status.at > changed[0]  # the new leader has written what it saw
            return acts and (has_ended(timeline) or steps_since(timeline, changed[0]) >= STEADY_STEPS)
        case Kind.SCALE_UP | Kind.SCALE_DOWN:
            started = [seen.at for seen in timeline.of(StepSeen, after=began) if seen.epoch == status.epoch]
            return (
                status.epoch > before.epoch
                and status.world == disturbance.workers
                and _members(timeline, disturbance.workers)
                and bool(started)
                and trains(timeline, since=started[0])
            )
        case _:
            repaired = [
                max((s.at for s in timeline.of(ProcessSeen, after=began) if _is_new(s, victim)), default=None)
                for victim in victims
            ]
            times = [at for at in repaired if at is not None]
            return (
                status.restarts > before.restarts
                and len(times) == len(victims)
                and trains(timeline, since=max(times, default=began))
            )


def _is_new(seen: ProcessSeen, member: str) -> bool:
    return seen.member == member and seen.process is not None


def _members(timeline: Timeline, workers: int | None) -> bool:
    return sum(member.startswith("worker-") for member in timeline.processes()) == workers
