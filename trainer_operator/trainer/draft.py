"""A decision while it is being made: the new status and the actions it allows.

Actions are small records. `apply` writes the status first and carries actions out only when that succeeded
(rule 3 of design/architecture.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from runtime.objects import Resource
from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.status import TrainerStatus
from trainer_operator.topology.members import Directive, MemberId
from trainer_operator.topology.state import Input
from trainer_operator.trainer.records import Records
from trainer_operator.trainer.views import Observed, PodView


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the pod of a member's attempt."""

    member: MemberId
    attempt: int


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create the headless Service, by which members have names."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, given its uid, so that never a successor of the same name is hit."""

    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """The node that was seen to be down, and the last renewal of its Lease: it is looked at again before the act."""

    node: str
    renewed: str


@dataclass(frozen=True, slots=True)
class ForceDeletePod:
    """Delete a pod without waiting for its kubelet, unless another pod uses its claim (ND4)."""

    name: str
    uid: str
    claim: str
    evidence: NodeEvidence


@dataclass(frozen=True, slots=True)
class DeleteAttachment:
    """Delete the VolumeAttachment of a claim's volume and the old node (ND4)."""

    name: str
    claim: str
    evidence: NodeEvidence


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Declare a node out of service (ND3)."""

    evidence: NodeEvidence


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete the claim of an attempt that is over."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class WritePodGroup:
    """Create the PodGroup, before any pod, or change it."""

    exists: bool


@dataclass(frozen=True, slots=True)
class DeletePodGroup:
    """Delete the PodGroup, and give back what it holds in a queue."""

    resource: Resource
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateCheckpoint:
    """Create the Checkpoint object that status names as in flight."""

    name: str
    reason: CheckpointReason
    pause: bool


@dataclass(frozen=True, slots=True)
class MarkCorrupt:
    """Set a checkpoint's health to Corrupt: a restore of it failed."""

    name: str
    message: str


@dataclass(frozen=True, slots=True)
class PinCheckpoint:
    """Keep a checkpoint from being collected while an epoch starts from it (RS4)."""

    name: str
    pin: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Record an Event on the Trainer."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RecordStacks:
    """Put the stacks of a stall into the audit trail; `number` is that of the restart that follows from it (SL4)."""

    number: int
    suspect: MemberId
    stacks: Mapping[MemberId, str]


@dataclass(frozen=True, slots=True)
class CloseAgents:
    """Tell all agents to end (AG7)."""


@dataclass(frozen=True, slots=True)
class DeleteTrainer:
    """Delete the Trainer itself: its time to live is over."""


NodeAction = ForceDeletePod | DeleteAttachment | TaintNode
"""What is only done to a node that is down, and only with the opt-in rights."""
Action = (
    CreatePod
    | CreateService
    | DeletePod
    | DeleteClaim
    | WritePodGroup
    | DeletePodGroup
    | CreateCheckpoint
    | MarkCorrupt
    | PinCheckpoint
    | EmitEvent
    | RecordStacks
    | CloseAgents
    | DeleteTrainer
    | NodeAction
)


@dataclass(slots=True)
class Draft:
    """The new status, actions so far, and when to look again."""

    observed: Observed
    status: TrainerStatus
    actions: list[Action] = field(default_factory=list)
    wake: float | None = None
    """Seconds after which the next look is due, the least that anyone asked for."""
    inputs: dict[MemberId, list[Input]] = field(default_factory=dict)
    """What this decision means for the State Tree, in order."""
    causes: dict[MemberId, str] = field(default_factory=dict)
    """Why members went down, in one word."""
    store_order: tuple[MemberId, Directive] | None = None
    """What one agent shall do in the store before the epoch starts."""
    drains: dict[MemberId, Directive] = field(default_factory=dict)
    """Agents that shall end their process, because their pods go (ND6)."""

    def happened(self, member: MemberId, *inputs: Input, cause: str = "") -> None:
        """Note what the State Tree shall hear of a member."""
        self.inputs.setdefault(member, []).extend(inputs)
        if cause:
            self.causes[member] = cause

    @property
    def records(self) -> Records:
        """Return the member records of the new status."""
        return Records(self.status)

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Add an Event; only transitions call this (EV1)."""
        self.actions.append(EmitEvent("Warning" if warning else "Normal", reason, message))

    def look_again(self, seconds: float) -> None:
        """Ask for another pass within this time."""
        self.wake = seconds if self.wake is None else min(self.wake, seconds)

    def passed(self, since: datetime | None, seconds: float) -> bool:
        """Whether `seconds` have passed since a time; if not, another pass is asked for when they have."""
        if since is None:
            return True
        left = (since + timedelta(seconds=seconds) - self.observed.now).total_seconds()
        if left <= 0:
            return True
        self.look_again(left)
        return False

    def delete(self, pod: PodView, *, grace: int | None = None) -> None:
        """Delete a pod unless it is being deleted already."""
        if not pod.terminating:
            self.actions.append(DeletePod(pod.name, pod.uid, grace))
