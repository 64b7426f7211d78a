"""Recovery: what failed is counted once, as one group, and met with a restart of the right size (RC).

The order is fixed: budgets first, then the ladder, then the epoch. All of it is one change of the status, written
before anything is restarted (RC8); `membership` says what a failure means for those that did not fail.
"""

from datetime import timedelta

from trainer_operator.api.profile import EffectiveRetryPolicy, effective_retry_policy
from trainer_operator.api.status import Phase, RecoveryStatus, Rung
from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import Input
from trainer_operator.trainer import checkpoints, eviction, exclusion, finish, ladder, membership, stall
from trainer_operator.trainer.budget import Charge, charge, restart_delay
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.failures import Failure, FailureClass, detect
from trainer_operator.trainer.memberstate import input_of


def recover(draft: Draft) -> None:
    """Count what failed since the last pass, as one group, and decide how it goes on (RC)."""
    held = eviction.held(draft)
    group = [
        failure
        for failure in _new_failures(draft)
        if failure.member not in held and not draft.records.handled(failure)
    ]
    stalled = stall.judge(draft)
    if stalled is not None and not group and not draft.records.handled(stalled):
        group = [stalled]
        draft.actions.append(stall.record(draft, stalled.member, number=draft.status.restarts + 1))
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
    recovery = RecoveryStatus(step=status.global_step)
    repeated = ladder.repeats(draft, group, recovery)
    steps = ladder.climb(draft, group)
    ladder.note_progress(status, recovery)
    for failure, climbed in zip(group, steps, strict=True):
        draft.records.handle(climbed.failure)
        if climbed.failure.node:
            exclusion.exclude(draft, climbed.failure.node)
        draft.happened(failure.member, input_of(failure), cause=failure.reason)
    status.suspects, status.stall = [], None
    end = _end(cost, repeated, steps)
    if end is not None:
        finish.end(draft, Phase.FAILED, *end)
        return
    status.restarts += 1
    _restart(draft, recovery, cost, steps)


def _end(cost: Charge, repeated: str | None, steps: list[ladder.Step]) -> tuple[str, str] | None:
    """Return reason and sentence if the failure is one too many."""
    if cost.fail_reason is not None:
        return cost.fail_reason, cost.fail_message
    if repeated is not None:
        return "DeterministicFailure", repeated
    last = next((step for step in steps if step.exhausted), None)
    if last is not None:
        return "RecoveryExhausted", f"new pods for all members did not help: {last.failure.message}"
    return None


def _restart(draft: Draft, recovery: RecoveryStatus, cost: Charge, steps: list[ladder.Step]) -> None:
    """Set the timer of the group, move the epoch and say what happens."""
    now, old, first = draft.observed.now, draft.status.recovery, steps[0].failure
    policy = retry_policy(draft)
    delay = _delay(draft, policy, counted=cost.failures > 0)
    recovery.reason, recovery.message, recovery.detected_at = first.reason, first.message, now
    recovery.not_before = now + timedelta(seconds=delay)
    recovery.count = (old.count if old is not None else 0) if cost.failures == 0 else _count(draft, policy)
    waiting = {str(step.failure.member) for step in steps}
    if old is not None and old.not_before is not None and old.not_before > now:
        waiting |= set(old.members)  # they wait on: one timer for the group, and never a shorter one (RC1)
        recovery.not_before = max(recovery.not_before, old.not_before)
    recovery.members = sorted(waiting)[:64]
    draft.status.recovery = recovery
    largest = max((step.rung for step in steps), key=list(Rung).index)
    if largest is Rung.GROUP:
        for member in membership.members_of(draft) - {step.failure.member for step in steps}:
            draft.records.move_on(member)  # a new pod without a count: nothing was wrong with it
    epoch = draft.status.membership.epoch
    everyone = cost.restart_all or largest is Rung.GROUP or _loses_unaware(draft, steps)
    consequence = membership.after_failures(draft, [step.failure for step in steps], everyone=everyone)
    for step in steps:
        draft.happened(step.failure.member, Input.REPLACE if step.failure.pod_gone else Input.RESPAWN)
    if draft.status.membership.epoch != epoch:
        for member in membership.members_of(draft):
            draft.happened(member, Input.RESPAWN)
    others = f" (and {len(steps) - 1} more)" if len(steps) > 1 else ""
    how = f"restart {ladder.HOW[largest]} {f'in {delay:.1f} s' if delay else 'at once'}"
    draft.event(first.reason, f"{first.message}{others}; {how}{consequence}", warning=True)


def _loses_unaware(draft: Draft, steps: list[ladder.Step]) -> bool:
    """Whether a server is lost to members without the SDK, which nobody can tell to wait for its successor (AG5)."""
    lost = any(step.failure.member.role == "ps" for step in steps)
    return lost and checkpoints.plain_member(draft) is not None


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
            if agent.drained:
                draft.records.move_on(member)  # it left, and is wanted again before its pod is gone (ST3)
                continue
            if not active or not membership.is_of_epoch(draft.status.membership, agent):
                continue  # it ended because its epoch did: a consequence, not a failure of its own (RC1)
        found.append(failure)
    return found


def _had_pod(draft: Draft, member: MemberId, in_epoch: frozenset[MemberId]) -> bool:
    """Whether the pod of the current attempt existed: its agent was heard, or the active epoch was formed with it."""
    entry = draft.records.get(member)
    active = draft.status.membership.phase == membership.ACTIVE
    if not active and draft.status.membership.reason in membership.NEW_PODS:
        return False  # agents of the pods that were released may still be remembered (TR13)
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


def delay_is_over(draft: Draft, member: MemberId) -> bool:
    """Whether a member that failed may be started again (RC1)."""
    recovery = draft.status.recovery
    waits = recovery is not None and str(member) in recovery.members
    return not waits or recovery is None or draft.passed(recovery.not_before, 0)


def retry_policy(draft: Draft) -> EffectiveRetryPolicy:
    """Return the retry policy that holds: the Trainer's own over the snapshot of its profile."""
    snapshot = draft.status.profile_snapshot
    return effective_retry_policy(
        draft.observed.trainer.spec.retry_policy, snapshot.spec.retry_policy if snapshot is not None else None
    )
