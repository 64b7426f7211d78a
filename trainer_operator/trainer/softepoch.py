"""Soft epochs: with parameter servers the number of workers changes without ending a process (ME5 to ME8).

    wanted ──new workers wait in their SDK──▶ servers wait after step s ──all of them──▶ next epoch, Active at once
       └──given up before the last arrow: the same members go on in the next epoch

New workers are started beside the old world and get their place when it is theirs. The servers are what all workers
meet at, so a step is either applied by all of them with the old world or computed anew by the new one: the gradients
of a step that was begun are thrown away with the psEpoch they were sent under. All programs must have said that they
can do it; where one didn't, or the servers don't come to stand, the change restarts all processes. Pure.
"""

from trainer_operator.api.status import MembershipStatus, PendingChange
from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import in_grace
from trainer_operator.trainer.membership import (
    desired_members,
    has_servers,
    is_of_epoch,
    live,
    members_of,
    next_epoch,
    soft_epoch,
)
from trainer_operator.trainer.serving import serving_members


def is_possible(draft: Draft, target: frozenset[MemberId]) -> bool:
    """Whether the members can change to `target` without ending a process: workers only, and all programs can."""
    members = members_of(draft)
    if not has_servers(draft.observed.trainer) or any(member.role == "ps" for member in members ^ target):
        return False
    agents = {member: agent for member in members if (agent := live(draft, member)) is not None}
    said = {m: a for m, a in agents.items() if a.running and a.beat.phase != "init"}
    if any(member not in said for member in _servers(draft)):
        return False
    return all(agent.beat.soft_epochs for agent in said.values())


def newcomers(draft: Draft) -> frozenset[MemberId]:
    """Return the members that are started beside the world that trains, to join the next epoch."""
    change = draft.status.pending_change
    if change is None or not change.soft:
        return frozenset()
    return desired_members(draft.observed.trainer) - members_of(draft)


def advance(draft: Draft, change: PendingChange, target: frozenset[MemberId]) -> None:
    """Take the step of a soft change that the observed agents allow."""
    servers = [live(draft, member) for member in _servers(draft)]
    running = [server for server in servers if server is not None and server.running]
    if len(running) < len(servers):
        return  # a lost server comes first; the change goes on with the next psEpoch
    reached = max(server.beat.step for server in running)
    if change.step is None:
        waiting = all(_waits(draft, member) for member in target - members_of(draft))
        if waiting and not any(checkpoint.open for checkpoint in draft.observed.checkpoints):
            change.step, change.since = reached, draft.observed.now
        return
    change.step = max(change.step, reached)
    if all(_stands(draft, server, change.step) for server in running):
        _take(draft, change.step, target)
    elif draft.passed(change.since, draft.observed.settings.checkpoint_timeout):
        draft.event(
            "ServersNotAtOneStep",
            f"the parameter servers did not come to stand after step {change.step}; all processes are restarted",
            warning=True,
        )
        next_epoch(draft, desired_members(draft.observed.trainer), "Scaled")


def _take(draft: Draft, step: int, target: frozenset[MemberId]) -> None:
    """Begin the epoch; with the members of the present one if somebody went meanwhile or has finished."""
    members = members_of(draft)
    if not all(_waits(draft, member) for member in target - members):
        if in_grace(draft.observed):
            draft.look_again(1.0)  # a new leader has not heard of all of them yet
            return
        target = members
    if is_ending(draft):
        target = members
    soft_epoch(draft, target, "Scaled" if target != members else "ScaleCancelled", step=step)


def is_ending(draft: Draft) -> bool:
    """Whether a member has finished: nobody is added to a training that ends, or taken from it."""
    membership = draft.status.membership
    for member in members_of(draft):
        agent = live(draft, member)
        if draft.records.is_done(member, membership.epoch):
            return True
        if agent is not None and agent.done and is_of_epoch(membership, agent):
            return True
    return False


def pause_id(membership: MembershipStatus, server: AgentView, step: int) -> str:
    """Return the id of the order to wait after a step: once per process and server epoch."""
    return f"pause:{membership.epoch}:{membership.ps_epoch}:{server.beat.run}:{step}"


def _servers(draft: Draft) -> list[MemberId]:
    return serving_members(draft.observed.trainer, draft.status.membership)


def _waits(draft: Draft, member: MemberId) -> bool:
    """Whether a new member's process is there and waits in its SDK to be let in."""
    agent = live(draft, member)
    return (
        agent is not None
        and agent.running
        and is_of_epoch(draft.status.membership, agent)
        and agent.beat.phase == "rendezvous"
    )


def _stands(draft: Draft, server: AgentView, step: int) -> bool:
    """Whether a server waits after exactly this step because it was told to: it stays there until it is told more."""
    beat, membership = server.beat, draft.status.membership
    answer = server.results.get(pause_id(membership, server, step))
    is_told = answer is not None and answer.ok
    return is_told and (beat.phase, beat.step, beat.ps_epoch) == ("paused", step, membership.ps_epoch)
