"""Pods that somebody else deletes while they train: a checkpoint comes first, if their grace allows it (CS10, PreEvict).

    trains ──pod is being deleted──▶ checkpoint with pause ──decided, or grace - 5 s over──▶ handled as the loss it is

Their agents let them train on until then. Not begun where it can't be of use: without a bucket, while a member does not
train, and when checkpoints usually take longer than the grace. With parameter servers the loss of a worker costs no
step, and a server comes back from its own snapshots, so that is left as it is.
"""

from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.status import PendingChange
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.checkpoints import all_train, can_save, request_checkpoint
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import current_agent, lost_window
from trainer_operator.trainer.membership import ACTIVE, has_servers, members_of
from trainer_operator.trainer.views import PodView

RESERVE = 5.0
"""Seconds of the grace that are left for the process to end in."""
REMEMBERED = 3
"""So many of the last checkpoints tell how long the next one takes."""


def held(draft: Draft) -> frozenset[MemberId]:
    """Return the members whose loss waits for a checkpoint; begins one if that is possible."""
    leaving = _leaving(draft)
    change = draft.status.pending_change
    if not leaving or (change is not None and change.reason != "Evict"):
        return frozenset()
    room = min(pod.grace for pod in leaving.values()) - RESERVE
    if change is None:
        if not _is_possible(draft, frozenset(leaving), room=room):
            return frozenset()
        change = _begin(draft, leaving, room=room)
    mine = next((c for c in draft.observed.checkpoints if c.name == change.checkpoint), None)
    if (mine is not None and not mine.open) or draft.passed(change.since, room):
        return frozenset()
    return frozenset(leaving)


def _leaving(draft: Draft) -> dict[MemberId, PodView]:
    """Return the members of the epoch that train although their pod is being deleted."""
    observed, epoch = draft.observed, draft.status.membership.epoch
    found = {}
    for member in members_of(draft):
        attempt = draft.records.attempt(member)
        pod = observed.pod(member, attempt)
        if pod is None or not pod.terminating or pod.phase != "Running" or pod.grace <= RESERVE:
            continue
        agent = current_agent(observed, member, pod, attempt)
        if agent is None or not agent.running or agent.beat.epoch != epoch:
            continue
        if agent.age <= lost_window(observed) and not agent.drained:
            found[member] = pod
    return found


def _is_possible(draft: Draft, leaving: frozenset[MemberId], *, room: float) -> bool:
    if draft.status.membership.phase != ACTIVE or has_servers(draft.observed.trainer) or not can_save(draft):
        return False
    if not all_train(draft, members_of(draft) - leaving):
        return False
    usual = _usual_staging(draft)
    if usual > room:
        draft.event(
            "NoTimeForCheckpoint",
            f"{_names(leaving)}: the pod is being deleted in {room + RESERVE:.0f} s, but a checkpoint takes {usual:.0f} s; "
            "raise topology.podSpec.terminationGracePeriodSeconds",
            warning=True,
        )
        return False
    return True


def _begin(draft: Draft, leaving: dict[MemberId, PodView], *, room: float) -> PendingChange:
    status = draft.status
    flight = status.checkpoint_in_flight  # one that is being taken already is as good (CS10)
    name = (
        flight.name
        if flight is not None
        else request_checkpoint(draft, CheckpointReason.PRE_EVICT, pause=True)
    )
    status.pending_change = PendingChange(reason="Evict", since=draft.observed.now, checkpoint=name)
    draft.event(
        "Evicting",
        f"{_names(frozenset(leaving))}: the pod is being deleted; {name} is waited for, at most {room:.0f} s",
    )
    return status.pending_change


def _usual_staging(draft: Draft) -> float:
    """Return the average time from the order to the commit of the last checkpoints; 0 before the first."""
    known = [c for c in draft.observed.checkpoints if c.staging is not None]
    last = sorted(known, key=lambda c: c.sequence)[-REMEMBERED:]
    return sum(c.staging or 0.0 for c in last) / len(last) if last else 0.0


def _names(members: frozenset[MemberId]) -> str:
    return ", ".join(map(str, sorted(members)))
