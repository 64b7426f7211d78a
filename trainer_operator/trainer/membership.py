"""Membership: epochs, who is in one, and from which step it starts (ME1 to ME9, PSR).

    epoch 0 ──all live──▶ Preparing(1) ──all prepared──▶ Active(1) ──failure, scale──▶ Preparing(2) …

Nobody trains while an epoch is Preparing. In parameter-server mode a worker's failure leaves the epoch alone, and
the loss of a server moves only psEpoch: Serving ──loss──▶ Recovering ──all servers live──▶ Serving, one psEpoch later.
A soft epoch is Active at once: Active(1) ──step boundary──▶ Active(2), with the same processes (`softepoch`).
Everything here is pure; the new state is written to status before any agent hears of it (MG2).
"""

from datetime import datetime

from trainer_operator.api.status import MembershipPhase, MembershipStatus, Rollback, ServerPhase
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.trainer import serving
from trainer_operator.trainer.agreement import Offer, agreed_step
from trainer_operator.trainer.branching import is_recorded
from trainer_operator.trainer.draft import Draft, MarkCorrupt
from trainer_operator.trainer.failures import Failure, current_agent, lost_window
from trainer_operator.trainer.ranges import format_members, parse_members
from trainer_operator.trainer.restore import choose, has_pinned, newest_committed, start_at
from trainer_operator.trainer.views import Observed

PREPARING = MembershipPhase.PREPARING
ACTIVE = MembershipPhase.ACTIVE
RECOVERING = ServerPhase.RECOVERING
SERVING = ServerPhase.SERVING
RESUMED, REQUEUED = "Resumed", "Requeued"
NEW_PODS = frozenset({RESUMED, REQUEUED})
"""Why an epoch began for which every member gets a new pod under its old name."""
WAIT_FOR_WORKERS = 5.0
"""Seconds that a lost server's successor waits for the workers to report their last step."""


def desired_members(trainer: Trainer) -> frozenset[MemberId]:
    """Return the members that the spec asks for."""
    topology = trainer.spec.topology
    counts = {"master": topology.masters, "worker": topology.workers}
    trainers = {MemberId(role, index) for role, count in counts.items() for index in range(count)}
    return frozenset(trainers | set(serving.all_servers(trainer)))


def has_servers(trainer: Trainer) -> bool:
    """Whether the Trainer runs in parameter-server mode."""
    return trainer.spec.topology.parameter_servers > 0


def members_of(draft: Draft) -> frozenset[MemberId]:
    """Return the members of the epoch in the draft's status."""
    return parse_members(draft.status.membership.members)


def standbys(draft: Draft) -> frozenset[MemberId]:
    """Return the servers that nobody waits for: another one serves their shard (PSR3)."""
    return serving.standbys(draft.observed.trainer, draft.status.membership)


def live_agent(observed: Observed, member: MemberId, attempt: int) -> AgentView | None:
    """Return the member's agent if its pod can train and it was heard within the lost window."""
    pod = observed.pod(member, attempt)
    if pod is None or not pod.alive:
        return None
    agent = current_agent(observed, member, pod, attempt)
    return agent if agent is not None and agent.age <= lost_window(observed) else None


def live(draft: Draft, member: MemberId) -> AgentView | None:
    """Return the live agent of the member's current attempt."""
    return live_agent(draft.observed, member, draft.records.attempt(member))


def trains(draft: Draft) -> bool:
    """Whether the epoch may train: it is Active, and its parameter servers serve."""
    membership = draft.status.membership
    return membership.phase == ACTIVE and membership.ps_phase != RECOVERING


def oldest_epoch(membership: MembershipStatus) -> int:
    """Return the oldest epoch whose processes train in the present one; soft epochs end no process (ME5)."""
    return membership.process_epoch or membership.epoch


def is_of_epoch(membership: MembershipStatus, agent: AgentView) -> bool:
    """Whether what the agent says of its process counts in the present epoch."""
    return agent.beat.epoch >= oldest_epoch(membership)


def is_prepared(membership: MembershipStatus, agent: AgentView) -> bool:
    """Whether nothing stands between the agent and the present epoch; a process goes on into a soft one."""
    goes_on = agent.running and membership.phase == ACTIVE
    return agent.beat.prepared >= (oldest_epoch(membership) if goes_on else membership.epoch)


def next_epoch(draft: Draft, members: frozenset[MemberId], reason: str) -> None:
    """Open the next epoch: Preparing, with these members; all processes start anew in it."""
    membership = draft.status.membership
    draft.status.global_step = last_step(
        draft
    )  # replacements soon overwrite what their predecessors reported
    _open(draft)
    membership.members = format_members(members)
    membership.reason = reason
    if has_servers(draft.observed.trainer):
        membership.ps_phase = RECOVERING
    draft.status.pending_change = None


def disband(draft: Draft, reason: str) -> None:
    """End the epoch together with its pods; nothing is charged, and the next one begins with pods of the same names."""
    status, membership = draft.status, draft.status.membership
    status.global_step = last_step(draft)  # the agents' word is gone with their pods
    if membership.epoch:
        _open(draft)
    membership.reason = reason
    membership.members = ""
    status.pending_change = None


def _open(draft: Draft) -> None:
    """Give the next epoch its number; processes are started anew in it."""
    membership = draft.status.membership
    membership.epoch += 1
    membership.process_epoch = membership.epoch
    membership.phase = PREPARING
    membership.since = draft.observed.now


def gather(draft: Draft) -> frozenset[MemberId]:
    """Begin to form the epoch that follows `disband`: its members are waited for from now on."""
    desired = desired_members(draft.observed.trainer)
    membership = draft.status.membership
    if membership.epoch:
        membership.members = format_members(desired)
        membership.since = draft.observed.now
    return desired


def soft_epoch(draft: Draft, members: frozenset[MemberId], reason: str, *, step: int) -> None:
    """Open the next epoch at once, with the processes that run: all of them go on from `step` (ME5).

    Assumptions: every server holds the state of exactly this step, and waits.
    """
    status, membership = draft.status, draft.status.membership
    reached = last_step(draft)
    done = [member for member in members if draft.records.is_done(member, membership.epoch)]
    membership.process_epoch = oldest_epoch(membership)
    membership.epoch += 1
    membership.ps_epoch += 1
    membership.members = format_members(members)
    membership.world = sum(member.role != "ps" for member in members)
    membership.restore_step, membership.restore_from = step, ""
    membership.reason = reason
    membership.since = draft.observed.now
    for member in done:
        draft.records.set_done(member, membership.epoch)
    status.pending_change = None
    lost = _roll_back(draft, reached, step)
    draft.event(
        "EpochStarted",
        f"membership epoch {membership.epoch} ({reason}): {membership.members} from step {step}{lost}; "
        "no process was restarted",
    )


def after_failures(draft: Draft, group: list[Failure], *, everyone: bool = False) -> str:
    """Move the epoch, or only psEpoch, for a group of failures that were counted; say what follows for the others.

    With `everyone` all members restart, also in parameter-server mode (failure rule RestartAll, RC6).
    """
    membership = draft.status.membership
    if membership.phase != ACTIVE:
        return ""
    in_epoch = members_of(draft)
    hit = [failure for failure in group if failure.member in in_epoch]
    if not hit:
        return ""
    if everyone or not has_servers(draft.observed.trainer):
        next_epoch(draft, desired_members(draft.observed.trainer), hit[0].reason)
        return ", with all members from the last checkpoint"
    served = serving.serving_members(draft.observed.trainer, membership)
    servers = [failure for failure in hit if failure.member in served]
    if not servers:
        return ", the others train on"
    for failure in servers:
        _hand_over(draft, failure.member, lost={each.member for each in group})
    draft.status.global_step = last_step(draft)
    if membership.ps_phase == SERVING:  # while Recovering nothing was served under the new number yet
        membership.ps_epoch += 1
    membership.ps_phase = RECOVERING
    membership.reason = servers[0].reason
    membership.since = draft.observed.now
    return f", workers wait for parameter-server epoch {membership.ps_epoch}"


def _hand_over(draft: Draft, server: MemberId, *, lost: set[MemberId]) -> None:
    """Let the standby with the newest snapshot serve in place of a lost server, if there is one (PSR3)."""
    trainer, membership = draft.observed.trainer, draft.status.membership
    current = membership.ps_epoch - (membership.ps_phase == RECOVERING)
    offers: list[tuple[int, MemberId]] = []
    for member in serving.replicas_of(trainer, serving.shard_of(trainer, server)):
        agent = live(draft, member) if member not in lost else None
        if agent is None or not agent.running or not is_of_epoch(membership, agent):
            continue
        if agent.beat.have and agent.beat.ps_epoch == current:  # an older one may have void steps
            offers.append((-max(agent.beat.have), member))
    if offers:
        successor = min(offers)[1]
        serving.let_serve(trainer, membership, successor)
        draft.event(
            "StandbyTakesOver", f"{successor} serves in place of {server}, with the snapshots that it holds"
        )


def _seat(draft: Draft) -> None:
    """While nobody trains, let a server that is there serve in place of one that is not."""
    trainer, membership = draft.observed.trainer, draft.status.membership
    for shard, server in enumerate(serving.serving_members(trainer, membership)):
        if live(draft, server) is not None:
            continue
        there = [member for member in serving.replicas_of(trainer, shard) if live(draft, member) is not None]
        if there:
            serving.let_serve(trainer, membership, there[0])


def advance(draft: Draft) -> None:
    """Take the step of the epoch machine that the observed agents allow."""
    membership = draft.status.membership
    desired = desired_members(draft.observed.trainer)
    if membership.epoch == 0:
        chosen = forming(draft, draft.status.start_time)
        if chosen is not None:
            next_epoch(draft, chosen, "Started")
        return
    if membership.phase == PREPARING:
        _prepare(draft, desired)
    elif membership.ps_phase == RECOVERING:
        _recover_servers(draft)


def forming(draft: Draft, since: datetime | None) -> frozenset[MemberId] | None:
    """Return who could form an epoch now; None while it is right to wait (ME3, ME6).

    Complete: at once. Without some workers: an elastic Trainer goes on with elastic.minWorkers or more, 15 s after
    `since` when the others have no node, and after pendingTimeoutSeconds when they are on their way.
    """
    _seat(draft)
    present, missing = presence(draft)
    if not missing:
        return present
    if not may_go_without(draft, missing):
        return None
    coming = any(pod.alive and pod.node for member in missing for pod in draft.observed.pods.get(member, ()))
    timeout = float(draft.observed.trainer.spec.pending_timeout_seconds)
    return (
        present if draft.passed(since, timeout if coming else draft.observed.settings.partial_after) else None
    )


def presence(draft: Draft) -> tuple[frozenset[MemberId], frozenset[MemberId]]:
    """Return who of the wanted members is there, or need not be, and who is missing."""
    desired, optional = desired_members(draft.observed.trainer), standbys(draft)
    present = frozenset(m for m in desired if m in optional or live(draft, m) is not None)
    return present, desired - present


def may_go_without(draft: Draft, missing: frozenset[MemberId]) -> bool:
    """Whether an elastic Trainer may train without these members: only workers, and enough of them are left (ME3)."""
    spec = draft.observed.trainer.spec
    if spec.elastic is None or any(member.role != "worker" for member in missing):
        return False
    return spec.topology.workers - len(missing) >= spec.elastic.min_workers


def _prepare(draft: Draft, desired: frozenset[MemberId]) -> None:
    membership = draft.status.membership
    chosen = forming(draft, membership.since)
    if members_of(draft) != (chosen or desired):  # nobody trains yet, so the set may still change
        membership.members = format_members(chosen or desired)
    start = choose(draft)
    planned = membership.ps_epoch + 1 if has_servers(draft.observed.trainer) else 0
    # Asked while members come, so that nobody waits for the pin.
    is_pinned = has_pinned(draft, start.source, ps_epoch=planned)
    if chosen is None:
        return
    for member in chosen - standbys(draft):
        agent = live(draft, member)
        if agent is None or agent.beat.prepared < membership.epoch:
            return
    recovery = draft.status.recovery
    if recovery is not None and not draft.passed(recovery.not_before, 0):
        return
    # A Pending one has stored nothing, and waits itself for an epoch that trains.
    undecided = [c for c in draft.observed.checkpoints if c.open and c.state == "Staging"]
    if undecided and not draft.passed(membership.since, 30.0):
        return
    if not is_pinned or not is_recorded(draft, start, members=chosen - standbys(draft)):
        return
    reached, step = last_step(draft), start.step
    membership.phase = ACTIVE
    membership.since = draft.observed.now
    membership.restore_step = step
    membership.restore_from = start.source.id if start.source is not None else ""
    draft.records.settle()
    membership.world = sum(member.role != "ps" for member in chosen)
    if has_servers(draft.observed.trainer):
        membership.ps_epoch += 1
        membership.ps_phase = SERVING
    lost = _roll_back(draft, reached, step)
    draft.event(
        "EpochStarted",
        f"membership epoch {membership.epoch} ({membership.reason}): {membership.members} from step {step}{lost}",
    )
    missing = desired - chosen
    if missing:
        draft.event(
            "ContinuingSmaller",
            f"{format_members(missing)} did not come, so {len(chosen)} of {len(desired)} members train; they join when "
            "there is room, or lower topology.workers",
            warning=True,
        )


def _recover_servers(draft: Draft) -> None:
    """Choose S*, the newest step that every server can offer, and let the servers serve (PSR3, PSR4, RS3)."""
    membership = draft.status.membership
    servers = serving.serving_members(draft.observed.trainer, membership)
    committed = newest_committed(draft.observed.checkpoints)
    offers: list[Offer] = []
    for server in servers:
        agent = live(draft, server)
        if agent is None or not is_prepared(membership, agent):
            return
        offers.append(Offer(frozenset(agent.beat.have), agent.beat.ps_epoch))
    recovery = draft.status.recovery
    waits = recovery is not None and any(str(server) in recovery.members for server in servers)
    if recovery is not None and waits and not draft.passed(recovery.not_before, 0):
        return
    if _still_training(draft) and not draft.passed(membership.since, WAIT_FOR_WORKERS):
        return
    served, since = membership.ps_epoch - 1, membership.restore_step
    step = agreed_step(offers, served=served, since=since, committed=committed.step if committed else 0)
    from_store = committed is not None and committed.step == step
    start = start_at(draft, step, committed if from_store else None)
    if not has_pinned(draft, start.source, ps_epoch=membership.ps_epoch):
        return
    if not is_recorded(draft, start, members=servers):
        return
    reached = last_step(draft)
    membership.restore_step = step
    membership.restore_from = committed.id if committed is not None and from_store else ""
    membership.ps_phase = SERVING
    change = draft.status.pending_change
    if change is not None and change.soft:
        change.since = draft.observed.now  # nobody could come to stand before
    lost = _roll_back(draft, reached, step)
    draft.event(
        "ParameterServerServing",
        f"parameter-server epoch {membership.ps_epoch} serves from step {step}{lost}; no worker was restarted",
    )


def _still_training(draft: Draft) -> bool:
    """Whether a live worker has not noticed yet that its server is away; its last step is not known before."""
    for member in members_of(draft):
        agent = live(draft, member) if member.role != "ps" else None
        if agent is not None and agent.beat.proc == "running" and agent.beat.phase in {"train", "checkpoint"}:
            return True
    return False


def last_step(draft: Draft) -> int:
    """Return the highest step that status, or a member of the epoch that is running or just ended, knows of."""
    membership = draft.status.membership
    epoch = membership.epoch - 1 if membership.phase == PREPARING else oldest_epoch(membership)
    server_epoch = membership.ps_epoch - (membership.ps_phase == RECOVERING)
    steps = [
        agent.beat.step
        for agent in draft.observed.agents.values()
        if agent.beat.epoch >= epoch and agent.beat.ps_epoch >= server_epoch
    ]
    return max([draft.status.global_step, *steps])


def restore_failed(draft: Draft, results: dict[MemberId, str]) -> None:
    """A restore was refused by an agent: mark the checkpoint and start again from an older one (RS2)."""
    membership = draft.status.membership
    name = next((c.name for c in draft.observed.checkpoints if c.id == membership.restore_from), None)
    if name is None or membership.phase != ACTIVE:
        return
    member, message = next(iter(sorted(results.items())))
    draft.actions.append(MarkCorrupt(name, f"{member}: {message}"))
    draft.event("RestoreFailed", f"checkpoint {name} cannot be restored by {member}: {message}", warning=True)
    next_epoch(draft, members_of(draft), "RestoreFailed")


def _roll_back(draft: Draft, before: int, step: int) -> str:
    """Record every step that is lost, and say so; a voluntary change loses none (ME7)."""
    status = draft.status
    status.global_step = step
    if step >= before:
        return ""
    reason = status.membership.reason
    status.last_rollback = Rollback(from_step=before, to_step=step, reason=reason, at=draft.observed.now)
    status.rollbacks += 1
    return f", back from step {before}"
