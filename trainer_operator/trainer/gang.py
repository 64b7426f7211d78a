"""Gang start: all members find a node, or none keeps one (GS1, GS2, GS4, SC08).

    pods created ──all placed──▶ the epoch is formed
        ▲   └──one without a node for pendingTimeoutSeconds, while others hold nodes──▶ released: all pods are deleted
        └────────────────────── after a growing delay with jitter ──────────────────────────────┘

So two half gangs can't hold the nodes for ever that the other one lacks. Who waits for each other is everybody while
nobody can train, else only the members that the training epoch doesn't have yet. A gang that holds nothing is left
alone: its waiting pods are what tells an autoscaler to add nodes; only one that keeps away from domains in which it
found no room (`proximity`) is made anew without that. Nothing is charged to any budget. Pure.
"""

from datetime import datetime, timedelta

from runtime.clock import parse_time
from trainer_operator.api.status import AT_REST, GangStatus
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import membership, podgroup, proximity, recovery, weights
from trainer_operator.trainer.budget import restart_delay
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.views import PodView

GRACE = 5
"""Seconds that a released pod has to end: nothing trains in it."""
BEFORE_PODS = frozenset({proximity.UNKNOWN, proximity.CONFLICT, podgroup.WAITS, podgroup.UNAVAILABLE})
"""Reasons of condition Scheduled that are not the scheduler's, and end when there are pods."""
STUCK_AFTER = 30.0
"""Seconds after which a successor doesn't wait any longer for the name of a pod that doesn't go."""


def is_released(draft: Draft) -> bool:
    """Whether all members were released and wait; lets them start again once their delay is over and their pods gone."""
    status = draft.status
    gang = status.gang
    if gang is None or gang.not_before is None or status.membership.reason != membership.REQUEUED:
        return False
    if status.membership.phase == membership.ACTIVE:
        return False  # only members that the epoch doesn't have yet were released
    for pods in draft.observed.pods.values():
        for pod in pods:
            draft.delete(pod, grace=GRACE)  # once more: the first delete may have failed
    left = {member for member in draft.observed.pods if _current(draft, member) is not None}
    if not draft.passed(gang.not_before, STUCK_AFTER if left else 0.0):
        return True
    for member in left:
        draft.records.move_on(member)
    _try_again(draft, gang)
    membership.gather(draft)
    return False


def release(draft: Draft) -> bool:
    """Release those that wait for each other when one of them found no node in time; true if that was everybody."""
    status, spec = draft.status, draft.observed.trainer.spec
    group = _waiting(draft)
    if not group:
        status.gang = None
        proximity.settle(draft)
        return False
    gang = status.gang
    if gang is not None and gang.not_before is not None:
        if not draft.passed(gang.not_before, 0.0):
            return False
        _try_again(draft, gang)
    holders = [pod for member in group if (pod := _current(draft, member)) is not None and _holds(pod)]
    if not spec.scheduling.gang or not (holders or proximity.has_tried(draft)):
        return False
    seekers = {
        member: since for member in group if (since := _seeks_since(draft, member, holders)) is not None
    }
    if not seekers or membership.may_go_without(draft, frozenset(seekers)):
        return False
    late = min(seekers, key=lambda member: (seekers[member], member))
    if not draft.passed(seekers[late], spec.pending_timeout_seconds):
        return False
    _release(draft, group, late=late, holders=len(holders))
    if membership.trains(draft):
        return False
    proximity.turn_elsewhere(draft, holders)
    membership.disband(draft, membership.REQUEUED)
    return True


def holds_back(draft: Draft, member: MemberId) -> bool:
    """Whether the member was released while others train, and its delay is not over."""
    gang = draft.status.gang
    released = gang is not None and gang.not_before is not None
    return released and member not in membership.members_of(draft)


def scheduled_row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the row of condition Scheduled; None while there is nothing new to say of it (GS4)."""
    status = draft.status
    if status.phase in AT_REST:
        return "Scheduled", None, str(status.phase), ""
    unclear = proximity.problem(draft)
    if unclear is not None:
        return "Scheduled", False, *unclear
    gang = status.gang
    if gang is not None and gang.not_before is not None:
        return "Scheduled", False, "GangTimeout", gang.message
    desired = membership.desired_members(draft.observed.trainer)
    pods = {member: pod for member in desired if (pod := _current(draft, member)) is not None}
    placed = len(pods) == len(desired) and all(pod.node for pod in pods.values())
    group = podgroup.problem(draft) if not placed else None
    if group is not None:
        return "Scheduled", False, *group
    unplaced = sorted(m for m, pod in pods.items() if pod.alive and not pod.node and pod.waits_reason)
    if unplaced:
        first = pods[unplaced[0]]
        more = f" (and {len(unplaced) - 1} more members)" if len(unplaced) > 1 else ""
        return "Scheduled", False, first.waits_reason, f"{unplaced[0]} has no node{_why(first)}{more}"
    if placed:
        return "Scheduled", True, "Placed", ""
    if any(each.type == "Scheduled" and each.reason not in BEFORE_PODS for each in status.conditions):
        return None  # pods come and go; what the scheduler said last is right until it says something else
    return "Scheduled", None, "NotSeen", "the scheduler has not looked at all members yet"


def _release(draft: Draft, group: frozenset[MemberId], *, late: MemberId, holders: int) -> None:
    gang = draft.status.gang
    tries = gang.tries + 1 if gang is not None else 1
    delay = restart_delay(tries + 1, recovery.retry_policy(draft), chance=draft.observed.chance)
    timeout = draft.observed.trainer.spec.pending_timeout_seconds
    message = f"{late} found no node within {timeout} s{_why(_current(draft, late))}"
    draft.status.gang = GangStatus(
        tries=tries, not_before=draft.observed.now + timedelta(seconds=delay), message=message[:1024]
    )
    for member in group:
        for pod in draft.observed.pods.get(member, ()):
            draft.delete(pod, grace=GRACE)
    given = (
        f"{holders} members give their nodes back" if holders else "domains that had no room are open again"
    )
    draft.event(
        "GangTimeout",
        f"{message}; {given}, and all are created again in {delay:.1f} s",
        warning=True,
    )


def _waiting(draft: Draft) -> frozenset[MemberId]:
    """Return those that wait for each other to be placed; nobody waits for a standby."""
    desired = membership.desired_members(draft.observed.trainer) - membership.standbys(draft)
    return desired - membership.members_of(draft) if membership.trains(draft) else desired


def _try_again(draft: Draft, gang: GangStatus) -> None:
    gang.not_before, gang.since = None, draft.observed.now


def _current(draft: Draft, member: MemberId) -> PodView | None:
    return draft.observed.pod(member, draft.records.attempt(member))


def _holds(pod: PodView) -> bool:
    return pod.alive and bool(pod.node)


def _seeks_since(draft: Draft, member: MemberId, holders: list[PodView]) -> datetime | None:
    """Return since when a member has been without a node; None if it has one, or is not to have one now."""
    pod = _current(draft, member)
    if pod is not None:
        return parse_time(pod.created) if pod.alive and not pod.node and pod.created else None
    status = draft.status
    if not recovery.delay_is_over(draft, member) or weights.holds_back(draft, member):
        return None
    known = [
        status.start_time,
        status.membership.since,
        status.gang.since if status.gang is not None else None,
        status.recovery.not_before if status.recovery is not None else None,
        min((parse_time(pod.created) for pod in holders if pod.created), default=None),
    ]
    return max((moment for moment in known if moment is not None), default=None)


def _why(pod: PodView | None) -> str:
    if pod is None:
        return ": its pod could not be created; see the Events"
    return f": {pod.waits_message}" if pod.waits_message else ""
