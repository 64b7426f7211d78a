"""The recovery ladder: each further failure of a member is met with a larger restart (RC5, RC6, SL4).

    process ──▶ pod, same node ──▶ pod, other node ──▶ all pods ──▶ Failed

Two failures on a rung within 30 minutes, or three restarts in a row without progress, lead to the next one. The first
rung comes first because most faults are cured by it. A quiet half hour leads back to it. A training that still makes
progress between its failures is never given up here; that is what budgets are for.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from trainer_operator.api.status import RecoveryStatus, Rung, TrainerStatus
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import Failure, FailureClass

WINDOW = timedelta(minutes=30)
FAILURES_PER_RUNG = 2
RESTARTS_WITHOUT_PROGRESS = 3
REPEATS = 3
"""The same failure at the same step this many times ends the Trainer (RC5)."""

_ORDER = tuple(Rung)
HOW = {
    Rung.PROCESS: "in place",
    Rung.POD: "in a new pod",
    Rung.NODE: "in a new pod on another node",
    Rung.GROUP: "in new pods for all members",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What one failure is met with: the failure as it counts now, on which rung; `exhausted` after the last one."""

    failure: Failure
    rung: Rung
    exhausted: bool = False


def climb(draft: Draft, group: list[Failure]) -> list[Step]:
    """Place a group of failures on the ladder and remember it, in the order of the group.

    Of processes that ended together only one is to blame, as far as can be told one that was killed by a signal; the
    others usually lost their peer. Disruptions aren't the member's fault and don't climb.
    """
    processes = [failure for failure in group if _climbs(failure) and not failure.pod_gone]
    blamed = min(
        processes, key=lambda failure: ((failure.exit_code or 0) <= 128, failure.member), default=None
    )
    return [
        _place(draft, failure)
        if _climbs(failure) and (failure.pod_gone or failure is blamed)
        else _stay(failure)
        for failure in group
    ]


def _climbs(failure: Failure) -> bool:
    return failure.kind is not FailureClass.DISRUPTION


def _stay(failure: Failure) -> Step:
    return Step(failure, Rung.POD if failure.pod_gone else Rung.PROCESS)


def _place(draft: Draft, failure: Failure) -> Step:
    entry = draft.records.entry(failure.member)
    rung, count, since = entry.rung or Rung.PROCESS, entry.rung_failures, entry.rung_since
    now = draft.observed.now
    if since is None or now - since > WINDOW:
        rung, count, since = Rung.PROCESS, 0, now
    if failure.pod_gone and rung is Rung.PROCESS:
        rung, count, since = Rung.POD, 0, now  # there is no process to restart in place
    count += 1
    leaps = (
        count >= FAILURES_PER_RUNG or _restarts_without_progress(draft.status) >= RESTARTS_WITHOUT_PROGRESS
    )
    exhausted = leaps and rung is Rung.GROUP and _restarts_without_progress(draft.status) > 0
    if leaps and rung is not Rung.GROUP:
        repeated_stall = failure.kind is FailureClass.STALL and rung is Rung.PROCESS
        rung = Rung.NODE if repeated_stall else _ORDER[_ORDER.index(rung) + 1]
        count, since = 0, now
    entry.rung, entry.rung_failures, entry.rung_since = rung, count, since
    if rung is Rung.PROCESS:
        return Step(failure, rung)
    node = _node_of(draft, failure.member) if rung in {Rung.NODE, Rung.GROUP} else failure.node
    return Step(replace(failure, pod_gone=True, node=node), rung, exhausted)


def _restarts_without_progress(status: TrainerStatus) -> int:
    """Return how many restarts in a row, with the one that is due, found no step beyond the failure before."""
    recovery = status.recovery
    if recovery is None or status.global_step > recovery.step:
        return 0
    return recovery.without_progress + 1


def note_progress(status: TrainerStatus, recovery: RecoveryStatus) -> None:
    """Carry the count of restarts without progress over into the next recovery."""
    recovery.without_progress = _restarts_without_progress(status)
    if recovery.without_progress >= RESTARTS_WITHOUT_PROGRESS:
        recovery.without_progress = 0  # the rung was changed for it


def repeats(draft: Draft, group: list[Failure], recovery: RecoveryStatus) -> str | None:
    """Count how often the same failure came at the same step; return the sentence that ends the Trainer, or None.

    A bare exit code or signal has no fingerprint and never counts here (RC5).
    """
    old = draft.status.recovery
    known = (old.fingerprint, old.fingerprint_step, old.fingerprint_count) if old is not None else ("", 0, 0)
    marked = next((failure for failure in group if failure.fingerprint), None)
    if marked is not None:
        same = (marked.fingerprint, marked.step) == known[:2]
        known = (marked.fingerprint, marked.step, known[2] + 1 if same else 1)
    recovery.fingerprint, recovery.fingerprint_step, recovery.fingerprint_count = known
    if marked is None or known[2] < REPEATS:
        return None
    return (
        f"the same failure at step {marked.step} for the {REPEATS}rd time, so another restart won't help: "
        f"{marked.fingerprint}; correct the program or its data and create the Trainer again"
    )


def _node_of(draft: Draft, member: MemberId) -> str:
    pod = draft.observed.pod(member, draft.records.attempt(member))
    return pod.node if pod is not None else ""
