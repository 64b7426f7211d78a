"""What each agent shall do now: a function of status and of what the agents have done (MG1, MG2).

Preparing(E)  -> Prepare(E) to every member that has not prepared E
Active(E)     -> Go(E) to every prepared member, to servers first, then to the master, then to workers: each role waits
              until those before it listen, but not for ever (TR47); a Go with a new id respawns a process that ended
              a process that was given up while it runs is ended first; while a stall is looked into, stacks are dumped
Recovering    -> nothing: workers wait inside their SDK
Serving       -> Go to the lost server, UpdatePS to surviving servers and to workers
"""

from collections.abc import Mapping

from trainer_operator.api.status import TrainerStatus
from trainer_operator.topology.members import AgentView, Directive, MemberId
from trainer_operator.trainer import stall
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.environment import Peer, frameworks, peers_of, world_size
from trainer_operator.trainer.membership import ACTIVE, PREPARING, SERVING, has_servers, live, members_of
from trainer_operator.trainer.records import Records

BEFORE: Mapping[str, frozenset[str]] = {
    "ps": frozenset(),
    "master": frozenset({"ps"}),
    "worker": frozenset({"ps", "master"}),
}
"""By role, the roles that listen before it starts."""
LISTEN_WAIT = 30.0
"""Seconds after which the others start all the same: not every program listens on the port it was given."""


def directives_of(draft: Draft) -> dict[MemberId, tuple[Directive, ...]]:
    """Return the directives of the Trainer reconciler for every member of the epoch."""
    membership = draft.status.membership
    if membership.phase not in {PREPARING, ACTIVE}:
        return {}
    agents = {member: agent for member in members_of(draft) if (agent := live(draft, member)) is not None}
    if membership.phase == PREPARING:
        return {
            member: (_prepare(draft.status),)
            for member, agent in agents.items()
            if _must_prepare(draft, agent)
        }
    return _active(draft, agents)


def go_id(status: TrainerStatus, member: MemberId) -> str:
    """Return the id of a member's Go: another epoch or another handled failure makes another one."""
    handled = Records(status).get(member).handled
    return f"go:{status.membership.epoch}:{handled or '-'}"


def _must_prepare(draft: Draft, agent: AgentView) -> bool:
    return agent.beat.prepared < draft.status.membership.epoch


def _prepare(status: TrainerStatus) -> Directive:
    membership = status.membership
    return Directive(
        f"prepare:{membership.epoch}", "Prepare", {"epoch": membership.epoch, "psEpoch": membership.ps_epoch}
    )


def _active(draft: Draft, agents: Mapping[MemberId, AgentView]) -> dict[MemberId, tuple[Directive, ...]]:
    status = draft.status
    servers_mode = has_servers(draft.observed.trainer)
    if servers_mode and status.membership.ps_phase != SERVING:
        return {
            member: (_prepare(status),) for member, agent in agents.items() if _must_prepare(draft, agent)
        }
    peers = peers_of({member: _address(draft, member) for member in members_of(draft)})
    must_be_known = [peer for peer in peers if not servers_mode or peer.member.role == "ps"]
    may_start = all(peer.address for peer in must_be_known)
    awaited = _not_listening(draft, agents)
    wanted: dict[MemberId, tuple[Directive, ...]] = {}
    for member, agent in agents.items():
        if _must_prepare(draft, agent):
            wanted[member] = (_prepare(status),)
            continue
        directives = []
        if _must_end(draft, member, agent):
            wanted[member] = (
                Directive(f"restart:{agent.beat.process}", "RestartProcess", {"run": agent.beat.run}),
            )
            continue
        if status.stall is not None and agent.running:
            directives.append(Directive(stall.dump_id(draft, agent), "DumpStacks", {}))
        if (
            may_start
            and _may_start(draft, member)
            and (agent.running or not _is_early(draft, member, awaited))
            and not draft.records.is_done(member, status.membership.epoch)
        ):
            directives.append(_go(draft, peers, member))
        if servers_mode and agent.running and agent.beat.ps_epoch < status.membership.ps_epoch:
            directives.append(_update_servers(status, peers))
        wanted[member] = tuple(directives)
    return wanted


def _must_end(draft: Draft, member: MemberId, agent: AgentView) -> bool:
    """Whether the process that runs was given up already: it stands still and others go on without it (SL4)."""
    return agent.running and draft.records.get(member).handled == agent.beat.process


def _address(draft: Draft, member: MemberId) -> tuple[str, int]:
    """Where the member's current attempt listens; empty while its agent was not heard of."""
    agent = draft.observed.agents.get(member)
    if agent is None or agent.beat.attempt != draft.records.attempt(member):
        return ("", 0)
    if agent.beat.prepared < draft.status.membership.epoch:
        return ("", 0)
    return (agent.beat.address, agent.beat.port)


def _may_start(draft: Draft, member: MemberId) -> bool:
    """Whether the delay after the member's last failure is over (RC1)."""
    recovery = draft.status.recovery
    if recovery is None or str(member) not in recovery.members:
        return True
    return draft.passed(recovery.not_before, 0)


def _not_listening(draft: Draft, agents: Mapping[MemberId, AgentView]) -> set[str]:
    """Return the roles of which a member doesn't listen yet, or is not there; workers listen for nobody."""
    found = set()
    for member in members_of(draft):
        agent = agents.get(member)
        if agent is None or not agent.running or agent.beat.listening is False:
            found.add(member.role)
    return found


def _is_early(draft: Draft, member: MemberId, awaited: set[str]) -> bool:
    """Whether roles that start before the member's are not there yet; none is waited for longer than LISTEN_WAIT."""
    return bool(awaited & BEFORE[member.role]) and not draft.passed(
        draft.status.membership.since, LISTEN_WAIT
    )


def _go(draft: Draft, peers: list[Peer], member: MemberId) -> Directive:
    status, membership = draft.status, draft.status.membership
    from_store = membership.restore_from if membership.restore_step else ""
    args = {
        "epoch": membership.epoch,
        "psEpoch": membership.ps_epoch,
        "rank": next(peer.rank for peer in peers if peer.member == member),
        "world": membership.world or world_size(peers),
        "env": frameworks(peers, member, uid=draft.observed.trainer.metadata.uid, epoch=membership.epoch),
        "members": [peer.to_wire() for peer in peers],
        "restore": {"ckpt": from_store, "step": membership.restore_step} if from_store else None,
        "restoreStep": membership.restore_step,
        "ring": member.role == "ps" and membership.restore_step > 0 and not from_store,
        "reason": membership.reason,
    }
    return Directive(go_id(status, member), "Go", args)


def _update_servers(status: TrainerStatus, peers: list[Peer]) -> Directive:
    membership = status.membership
    servers = [peer.to_wire() for peer in peers if peer.member.role == "ps"]
    return Directive(
        f"update-ps:{membership.epoch}:{membership.ps_epoch}",
        "UpdatePS",
        {"psEpoch": membership.ps_epoch, "members": servers, "step": membership.restore_step},
    )
