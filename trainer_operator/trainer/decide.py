"""One decision: from what was observed to a new status and the actions it allows. Pure.

The order is that of importance: is it ours, has it ended, shall it rest, did something fail, what does the epoch
need, which pods are missing, what do the numbers say.
"""

from dataclasses import dataclass
from datetime import timedelta

from trainer_operator.api.profile import EffectiveRetryPolicy, ProfileSnapshot, effective_retry_policy
from trainer_operator.api.status import Phase, RecoveryStatus, TrainerStatus
from trainer_operator.api.trainer import MANAGER, Trainer
from trainer_operator.topology.members import Directive, MemberId
from trainer_operator.trainer import change, checkpoints, exclusion, finish, membership
from trainer_operator.trainer.budget import charge, restart_delay
from trainer_operator.trainer.directives import directives_of, go_id
from trainer_operator.trainer.draft import Action, CreatePod, Draft
from trainer_operator.trainer.failures import Failure, FailureClass, detect, lost_window
from trainer_operator.trainer.phase import is_terminal, roll_up
from trainer_operator.trainer.views import Observed


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, then what to do, then what agents are told, and when to look again (seconds)."""

    status: TrainerStatus
    actions: tuple[Action, ...]
    directives: dict[MemberId, tuple[Directive, ...]]
    wake: float | None


def is_ours(trainer: Trainer) -> bool:
    """Whether this operator manages the Trainer; `managedBy` of another leaves it untouched (TR36)."""
    return trainer.spec.managed_by in {None, "", MANAGER}


def decide(observed: Observed) -> Decision:
    """Decide one pass.

    Guarantees: no I/O, no clock, no chance but `observed.chance`; a terminal Trainer keeps its phase; the same
    observation gives the same decision.
    """
    draft = Draft(observed, observed.trainer.status.model_copy(deep=True))
    _decide(draft)
    told = {} if is_terminal(draft.status) else directives_of(draft)
    return Decision(draft.status, tuple(draft.actions), told, draft.wake)


def _decide(draft: Draft) -> None:
    trainer, status = draft.observed.trainer, draft.status
    checkpoints.follow(draft)
    if is_terminal(status):
        finish.clean_up(draft)
        roll_up(draft)
        return
    if trainer.spec.suspend:
        finish.suspend(draft)
        roll_up(draft)
        return
    if not finish.resume(draft):
        return
    if not _begin(draft):
        roll_up(draft)
        return
    if finish.fail_at_deadline(draft):
        roll_up(draft)
        return
    exclusion.refresh(draft)
    _restores(draft)
    _failures(draft)
    if not is_terminal(status):
        membership.advance(draft)
        change.scale(draft)
        checkpoints.request_when_due(draft)
        finish.succeed_when_done(draft)
    if not is_terminal(status):
        _pods(draft)
        _watch_silence(draft)
    roll_up(draft)


def _begin(draft: Draft) -> bool:
    """Take over the profile and start the clock; false while something that only the user can give is missing."""
    status, trainer = draft.status, draft.observed.trainer
    missing = _missing(draft)
    if missing is not None:
        reason, message = missing
        if status.message != message:
            status.message = message
            draft.event(reason, message, warning=True)
        return False
    if (
        trainer.spec.profile is not None
        and status.profile_snapshot is None
        and draft.observed.profile is not None
    ):
        status.profile_snapshot = ProfileSnapshot(name=trainer.spec.profile, spec=draft.observed.profile)
    if status.start_time is None:
        status.start_time = draft.observed.now
        status.message = ""
    return True


def _missing(draft: Draft) -> tuple[str, str] | None:
    """Say what a Trainer that has not started lacks, as a reason and a sentence."""
    trainer, status = draft.observed.trainer, draft.status
    name = trainer.spec.profile
    if name is not None and status.profile_snapshot is None and draft.observed.profile is None:
        place = trainer.metadata.namespace
        return "ProfileNotFound", f"TrainingProfile {name} is not in namespace {place}; create it to start"
    roles = trainer.spec.topology.roles
    for role in sorted({member.role for member in membership.desired_members(trainer)}):
        own = getattr(roles, role, None)
        if not (trainer.spec.command or (own is not None and own.command)):
            return (
                "CommandNotKnown",
                f"role {role} has no command; set spec.command, since this version doesn't read it from the image",
            )
    return None


def retry_policy(draft: Draft) -> EffectiveRetryPolicy:
    """Return the retry policy that holds: the Trainer's own over the snapshot of its profile."""
    snapshot = draft.status.profile_snapshot
    return effective_retry_policy(
        draft.observed.trainer.spec.retry_policy, snapshot.spec.retry_policy if snapshot is not None else None
    )


def _restores(draft: Draft) -> None:
    refused: dict[MemberId, str] = {}
    for member in membership.members_of(draft):
        agent = membership.live(draft, member)
        result = agent.results.get(go_id(draft.status, member)) if agent is not None else None
        if result is not None and not result.ok:
            refused[member] = (result.error or "refused")[:256]
    if refused:
        membership.restore_failed(draft, refused)


def _failures(draft: Draft) -> None:
    """Count what failed since the last pass, as one group, and decide how it goes on (RC)."""
    group = [failure for failure in _new_failures(draft) if not draft.records.handled(failure)]
    if not group:
        return
    status, policy = draft.status, retry_policy(draft)
    group.sort(key=lambda failure: (failure.kind is FailureClass.DISRUPTION, failure.member))
    cost = charge(
        group,
        policy,
        draft.observed.trainer.spec.failure_rules or (),
        failures=status.failures,
        disruptions=status.disruptions,
    )
    status.failures += cost.failures
    status.disruptions += cost.disruptions
    for failure in group:
        draft.records.handle(failure)
        if failure.node:
            exclusion.exclude(draft, failure.node)
    if cost.fail_reason is not None:
        finish.end(draft, Phase.FAILED, cost.fail_reason, cost.fail_message)
        return
    status.restarts += 1
    delay = _delay(draft, policy, counted=cost.failures > 0)
    first = group[0]
    others = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
    old = status.recovery
    status.recovery = RecoveryStatus(
        reason=first.reason,
        message=first.message,
        members=[str(failure.member) for failure in group[:64]],
        detected_at=draft.observed.now,
        not_before=draft.observed.now + timedelta(seconds=delay),
        count=(old.count if old is not None else 0) if cost.failures == 0 else _count(draft, policy),
        step=status.global_step or 0,
    )
    consequence = membership.after_failures(draft, group)
    draft.event(first.reason, f"{first.message}{others}; restart in {delay:.1f} s{consequence}", warning=True)


def _new_failures(draft: Draft) -> list[Failure]:
    in_epoch = membership.members_of(draft)
    epoch, active = draft.status.membership.epoch, draft.status.membership.phase == membership.ACTIVE
    found = []
    for member in sorted(membership.desired_members(draft.observed.trainer) | in_epoch):
        if draft.records.is_done(member, epoch):
            continue
        failure = detect(
            draft.observed,
            member,
            attempt=draft.records.attempt(member),
            had_pod=_had_pod(draft, member, in_epoch),
            handled=draft.records.get(member).handled,
        )
        if failure is None:
            continue
        if failure.reason == "PodDeleted" and member not in in_epoch:
            draft.records.move_on(
                member
            )  # a leftover of an earlier scale-down: not a failure, only a taken name
            continue
        if not failure.pod_gone:
            agent = draft.observed.agents[member]
            if not active or agent.beat.epoch != epoch:
                continue  # it ended because its epoch did: a consequence, not a failure of its own (RC1)
        found.append(failure)
    return found


def _had_pod(draft: Draft, member: MemberId, in_epoch: frozenset[MemberId]) -> bool:
    """Whether the pod of the current attempt existed: its agent was heard, or the active epoch was formed with it."""
    entry = draft.records.get(member)
    active = draft.status.membership.phase == membership.ACTIVE
    if not active and draft.status.membership.reason == "Resumed":
        return False  # agents of the pods that were suspended may still be remembered (TR13)
    agent = draft.observed.agents.get(member)
    if agent is not None and agent.beat.attempt == entry.attempt:
        return True
    return active and member in in_epoch and entry.handled != f"{entry.attempt - 1}/pod"


def _count(draft: Draft, policy: EffectiveRetryPolicy) -> int:
    """Return the number of this restart in its series; a stable time with progress begins a new one (RC2)."""
    recovery = draft.status.recovery
    if recovery is None or recovery.not_before is None:
        return 1
    stable = (draft.observed.now - recovery.not_before).total_seconds()
    waited = (recovery.not_before - (recovery.detected_at or recovery.not_before)).total_seconds()
    if (
        stable >= max(policy.reset_after_seconds, 2 * waited)
        and (draft.status.global_step or 0) > recovery.step
    ):
        return 1
    return recovery.count + 1


def _delay(draft: Draft, policy: EffectiveRetryPolicy, *, counted: bool) -> float:
    number = _count(draft, policy) if counted else 1
    return restart_delay(number, policy, chance=draft.observed.chance)


def _pods(draft: Draft) -> None:
    """Create what is missing, delete what is of no use any more; never in an epoch that still trains (ME6)."""
    observed, records = draft.observed, draft.records
    desired = membership.desired_members(observed.trainer)
    in_epoch = membership.members_of(draft)
    for member in sorted(desired):
        attempt = records.attempt(member)
        have = {pod.attempt for pod in observed.pods.get(member, ())}
        if attempt in have or records.is_done(member, draft.status.membership.epoch):
            continue
        if not attempt or _delay_is_over(draft, member):
            draft.actions.append(CreatePod(member, attempt))
    for member, pods in observed.pods.items():
        for pod in pods:
            if member in desired and pod.attempt == records.attempt(member):
                continue
            if member in desired or member not in in_epoch:
                draft.delete(pod, grace=5)


def _delay_is_over(draft: Draft, member: MemberId) -> bool:
    recovery = draft.status.recovery
    waits = recovery is not None and str(member) in recovery.members
    return not waits or recovery is None or draft.passed(recovery.not_before, 0)


def _watch_silence(draft: Draft) -> None:
    """Silence makes no event, so look again when someone could have become lost (DT3, TX5)."""
    if not draft.observed.agents:
        return
    window = lost_window(draft.observed)
    oldest = max(agent.age for agent in draft.observed.agents.values())
    draft.look_again(max(1.0, window - oldest + 0.1) if oldest < window else 1.0)
