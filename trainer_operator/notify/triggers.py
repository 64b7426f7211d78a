"""What a change of a Trainer means to people: triggers and their severity (NT1). Pure.

| Trigger | Severity | When |
|---|---|---|
| Running | Info | all members train, after a start or a change of members |
| Recovered | Info | all members train again after a failure |
| Suspended | Info | the Trainer rests |
| Succeeded | Info | it succeeded |
| Recovering | Warning | a member failed and training stands still |
| Stalled | Warning | training stands still though nothing failed |
| Smaller | Warning | training goes on with fewer members than were asked for |
| NoRoom | Warning | not all members found a node |
| NodeDown | Warning | a node is down, and its pods are removed by force |
| CannotStart | Warning | something is missing that only the user can give |
| CheckpointsFail | Warning | checkpoints are not taken any more |
| CheckpointDamaged | Critical | a committed checkpoint turned out to be damaged |
| Failed | Critical | it failed, for example because its budget of failures is used up |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from trainer_operator.api.meta import ConditionStatus, condition_of
from trainer_operator.api.status import Phase, TrainerStatus


class Severity(IntEnum):
    """How much a message matters; a route sends what is at least as severe as it says."""

    Info = 0
    Warning = 1
    Critical = 2


class Trigger(StrEnum):
    """What people may be told of."""

    RUNNING = "Running"
    RECOVERED = "Recovered"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    RECOVERING = "Recovering"
    STALLED = "Stalled"
    SMALLER = "Smaller"
    NO_ROOM = "NoRoom"
    NODE_DOWN = "NodeDown"
    CANNOT_START = "CannotStart"
    CHECKPOINTS_FAIL = "CheckpointsFail"
    CHECKPOINT_DAMAGED = "CheckpointDamaged"
    FAILED = "Failed"

    @property
    def severity(self) -> Severity:
        """Return how much it matters."""
        if self in {Trigger.CHECKPOINT_DAMAGED, Trigger.FAILED}:
            return Severity.Critical
        return Severity.Info if self in _GOOD else Severity.Warning


_GOOD = frozenset({Trigger.RUNNING, Trigger.RECOVERED, Trigger.SUSPENDED, Trigger.SUCCEEDED})
_OF_PHASES: Mapping[Phase | None, Trigger] = {
    Phase.RECOVERING: Trigger.RECOVERING,
    Phase.SUSPENDED: Trigger.SUSPENDED,
    Phase.SUCCEEDED: Trigger.SUCCEEDED,
    Phase.FAILED: Trigger.FAILED,
}
_OF_EVENTS = {
    "StallDetected": Trigger.STALLED,
    "ContinuingSmaller": Trigger.SMALLER,
    "GangTimeout": Trigger.NO_ROOM,
    "NodeDown": Trigger.NODE_DOWN,
    "ProfileNotFound": Trigger.CANNOT_START,
    "InvalidSpec": Trigger.CANNOT_START,
}
"""Events of the operator that people are told of; other causes are seen in the status."""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that people may be told of; `transition` tells it from the others of its trigger."""

    trigger: Trigger
    transition: str
    text: str
    subject: str = ""
    """What it is about, where a Trainer has several; each is told once as long as it exists."""


def happenings(
    before: TrainerStatus,
    after: TrainerStatus,
    *,
    generation: int,
    events: Iterable[tuple[str, str]] = (),
    damaged: Iterable[tuple[str, int]] = (),
) -> list[Happening]:
    """Return what happened between two statuses.

    `events` are reason and message of those that the decision records; `damaged` are name and step of the committed
    checkpoints that are damaged now, whether that is new or not.
    """
    mark = f"e{after.membership.epoch}.r{after.restarts}/g{generation}"
    found = []
    trigger = _of_phase(before.phase, after.phase)
    if trigger is not None:
        transition = f"{before.phase or 'New'}>{after.phase}/{mark}"
        found.append(Happening(trigger, transition, _phase_text(trigger, after)))
    for reason, message in events:
        if reason in _OF_EVENTS:
            found.append(Happening(_OF_EVENTS[reason], f"{reason}/{mark}", f"{reason}: {message}"))
    row, old = (condition_of(each.conditions, "CheckpointHealthy") for each in (after, before))
    if row is not None and row.status is ConditionStatus.FALSE and (old is None or old.status != row.status):
        found.append(
            Happening(Trigger.CHECKPOINTS_FAIL, f"{row.reason}/{mark}", f"{row.reason}: {row.message}")
        )
    for name, step in damaged:
        text = f"checkpoint {name} of step {step} is damaged; an older one serves in its place"
        found.append(Happening(Trigger.CHECKPOINT_DAMAGED, f"Corrupt/g{generation}", text, name))
    return found


def _of_phase(before: Phase | None, after: Phase | None) -> Trigger | None:
    if before == after:
        return None
    if after is Phase.RUNNING:
        return Trigger.RECOVERED if before is Phase.RECOVERING else Trigger.RUNNING
    return _OF_PHASES.get(after)


def _phase_text(trigger: Trigger, status: TrainerStatus) -> str:
    if trigger in {Trigger.FAILED, Trigger.SUCCEEDED}:
        return f"{status.reason}: {status.message}"
    if trigger is Trigger.RECOVERING:
        recovery = status.recovery
        return recovery.message if recovery is not None and recovery.message else "a member is being replaced"
    if trigger is Trigger.SUSPENDED:
        step = status.last_checkpoint.step if status.last_checkpoint is not None else 0
        return f"no pods run; it resumes from step {step}"
    return f"{status.membership.members or 'all members'} train from step {status.membership.restore_step}"
