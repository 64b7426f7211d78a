"""Roll-up: counts per role, progress, phase and conditions (ST5 to ST7, CR7)."""

from typing import Any

from runtime.conditions import ConditionStatus, set_condition
from trainer_operator.api.meta import Condition, condition_of
from trainer_operator.api.names import worker_selector
from trainer_operator.api.status import AT_REST, TERMINAL, Phase, RoleStatus, TrainerStatus
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import gang, notebookstate, notices, startwait, unreadable, volumes, weights
from trainer_operator.trainer.budget import pattern_fault
from trainer_operator.trainer.checkpoints import can_store, plain_member, save_problem
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.membership import (
    ACTIVE,
    NEW_PODS,
    PREPARING,
    RECOVERING,
    desired_members,
    has_servers,
    live,
    members_of,
    standbys,
)

VOLUNTARY = frozenset({"Scaled", "ScaleCancelled"})
STARTS = NEW_PODS | {"Started"}
WITHOUT_SDK = (
    "has not called trainer_sdk.init(): nothing is saved, and a restart begins where the code itself does; "
    "job.restore() and job.save() change that, see docs/training-code.md"
)
"""What condition CheckpointHealthy says of a member's code (AG5)."""


def is_terminal(status: TrainerStatus) -> bool:
    """Whether the Trainer ended; this never changes again."""
    return status.phase in TERMINAL


def roll_up(draft: Draft) -> None:
    """Count the members, follow their progress, and derive phase and conditions."""
    _count(draft)
    _progress(draft)
    if not is_terminal(draft.status) and draft.status.phase is not Phase.SUSPENDED:
        phase = _phase(draft)
        if phase != draft.status.phase:
            draft.status.phase = phase
    conditions(draft)


def _count(draft: Draft) -> None:
    status = draft.status
    desired = desired_members(draft.observed.trainer)
    everyone = desired | members_of(draft)
    for role in ("master", "worker", "ps"):
        mine = [member for member in everyone if member.role == role]
        setattr(
            status.roles,
            role,
            RoleStatus(
                desired=sum(member in desired for member in mine),
                ready=sum(_ready(draft, member) for member in mine),
                active=sum(any(pod.alive for pod in draft.observed.pods.get(member, ())) for member in mine),
                failed=sum(_down(draft, member) for member in mine),
            ),
        )
    worker = status.roles.worker
    status.workers = worker.active
    status.ready_workers = f"{worker.ready}/{worker.desired}"
    status.ready_servers = f"{status.roles.ps.ready}/{status.roles.ps.desired}"
    status.selector = worker_selector(draft.observed.trainer.metadata.name)


def _down(draft: Draft, member: MemberId) -> bool:
    """Whether a member of the epoch has crashed or lost its pod and isn't back yet."""
    if member not in members_of(draft) or draft.records.is_done(member, draft.status.membership.epoch):
        return False
    agent = live(draft, member)
    return agent is None or agent.crashed


def _ready(draft: Draft, member: MemberId) -> bool:
    if draft.records.is_done(member, draft.status.membership.epoch):
        return True
    agent = live(draft, member)
    return agent is not None and agent.trains


def _progress(draft: Draft) -> None:
    """Follow steps of the present epoch only: reports of an older one change nothing (ME7)."""
    status = draft.status
    membership = status.membership
    if membership.phase != ACTIVE:
        return
    for member in members_of(draft):
        agent = live(draft, member)
        if agent is None or agent.beat.epoch != membership.epoch:
            continue
        if has_servers(draft.observed.trainer) and (
            membership.ps_phase == RECOVERING or agent.beat.ps_epoch != membership.ps_epoch
        ):
            continue
        status.global_step = max(status.global_step or 0, agent.beat.step)
        epochs = draft.observed.trainer.spec.epochs
        status.epochs_completed = max(status.epochs_completed, min(agent.beat.data_epoch, epochs))
        if agent.beat.metrics:
            status.metrics = {name[:63]: value for name, value in sorted(agent.beat.metrics.items())}


def _phase(draft: Draft) -> Phase:
    status = draft.status
    membership = status.membership
    if membership.epoch == 0 or membership.reason in NEW_PODS:
        if membership.phase == ACTIVE:
            return _active_phase(draft)
        scheduled = any(pod.alive and pod.node for pods in draft.observed.pods.values() for pod in pods)
        return Phase.STARTING if scheduled else Phase.PENDING
    if membership.phase == PREPARING:
        if membership.reason in VOLUNTARY:
            return Phase.SCALING
        return Phase.STARTING if membership.reason == "Started" else Phase.RECOVERING
    return _active_phase(draft)


def _active_phase(draft: Draft) -> Phase:
    status = draft.status
    if status.membership.ps_phase == RECOVERING:
        return Phase.RECOVERING
    everyone = members_of(draft) - standbys(draft)
    if all(_ready(draft, member) for member in everyone):
        return Phase.RUNNING
    if status.phase is Phase.RUNNING and not _crashed(draft, everyone):
        return Phase.RUNNING  # silence is judged by the lost window; until then Degraded says it
    recovery, since = status.recovery, status.membership.since
    if recovery is not None and recovery.detected_at and since and recovery.detected_at >= since:
        return Phase.RECOVERING
    if status.membership.reason in VOLUNTARY:
        return Phase.SCALING
    return Phase.STARTING if status.membership.reason in STARTS else Phase.RECOVERING


def _lack(status: TrainerStatus, missing: int, desired: int) -> tuple[str, str]:
    """Say what condition Degraded is about (ST6)."""
    if missing:
        return "MembersMissing", f"{missing} of {desired} members are not there"
    if status.suspects:
        return "StepOverdue", f"{', '.join(status.suspects)}: a step or phase takes too long; see the Events"
    return "Complete", ""


def _is_changing(status: TrainerStatus) -> bool:
    return status.pending_change is not None and status.pending_change.reason != "Evict"


def _crashed(draft: Draft, everyone: frozenset[MemberId]) -> bool:
    return any(agent is not None and agent.crashed for agent in (live(draft, member) for member in everyone))


def conditions(draft: Draft) -> None:
    """Set every known condition; the same input twice gives the same list (CR7)."""
    status = draft.status
    phase = status.phase or Phase.PENDING
    generation = draft.observed.trainer.metadata.generation
    desired = desired_members(draft.observed.trainer)
    missing = len(desired) - sum(live(draft, member) is not None for member in desired)
    message = _detail(status)
    rows: list[tuple[str, bool | None, str, str]] = [
        ("Ready", phase is Phase.RUNNING, phase, message),
        ("Succeeded", _succeeded(phase), phase, message),
        (
            "Suspended",
            phase is Phase.SUSPENDED,
            "Suspended" if phase is Phase.SUSPENDED else "NotSuspended",
            "",
        ),
        (
            "Resizing",
            _is_changing(status),
            "Changing" if _is_changing(status) else "Stable",
            "",
        ),
        (
            "Degraded",
            phase not in AT_REST and (missing > 0 or bool(status.suspects)),
            *_lack(status, missing, len(desired)),
        ),
        _checkpoint_row(draft),
    ]
    more = (
        gang.scheduled_row(draft),
        volumes.old_pod_row(draft),
        _rules_row(draft),
        _readable_row(status),
        weights.row(draft),
        notices.row(draft),
        notebookstate.row(draft),
    )
    rows += [row for row in more if row is not None]
    current: list[dict[str, Any]] = [condition.dump() for condition in status.conditions]
    for kind, value, reason, text in rows:
        word: ConditionStatus = "Unknown" if value is None else ("True" if value else "False")
        if is_terminal(status) and kind in {"Degraded", "Resizing"}:
            word, reason, text = "False", phase, ""
        current, _ = set_condition(
            current,
            type=kind,
            status=word,
            reason=reason,
            message=text,
            generation=generation,
            now=draft.observed.now,
        )
    status.conditions = tuple(Condition.read(entry) for entry in current)
    status.observed_generation = generation


def _rules_row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the row of condition FailureRulesValid; None where nothing was ever wrong."""
    fault = pattern_fault(draft.observed.trainer.spec.failure_rules or ())
    if fault:
        return (
            "FailureRulesValid",
            False,
            "BadPattern",
            f"{fault}; until it is corrected this rule never applies",
        )
    told = condition_of(draft.status.conditions, "FailureRulesValid")
    return ("FailureRulesValid", True, "Valid", "") if told is not None else None


def _readable_row(status: TrainerStatus) -> tuple[str, bool | None, str, str] | None:
    """Return the row of condition Readable; None where that was never in question."""
    told = condition_of(status.conditions, unreadable.CONDITION)
    return (unreadable.CONDITION, True, "Readable", "") if told is not None else None


def _succeeded(phase: Phase) -> bool | None:
    return {Phase.SUCCEEDED: True, Phase.FAILED: False}.get(phase)


def _detail(status: TrainerStatus) -> str:
    if is_terminal(status) or status.start_time is None:
        return status.message
    recovery = status.recovery
    if status.phase is Phase.RECOVERING and recovery is not None:
        return recovery.message
    return ""


def _checkpoint_row(draft: Draft) -> tuple[str, bool | None, str, str]:
    if draft.observed.trainer.spec.checkpoint is None:
        return (
            "CheckpointHealthy",
            None,
            "NotConfigured",
            "spec.checkpoint is not set: a restart begins at step 0",
        )
    if not can_store(draft):
        return (
            "CheckpointHealthy",
            False,
            "CredentialsMissing",
            "s3:// needs spec.checkpoint.credentialsSecret, a Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    plain = plain_member(draft)
    if plain is not None:
        return ("CheckpointHealthy", False, "CodeWithoutSDK", f"the code of {plain} {WITHOUT_SDK}")
    problem = startwait.problem(draft) or save_problem(draft)
    if problem is not None:
        return ("CheckpointHealthy", False, *problem)
    status = draft.status
    if status.checkpoint_failures >= 3:
        return (
            "CheckpointHealthy",
            False,
            "AttemptsFail",
            f"the last {status.checkpoint_failures} attempts were aborted; see their events",
        )
    if status.last_checkpoint is None:
        return ("CheckpointHealthy", None, "NoneYet", "no checkpoint was committed yet")
    return ("CheckpointHealthy", True, "Committed", "")
