"""How a Trainer ends, rests and is cleaned up: success, failure, suspend, clean-up, time to live.

A terminal phase is final (TR02, TR05): a finished Trainer creates nothing and counts nothing.
"""

from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.status import PendingChange, Phase
from trainer_operator.api.trainer import CleanPodPolicy, SuccessPolicy
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import drain
from trainer_operator.trainer.change import stopped_at_checkpoint
from trainer_operator.trainer.draft import CloseAgents, DeleteTrainer, Draft
from trainer_operator.trainer.membership import (
    ACTIVE,
    RESUMED,
    disband,
    gather,
    is_of_epoch,
    live,
    members_of,
)
from trainer_operator.trainer.ranges import format_members
from trainer_operator.trainer.views import PodView

CLOSE_GRACE = 10.0
"""Seconds that agents have to end after the Trainer did, before clean-up deletes their pods."""
DECISION_GRACE = 60.0
"""Seconds that agents stay for a checkpoint whose outcome is not decided (CS11)."""


def succeed_when_done(draft: Draft) -> None:
    """End the Trainer when its success policy holds over the members of the active epoch (ST6, ME9)."""
    membership = draft.status.membership
    if membership.phase != ACTIVE:
        return
    members = members_of(draft)
    for member in members:
        agent = live(draft, member)
        if (agent is not None and agent.done and is_of_epoch(membership, agent)) or (
            agent is None and _ended_well(draft, member)
        ):
            draft.records.set_done(member, membership.epoch)
    done = {member for member in members if draft.records.is_done(member, membership.epoch)}
    if not decides_success(draft, members) <= done:
        return
    draft.status.epochs_completed = draft.observed.trainer.spec.epochs
    end(
        draft,
        Phase.SUCCEEDED,
        "Completed",
        f"all {draft.status.epochs_completed} epochs are done at step {_last(draft)}",
    )


def _ended_well(draft: Draft, member: MemberId) -> bool:
    """Whether the member's pod says so: its agent may have left while no operator was there to listen (AG7)."""
    pod = draft.observed.pod(member, draft.records.attempt(member))
    return pod is not None and pod.phase == "Succeeded" and not pod.terminating


def decides_success(draft: Draft, members: frozenset[MemberId]) -> set[MemberId]:
    """Return the members whose success is the Trainer's (TR08)."""
    spec = draft.observed.trainer.spec
    has_master = spec.topology.masters > 0
    policy = spec.success_policy or (SuccessPolicy.CHIEF if has_master else SuccessPolicy.ALL_WORKERS)
    if policy is SuccessPolicy.CHIEF:
        workers = {member for member in members if member.role == "worker"}
        return {MemberId("master", 0) if has_master else min(workers, default=MemberId("worker", 0))}
    return {member for member in members if member.role == "worker"}


def _last(draft: Draft) -> int:
    steps = [agent.beat.step for member in members_of(draft) if (agent := live(draft, member)) is not None]
    draft.status.global_step = max([draft.status.global_step or 0, *steps])
    return draft.status.global_step


def end(draft: Draft, phase: Phase, reason: str, message: str) -> None:
    """Write the terminal phase, once."""
    status = draft.status
    status.phase = phase
    status.reason = reason
    status.message = message[:1024]
    status.completion_time = draft.observed.now
    status.pending_change = None
    draft.event(reason, message[:1024], warning=phase is Phase.FAILED)


def fail_at_deadline(draft: Draft) -> bool:
    """Fail a Trainer that was active for longer than it may be (TR03)."""
    deadline = draft.observed.trainer.spec.active_deadline_seconds
    if (
        deadline is None
        or draft.status.start_time is None
        or not draft.passed(draft.status.start_time, deadline)
    ):
        return False
    end(draft, Phase.FAILED, "DeadlineExceeded", f"active for longer than activeDeadlineSeconds {deadline}")
    return True


def clean_up(draft: Draft) -> None:
    """Release agents and pods of a finished Trainer, then the Trainer itself when its time to live is over."""
    spec, status = draft.observed.trainer.spec, draft.status
    undecided = any(checkpoint.open for checkpoint in draft.observed.checkpoints)
    if not undecided or draft.passed(status.completion_time, DECISION_GRACE):
        draft.actions.append(CloseAgents())
        for pods in draft.observed.pods.values():
            for pod in pods:
                if _goes(draft, pod):
                    draft.delete(pod)
    ttl = spec.ttl_seconds_after_finished
    if ttl is not None and draft.passed(status.completion_time, ttl):
        draft.actions.append(DeleteTrainer())


def _goes(draft: Draft, pod: PodView) -> bool:
    """Whether clean-up deletes a pod now: agents get time to end by themselves first (TR09, TR14)."""
    policy = draft.observed.trainer.spec.clean_pod_policy
    if policy is CleanPodPolicy.NONE or (policy is CleanPodPolicy.RUNNING and not pod.alive):
        return False
    return not pod.alive or draft.passed(draft.status.completion_time, CLOSE_GRACE)


def must_rest(draft: Draft) -> bool:
    """Whether it is to be suspended, or is being so: that runs to its end even if the wish is withdrawn (TR34)."""
    change = draft.status.pending_change
    return draft.observed.trainer.spec.suspend or (change is not None and change.reason == "Suspend")


def _release(draft: Draft) -> None:
    for member, pods in draft.observed.pods.items():
        for pod in pods:
            drain.release(draft, member, pod, budget=drain.grace_of(draft))


def suspend(draft: Draft) -> None:
    """Bring a Trainer to rest: its state is committed, then all pods go, and nothing is written any more."""
    status = draft.status
    if status.phase is Phase.SUSPENDED:
        _release(draft)
        return
    if status.membership.phase == ACTIVE:
        succeed_when_done(draft)
        if status.phase is Phase.SUCCEEDED:
            return  # nothing is left to suspend
        if status.pending_change is None or status.pending_change.reason != "Suspend":
            # Members may already wait at the checkpoint of a change that this one replaces.
            begun = status.pending_change.checkpoint if status.pending_change is not None else ""
            status.pending_change = PendingChange(
                reason="Suspend", since=draft.observed.now, checkpoint=begun
            )
            draft.event("Suspending", "spec.suspend is set: a checkpoint is taken, then the pods go")
        if not stopped_at_checkpoint(draft, CheckpointReason.PRE_EVICT):
            return
    _release(draft)
    disband(draft, RESUMED)
    status.gang = None
    status.recovery = None
    status.allocation = None
    status.start_time = None
    status.phase = Phase.SUSPENDED
    draft.event("Suspended", f"no pods run; resumes from step {_restorable(draft)}")


def resume(draft: Draft) -> bool:
    """Leave the Suspended phase once every old pod is gone (TR34); false while one is still there."""
    if draft.status.phase is not Phase.SUSPENDED:
        return True
    if any(draft.observed.pods.values()):
        _release(draft)  # once more: the first delete may have failed
        return False
    draft.status.phase = Phase.PENDING
    desired = gather(draft)
    draft.event("Resumed", f"pods are created again: {format_members(desired)}")
    return True


def _restorable(draft: Draft) -> int:
    last = draft.status.last_checkpoint
    return last.step if last is not None else 0
