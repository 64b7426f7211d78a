"""From the timeline of a disturbance to the row of the table: pure.

Training shows a pause as a gap between two applied steps. The longest gap after a disturbance is its pause, its end
is the next training step; so a step that was still under way when the disturbance came is no recovery. Observations
come every tenth of a second, and no figure here is more exact than that.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer_operator.demo.disturbances import Incident, Kind
from trainer_operator.demo.timeline import EventSeen, LeaseSeen, PodSeen, StatusSeen, StepSeen, Timeline

SHORTEST_PAUSE = 0.3
"""Seconds without a step that count as a pause; below, it is the pace of training."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A gap between applied steps."""

    began: float
    ended: float
    reached: int
    """Last step before it."""
    resumed: int
    """First step after it."""

    @property
    def length(self) -> float:
        """Seconds without a step."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Row:
    """What one disturbance did. Times are seconds."""

    kind: Kind
    title: str
    target: str
    victims: tuple[str, ...]
    survived: bool
    detected: float | None
    """From the disturbance to the first word of the operator that names it."""
    next_step: float | None
    """From the disturbance to the next training step after the pause; None when training did not pause."""
    longest_gap: float
    """Longest time between two applied steps."""
    step_before: int
    """Step that training had reached."""
    step_after: int
    """Step that training went on from."""
    failures: int
    disruptions: int
    restarted: tuple[str, ...]
    """Members whose process is another one now, or gone."""

    @property
    def repeated(self) -> int:
        """Steps that had to be done again."""
        return max(0, self.step_before - self.step_after)


def measure(timeline: Timeline, incident: Incident) -> Row:
    """Measure an incident."""
    began, settled = incident.began, incident.settled
    before, after = timeline.status(until=began), timeline.status(until=settled)
    pause = longest_pause(timeline, after=began, until=settled)
    detected = detection(timeline, incident)
    is_pause = pause is not None and pause.length >= SHORTEST_PAUSE
    reached = timeline.step(until=began)
    return Row(
        kind=incident.disturbance.kind,
        title=incident.disturbance.title,
        target=incident.target,
        victims=incident.victims,
        survived=incident.survived,
        detected=detected - began if detected is not None else None,
        next_step=pause.ended - began if pause is not None and is_pause else None,
        longest_gap=pause.length if pause is not None else settled - began,
        step_before=pause.reached if pause is not None and is_pause else reached,
        step_after=pause.resumed - 1 if pause is not None and is_pause else reached,
        failures=after.failures - before.failures,
        disruptions=after.disruptions - before.disruptions,
        restarted=replaced_processes(timeline, before=began, after=settled),
    )


def detection(timeline: Timeline, incident: Incident) -> float | None:
    """Return when the operator first named the disturbance; None when it never did."""
    began, settled = incident.began, incident.settled
    match incident.disturbance.kind:
        case Kind.KILL_LEADER:
            lease = timeline.last(LeaseSeen, until=began)
            holder = lease.holder if lease is not None else ""
            changed = timeline.of(LeaseSeen, after=began, until=settled)
            return next((seen.at for seen in changed if seen.holder and seen.holder != holder), None)
        case Kind.SCALE_UP | Kind.SCALE_DOWN:
            known = set(timeline.pods(until=began))
            signs = [
                *(e.at for e in timeline.of(EventSeen, after=began, until=settled) if e.reason == "Scaling"),
                *(s.at for s in timeline.of(StatusSeen, after=began, until=settled) if s.changing),
                *(p.at for p in timeline.of(PodSeen, after=began, until=settled) if p.member not in known),
            ]
            return min(signs, default=None)
        case _:
            restarts = timeline.status(until=began).restarts
            named = timeline.of(StatusSeen, after=began, until=settled)
            return next(
                (
                    seen.at
                    for seen in named
                    if seen.restarts > restarts and set(seen.recovering) & set(incident.victims)
                ),
                None,
            )


def longest_pause(timeline: Timeline, *, after: float, until: float) -> Pause | None:
    """Return the longest gap between applied steps that ends in the time given; None without any step in it."""
    previous = timeline.last(StepSeen, until=after)
    last_at, last_step = (previous.at, previous.step) if previous is not None else (after, 0)
    longest: Pause | None = None
    for at, lowest, highest in _moments(timeline, after=after, until=until):
        gap = Pause(max(last_at, after), at, last_step, lowest)
        if longest is None or gap.length > longest.length:
            longest = gap
        last_at, last_step = at, highest
    return longest


def _moments(timeline: Timeline, *, after: float, until: float) -> list[tuple[float, int, int]]:
    """Return when steps were seen, with the lowest and the highest of each moment."""
    moments: list[tuple[float, int, int]] = []
    for seen in timeline.of(StepSeen, after=after, until=until):
        if moments and moments[-1][0] == seen.at:
            at, lowest, highest = moments[-1]
            moments[-1] = (at, min(lowest, seen.step), max(highest, seen.step))
        else:
            moments.append((seen.at, seen.step, seen.step))
    return moments


def replaced_processes(timeline: Timeline, *, before: float, after: float) -> tuple[str, ...]:
    """Return the members whose process at the first time is not theirs any more at the second."""
    old, new = timeline.processes(until=before), timeline.processes(until=after)
    return tuple(sorted(member for member, process in old.items() if new.get(member) != process))
