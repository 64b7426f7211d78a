"""Voluntary changes: scale and suspend. They lose no step (ME6, ME7).

    wanted ──new members live──▶ checkpoint with pause ──Committed──▶ next epoch
                     │                  └──not decided in time──▶ next epoch all the same, as a recorded rollback
                     └──programs that need no restart──▶ soft epoch (`softepoch`)

What is under way is kept in `status.pendingChange`, so that another leader goes on in the middle.
"""

from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.status import PendingChange
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import eviction, softepoch
from trainer_operator.trainer.checkpoints import can_save, request_checkpoint
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import in_grace
from trainer_operator.trainer.membership import (
    ACTIVE,
    SERVING,
    has_servers,
    live,
    may_go_without,
    members_of,
    next_epoch,
    presence,
    standbys,
)
from trainer_operator.trainer.ranges import format_members


def scale(draft: Draft) -> None:
    """Bring an Active epoch to the wanted set of members."""
    membership = draft.status.membership
    if membership.phase != ACTIVE or (has_servers(draft.observed.trainer) and membership.ps_phase != SERVING):
        return
    if eviction.held(draft):
        return  # what it waits for is the checkpoint of the present epoch
    desired = _target(draft)
    change = draft.status.pending_change
    if change is not None and change.step is not None:
        softepoch.advance(draft, change, desired)  # wanted or not: the servers wait for it
        return
    if desired == members_of(draft):
        if change is not None and change.checkpoint:
            _finish(
                draft, "ScaleCancelled"
            )  # members are paused at the checkpoint; a new epoch lets them go on
        else:
            draft.status.pending_change = None
        return
    if not all(live(draft, member) for member in desired - standbys(draft)):
        return  # the old world trains while new members start
    if change is None:
        if not draft.passed(membership.since, draft.observed.settings.voluntary_interval):
            return
        soft = softepoch.is_possible(draft, desired)
        if softepoch.is_ending(draft):
            return
        change = PendingChange(reason="Scale", since=draft.observed.now, soft=soft)
        draft.status.pending_change = change
        draft.event("Scaling", f"members {membership.members} to {format_members(desired)}")
    if change.soft:
        softepoch.advance(draft, change, desired)
    elif stopped_at_checkpoint(draft, CheckpointReason.PRE_SCALE):
        _finish(draft, "Scaled")


def _target(draft: Draft) -> frozenset[MemberId]:
    """Return the members to change to: those that the spec asks for, or as many of them as there is room for (ME6)."""
    present, missing = presence(draft)
    if missing and not missing & members_of(draft) and may_go_without(draft, missing):
        timeout = draft.observed.trainer.spec.pending_timeout_seconds
        if draft.passed(draft.status.membership.since, timeout):
            return present
    return present | missing


def stopped_at_checkpoint(draft: Draft, reason: CheckpointReason) -> bool:
    """Whether the epoch may end: its state is committed, or cannot be within the time allowed."""
    change = draft.status.pending_change
    if change is None or not can_save(draft):
        return True
    if not _trains(draft):
        return not _may_be_unheard(draft)
    if change.checkpoint:
        mine = next((c for c in draft.observed.checkpoints if c.name == change.checkpoint), None)
        if mine is not None and not mine.open:
            return True
    elif not any(c.open for c in draft.observed.checkpoints):
        change.checkpoint = request_checkpoint(draft, reason, pause=True)
    return draft.passed(change.since, draft.observed.settings.checkpoint_timeout)


def _trains(draft: Draft) -> bool:
    agents = (live(draft, member) for member in members_of(draft))
    return any(agent is not None and agent.running for agent in agents)


def _may_be_unheard(draft: Draft) -> bool:
    """Whether a leader is too young to know that nobody trains: a member's pod lives, its agent was not heard yet."""
    if not in_grace(draft.observed):
        return False
    members = members_of(draft) - draft.observed.agents.keys()
    unheard = any(pod.alive for member in members for pod in draft.observed.pods.get(member, ()))
    if unheard:
        draft.look_again(1.0)
    return unheard


def _finish(draft: Draft, reason: str) -> None:
    next_epoch(draft, _target(draft), reason)
