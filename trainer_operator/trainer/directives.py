"""What each agent shall do now: a function of status and of what the agents have done (MG1, MG2).

Preparing(E)  -> Prepare(E) to every member that has not prepared E
Active(E)     -> Go(E) to every prepared member, to servers first, then to the master, then to workers: each role waits
              until those before it listen, but not for ever (TR47); a Go with a new id respawns a process that ended
              a process that was given up while it runs is ended first; while a step is overdue, or a stall looked into,
              stacks are dumped
Recovering    -> nothing: workers wait inside their SDK
Serving       -> Go to the lost server, UpdatePS to surviving servers and to workers
Soft change   -> Go to new members, whose processes wait to be let in; Pause to servers at the step that was chosen
              -> then UpdatePS(E+1) to every process that runs, and Resume to servers
"""

from collections.abc import Mapping

from trainer_operator.api.status import TrainerStatus
from trainer_operator.topology.members import AgentView, Directive, MemberId
from trainer_operator.trainer import softepoch, sources, stall
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.environment import Peer, frameworks, peers_of, world_size
from trainer_operator.trainer.membership import (
    ACTIVE,
    PREPARING,
    SERVING,
    has_servers,
    is_prepared,
    live,
    members_of,
    oldest_epoch,
    standbys,
)
from trainer_operator.trainer.records import Records
from trainer_operator.trainer.serving import shard_of

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
    return {**_active(draft, agents), **_joining(draft)}


def go_id(status: TrainerStatus, member: MemberId) -> str:
    """Return the id of a member's Go: another epoch or another handled failure makes another one."""
    handled = Records(status).get(member).handled
    return f"go:{status.membership.epoch}:{handled or '-'}"


def _must_prepare(draft: Draft, agent: AgentView) -> bool:
    return not is_prepared(draft.status.membership, agent)


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
    waiting = standbys(draft)
    peers = peers_of({member: _address(draft, member) for member in members_of(draft) - waiting})
    must_be_known = [peer for peer in peers if not servers_mode or peer.member.role == "ps"]
    may_start = all(peer.address for peer in must_be_known)
    awaited = _not_listening(draft, agents)
    holders = sources.holders(draft, status.membership.restore_from)
    wanted: dict[MemberId, tuple[Directive, ...]] = {}
    for member, agent in agents.items():
        if _must_prepare(draft, agent):
            wanted[member] = (_prepare(status),)
            continue
        directives: list[Directive] = []
        if _must_end(draft, member, agent):
            wanted[member] = (
                Directive(f"restart:{agent.beat.process}", "RestartProcess", {"run": agent.beat.run}),
            )
            continue
        directives += stall.looks(draft, member, agent)
        if status.stall is not None and agent.running:
            directives.append(Directive(stall.dump_id(draft, agent), "DumpStacks", {}))
        if (
            may_start
            and agent.beat.prepared >= status.membership.epoch
            and _may_start(draft, member)
            and (agent.running or not _is_early(draft, member, awaited))
            and not draft.records.is_done(member, status.membership.epoch)
        ):
            if member in waiting:
                directives.append(_stand_by(draft, peers, member))
            else:  # who runs needs nobody to ask: what others hold meanwhile is no news for it
                directives.append(_go(draft, peers, member, {} if agent.running else holders))
        if servers_mode and agent.running and agent.beat.ps_epoch < status.membership.ps_epoch:
            directives += _update_servers(status, member, peers)
        if member not in waiting:
            directives += _stop_at_step(status, member, agent)
        wanted[member] = tuple(directives)
    return wanted


def _joining(draft: Draft) -> dict[MemberId, tuple[Directive, ...]]:
    """Start the processes of a soft epoch's new members; they learn their place when it begins (ME6)."""
    wanted: dict[MemberId, tuple[Directive, ...]] = {}
    epoch = draft.status.membership.epoch
    for member in softepoch.newcomers(draft):
        agent = live(draft, member)
        if agent is None:
            continue
        if agent.beat.prepared < epoch:
            wanted[member] = (_prepare(draft.status),)
        elif _may_start(draft, member):
            handled = draft.records.get(member).handled
            args = {"epoch": epoch, "psEpoch": 0, "join": True}
            wanted[member] = (Directive(f"join:{epoch}:{handled or '-'}", "Go", args),)
    return wanted


def _stop_at_step(status: TrainerStatus, member: MemberId, agent: AgentView) -> tuple[Directive, ...]:
    """Have a server wait at the end of the step that a soft change was given."""
    change, membership = status.pending_change, status.membership
    if change is None or change.step is None or member.role != "ps":
        return ()
    if not agent.running or agent.beat.ps_epoch != membership.ps_epoch:
        return ()
    name = softepoch.pause_id(membership, agent, change.step)
    return (Directive(name, "Pause", {"step": change.step}),)


def _must_end(draft: Draft, member: MemberId, agent: AgentView) -> bool:
    """Whether the process that runs was given up already: it stands still and others go on without it (SL4)."""
    return agent.running and draft.records.get(member).handled == agent.beat.process


def _address(draft: Draft, member: MemberId) -> tuple[str, int]:
    """Where the member's current attempt listens; empty while its agent was not heard of."""
    agent = draft.observed.agents.get(member)
    if agent is None or agent.beat.attempt != draft.records.attempt(member):
        return ("", 0)
    if _must_prepare(draft, agent):
        return ("", 0)
    return (agent.beat.address, agent.beat.port)


def _may_start(draft: Draft, member: MemberId) -> bool:
    """Whether the delay after the member's last failure is over (RC1)."""
    recovery = draft.status.recovery
    if recovery is None or str(member) not in recovery.members:
        return True
    return draft.passed(recovery.not_before, 0)


def _not_listening(draft: Draft, agents: Mapping[MemberId, AgentView]) -> set[str]:
    """Return the roles of which a member doesn't listen yet, or is not there; workers listen for nobody, nor do standbys."""
    found = set()
    for member in members_of(draft) - standbys(draft):
        agent = agents.get(member)
        if agent is None or not agent.running or agent.beat.listening is False:
            found.add(member.role)
    return found


def _is_early(draft: Draft, member: MemberId, awaited: set[str]) -> bool:
    """Whether roles that start before the member's are not there yet; none is waited for longer than LISTEN_WAIT."""
    return bool(awaited & BEFORE[member.role]) and not draft.passed(
        draft.status.membership.since, LISTEN_WAIT
    )


def _go(draft: Draft, peers: list[Peer], member: MemberId, holders: sources.Holders) -> Directive:
    status, membership = draft.status, draft.status.membership
    from_store = membership.restore_from if membership.restore_step else ""
    rank = next(peer.rank for peer in peers if peer.member == member)
    args = {
        "epoch": membership.epoch,
        "psEpoch": membership.ps_epoch,
        "rank": rank,
        "world": membership.world or world_size(peers),
        "env": frameworks(peers, member, uid=draft.observed.trainer.metadata.uid, epoch=membership.epoch),
        "members": [peer.to_wire() for peer in peers],
        "restore": {"ckpt": from_store, "step": membership.restore_step} if from_store else None,
        "restoreStep": membership.restore_step,
        "peers": sources.peers_for(holders, member, rank=rank) if from_store else [],
        "ring": member.role == "ps" and membership.restore_step > 0 and not from_store,
        "reason": membership.reason,
    }
    return Directive(go_id(status, member), "Go", args)


def _stand_by(draft: Draft, peers: list[Peer], member: MemberId) -> Directive:
    """Start a standby: it has the rank of its shard, is no peer of anybody, and gets its state from who serves."""
    status, membership = draft.status, draft.status.membership
    args = {
        "epoch": membership.epoch,
        "psEpoch": membership.ps_epoch,
        "rank": shard_of(draft.observed.trainer, member),
        "world": membership.world,
        "members": [peer.to_wire() for peer in peers],
        "reason": "Standby",
    }
    return Directive(go_id(status, member), "Go", args)


def _update_servers(status: TrainerStatus, member: MemberId, peers: list[Peer]) -> list[Directive]:
    """Tell of a new psEpoch; after a soft epoch also who the workers are, and servers may go on."""
    membership = status.membership
    soft = membership.epoch > oldest_epoch(membership)
    args = {
        "psEpoch": membership.ps_epoch,
        "members": [peer.to_wire() for peer in peers if soft or peer.member.role == "ps"],
        "step": membership.restore_step,
    }
    if soft:
        args |= {"epoch": membership.epoch, "world": membership.world}
    name = f"{membership.epoch}:{membership.ps_epoch}"
    directives = [Directive(f"update-ps:{name}", "UpdatePS", args)]
    if soft and member.role == "ps" and status.pending_change is None:
        directives.append(Directive(f"resume:{name}", "Resume", {}))
    return directives
