"""What the State Tree hears of each member: one observation as inputs of its table (ST1). Pure."""

from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import Input
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import Failure, FailureClass
from trainer_operator.trainer.membership import desired_members, is_of_epoch, live, members_of

_PHASES = {
    "init": Input.INIT,
    "rendezvous": Input.RENDEZVOUS,
    "checkpoint": Input.CHECKPOINT,
    "eval": Input.ADVANCED,
    "waiting_ps": Input.WAITING_PS,
    "paused": Input.PAUSED,
    "draining": Input.DRAINING,
}


def input_of(failure: Failure) -> Input:
    """Return what a failure is to the member's state."""
    if failure.kind in {FailureClass.STALL, FailureClass.STARTUP}:
        return Input.HARD
    return Input.GONE if failure.pod_gone else Input.EXIT_N


def observe(draft: Draft) -> None:
    """Note what pods and beats say of every member, before the decisions of this pass."""
    for member in desired_members(draft.observed.trainer) | members_of(draft):
        happened = _input(draft, member)
        if happened is not None:
            draft.happened(member, happened)


def observe_suspicion(draft: Draft) -> None:
    """Note who is suspect and who stands still, after both were judged."""
    status = draft.status
    stalled = status.stall.member if status.stall is not None else ""
    if not status.suspects and not stalled:
        return
    for member in members_of(draft):
        if str(member) == stalled:
            draft.happened(member, Input.HARD, cause="Stalled")
        elif str(member) in status.suspects:
            draft.happened(member, Input.SOFT, cause="Suspect")


def _input(draft: Draft, member: MemberId) -> Input | None:
    epoch = draft.status.membership.epoch
    if draft.records.is_done(member, epoch):
        return Input.EXIT_0
    agent = live(draft, member)
    if agent is None:
        return None  # a pod that never spoke is Pending; one that fell silent is judged by the lost window
    beat = agent.beat
    if agent.done:
        return Input.EXIT_0
    if agent.crashed:
        return Input.EXIT_N if is_of_epoch(draft.status.membership, agent) else Input.RENDEZVOUS
    if beat.proc == "none":
        return Input.RENDEZVOUS if beat.prepared else Input.INIT
    if beat.phase != "train":
        return _PHASES.get(beat.phase)
    if member.role == "ps" or beat.steps == "none" or beat.step > draft.status.membership.restore_step:
        return Input.SAME if str(member) in draft.status.suspects else Input.ADVANCED
    return Input.SAME
