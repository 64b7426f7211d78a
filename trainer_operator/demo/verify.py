"""The expectations that the demo has to meet: pure, from the timeline and the API server's audit log.

A parameter server's step log is the truth about what the model went through: it writes a line for every update. Steps
may come twice only where a recorded rollback says so, and the last time that each step was applied must cover every
sample of every data epoch exactly once (ME7, ME8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_operator.demo.disturbances import PLAN, Disturbance
from trainer_operator.demo.invariants import check
from trainer_operator.demo.measures import Row
from trainer_operator.demo.timeline import LeadersSeen, LeaseSeen, StatusSeen, StepSeen, Timeline
from trainer_operator.devcluster.auditlog import AuditEvent

ACCURACY_TOLERANCE = 0.005
LEAST_ACCURACY = 0.95
LONGEST_GAP = 3.0
"""Seconds between two steps that a busy machine may cause by itself."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What the same training gives without any disturbance, in one process."""

    accuracy: float
    steps: int


@dataclass(frozen=True, slots=True)
class Check:
    """An expectation, whether it held, and what was found."""

    expectation: str
    holds: bool
    found: str


def verify(
    timeline: Timeline,
    rows: Sequence[Row],
    reference: Reference | None,
    *,
    plan: Sequence[Disturbance] = PLAN,
) -> tuple[Check, ...]:
    """Check everything that was promised."""
    return (
        finished(timeline, reference),
        accurate(timeline, reference),
        survived(rows, plan),
        charged(timeline, rows, plan),
        kept_others(rows, plan),
        kept_pace(rows, plan),
        monotone(timeline),
        explained_repeats(timeline),
        complete(timeline, reference),
        single_leader(timeline),
    )


def finished(timeline: Timeline, reference: Reference | None) -> Check:
    """Training succeeded at the last step."""
    status = timeline.status()
    total = reference.steps if reference is not None else None
    return Check(
        "training succeeds, and its status ends at the last step",
        status.phase == "Succeeded" and (total is None or status.step == total),
        f"{status.phase or 'no phase'} at step {status.step}{'' if total is None else f' of {total}'}"
        + (f": {status.message}" if status.phase == "Failed" else ""),
    )


def accurate(timeline: Timeline, reference: Reference | None) -> Check:
    """The model is as good as without disturbances."""
    accuracy = timeline.status().accuracy
    expectation = (
        f"accuracy within {ACCURACY_TOLERANCE:.1%} of the undisturbed run and above {LEAST_ACCURACY:.0%}"
    )
    if accuracy is None or reference is None:
        return Check(
            expectation, False, "no accuracy was reported" if accuracy is None else "no undisturbed run"
        )
    return Check(
        expectation,
        abs(accuracy - reference.accuracy) <= ACCURACY_TOLERANCE and accuracy > LEAST_ACCURACY,
        f"{accuracy:.2%}, undisturbed {reference.accuracy:.2%}",
    )


def survived(rows: Sequence[Row], plan: Sequence[Disturbance]) -> Check:
    """Every disturbance was survived in time."""
    good = sum(row.survived for row in rows)
    bad = [row.title for row in rows if not row.survived]
    return Check(
        "every disturbance is survived in time",
        good == len(plan),
        f"{good} of {len(plan)}" + (f"; not: {', '.join(bad)}" if bad else ""),
    )


def charged(timeline: Timeline, rows: Sequence[Row], plan: Sequence[Disturbance]) -> Check:
    """Each disturbance was charged as the rules say, and nothing else was charged at all (RC1, RC3)."""
    wrong = [
        f"{row.title}: {row.failures} failures and {row.disruptions} disruptions"
        for row in rows
        for price in _planned(row, plan)
        if (row.failures, row.disruptions) != (price.failures, price.disruptions)
    ]
    failures, disruptions = sum(row.failures for row in rows), sum(row.disruptions for row in rows)
    status = timeline.status()
    if (status.failures, status.disruptions) != (failures, disruptions):
        wrong.append(f"in the end {status.failures} failures and {status.disruptions} disruptions")
    return Check(
        "failures and disruptions are charged as the rules say",
        not wrong,
        "; ".join(wrong) or f"{failures} failures, {disruptions} disruptions",
    )


def kept_others(rows: Sequence[Row], plan: Sequence[Disturbance]) -> Check:
    """A disturbance of one member ended no other member's process (PSR2)."""
    wrong = [
        f"{row.title}: {', '.join(others)} restarted"
        for row in rows
        for price in _planned(row, plan)
        if price.keeps_others and (others := sorted(set(row.restarted) - set(row.victims)))
    ]
    return Check(
        "a lost member, even the server, ends no other process",
        not wrong,
        "; ".join(wrong) or "all other processes kept their IDs",
    )


def kept_pace(rows: Sequence[Row], plan: Sequence[Disturbance]) -> Check:
    """Training did not wait for the operator (AG8)."""
    found = [
        (row, row.longest_gap)
        for row in rows
        for price in _planned(row, plan)
        if price.keeps_pace and row.survived
    ]
    slowest = max((gap for _, gap in found), default=0.0)
    return Check(
        "training goes on while no operator leads",
        bool(found) and slowest <= LONGEST_GAP,
        f"longest time between two steps {slowest:.1f} s" if found else "not tried",
    )


def monotone(timeline: Timeline) -> Check:
    """The step in status fell only by recorded rollbacks (ME7)."""
    before: StatusSeen | None = None
    wrong: list[str] = []
    for status in timeline.of(StatusSeen):
        if before is not None and status.step < before.step and status.rollbacks <= before.rollbacks:
            wrong.append(f"step {before.step} to {status.step} after {status.at:.1f} s")
        before = status
    rollbacks = before.rollbacks if before is not None else 0
    return Check(
        "the global step falls only by recorded rollbacks",
        not wrong,
        "; ".join(wrong) or f"{rollbacks} rollback{'' if rollbacks == 1 else 's'} recorded",
    )


def recorded_rollbacks(timeline: Timeline) -> list[tuple[int, int]]:
    """Return from and to step of every rollback that status recorded."""
    found: list[tuple[int, int]] = []
    count = 0
    for status in timeline.of(StatusSeen):
        if status.rollbacks > count and status.rollback is not None:
            found.append(status.rollback)
        count = status.rollbacks
    return found


def updates(timeline: Timeline) -> list[StepSeen]:
    """Return the updates of the model in their order: the first server's log, else the first worker's."""
    steps = list(timeline.of(StepSeen))
    truth = "ps-0" if any(step.member == "ps-0" for step in steps) else "worker-0"
    return [step for step in steps if step.member == truth]


def explained_repeats(timeline: Timeline) -> Check:
    """Every repeated step lies in a recorded rollback.

    The step that was under way when a server was killed may be in its log although nobody was told of it, so a
    rollback may begin one step below the log's last.
    """
    open_rollbacks = recorded_rollbacks(timeline)
    wrong: list[str] = []
    repeated = 0
    last = 0
    for update in updates(timeline):
        if update.step > last + 1:
            wrong.append(f"steps {last + 1} to {update.step - 1} are missing")
        elif update.step <= last:
            repeated += last - update.step + 1
            match = next(
                (r for r in open_rollbacks if r[1] == update.step - 1 and r[0] >= last - 1),
                None,
            )
            if match is not None:
                open_rollbacks.remove(match)
            elif last - update.step > 0:
                wrong.append(f"steps {update.step} to {last} came again without a recorded rollback")
        last = update.step
    return Check(
        "no sample is trained twice but for recorded rollbacks",
        not wrong,
        "; ".join(wrong) or f"{repeated} step{'' if repeated == 1 else 's'} repeated, all explained",
    )


def complete(timeline: Timeline, reference: Reference | None) -> Check:
    """The updates that count cover each data epoch's samples exactly once, from the first step to the last."""
    final = {update.step: update for update in updates(timeline)}
    expectation = "every step is applied, every sample once in each epoch"
    total = reference.steps if reference is not None else max(final, default=0)
    missing = [step for step in range(1, total + 1) if step not in final]
    if missing or not final:
        return Check(
            expectation, False, f"{len(missing)} steps are missing, the first is {min(missing, default=1)}"
        )
    position, data_epoch, size = 0, 0, 0
    for step in range(1, total + 1):
        update = final[step]
        if update.data_epoch == data_epoch + 1:
            size = size or position
            if position != size:
                return Check(expectation, False, f"epoch {data_epoch} ends at sample {position} of {size}")
            position, data_epoch = 0, data_epoch + 1
        if (update.data_epoch, update.first) != (data_epoch, position):
            return Check(
                expectation, False, f"step {step} begins at sample {update.first}, expected {position}"
            )
        position = update.end
    whole = not size or position == size
    return Check(expectation, whole, f"{total} steps, {data_epoch + 1} epochs of {size or position} samples")


def single_leader(timeline: Timeline) -> Check:
    """Never did two operators lead at the same time (L2)."""
    samples = list(timeline.of(LeadersSeen))
    double = [sample for sample in samples if len(sample.leaders) > 1]
    holders: list[str] = []
    for lease in timeline.of(LeaseSeen):
        if lease.holder and (not holders or holders[-1] != lease.holder):
            holders.append(lease.holder)
    if double:
        found = f"{' and '.join(double[0].leaders)} both led after {double[0].at:.1f} s"
    else:
        found = f"{len(samples)} looks, {len(holders)} leader{'' if len(holders) == 1 else 's in turn'}"
    return Check("there is never more than one leader", bool(samples) and bool(holders) and not double, found)


def unbroken(events: Sequence[AuditEvent], *, operator: str) -> Check:
    """The API server's audit log breaks none of the invariants."""
    broken = check(events, operator=operator)
    return Check(
        "the API server's audit log breaks no invariant",
        bool(events) and not broken,
        "; ".join(f"{violation.sentence}: {violation.found}" for violation in broken)
        or f"{len(events)} requests",
    )


def _planned(row: Row, plan: Sequence[Disturbance]) -> list[Disturbance]:
    return [disturbance for disturbance in plan if disturbance.kind == row.kind]
