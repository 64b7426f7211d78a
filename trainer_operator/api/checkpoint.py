"""Checkpoint: one saved state of a Trainer. The store holds the truth, this object shows and drives it (CK1).

State goes one way: Pending, Staging, Committed, GarbageCollected (CR8, CS7); the API server refuses the way back.
Users create objects to save on demand, and set `hold` to keep one.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, StrictBool, StringConstraints

from trainer_operator.api.meta import (
    LABEL_PREFIX,
    ApiModel,
    ApiObject,
    Conditions,
    Int32,
    Int64,
    LabelName,
    ListType,
    ShortText,
    Text,
    Time,
)
from trainer_operator.api.rules import TransitionRule

CheckpointId = Annotated[str, StringConstraints(max_length=64, pattern=r"^[0-9]{12,}-e[0-9]+-[0-9a-f]{4}$")]


class CheckpointState(StrEnum):
    """How far a checkpoint is, in the order it may go."""

    PENDING = "Pending"
    STAGING = "Staging"
    COMMITTED = "Committed"
    GARBAGE_COLLECTED = "GarbageCollected"


STATE_ORDER = tuple(CheckpointState)
VERIFY_ANNOTATION = f"{LABEL_PREFIX}verify"
"""A time: the checkpoint is read in full if that was not done since; set it to have one verified now."""
STORE_PROBLEMS = frozenset(
    {
        "BadAddress",
        "Full",
        "NoConditionalWrites",
        "NoRights",
        "StoreChanged",
        "Throttled",
        "Unreachable",
    }
)
"""Reasons of a condition that tell of the store and not of this checkpoint; agents name them."""
SAVE_PROBLEMS = STORE_PROBLEMS | {"LayoutChanged"}
"""Reasons for which agents could not save or commit; the last one is about what the process saved (QR4)."""


class CheckpointHealth(StrEnum):
    """What verification last said about the stored data."""

    UNKNOWN = "Unknown"
    HEALTHY = "Healthy"
    DEGRADED = "Degraded"
    CORRUPT = "Corrupt"


class Verification(StrEnum):
    """How thoroughly a checkpoint was verified."""

    LISTED = "Listed"
    FULL = "Full"


class CheckpointReason(StrEnum):
    """Why a checkpoint is taken (CS10)."""

    INTERVAL = "Interval"
    ON_DEMAND = "OnDemand"
    PRE_SCALE = "PreScale"
    PRE_EVICT = "PreEvict"
    FINAL = "Final"


class TrainerReference(ApiModel):
    """The Trainer whose state is saved."""

    name: LabelName
    """Name of the Trainer, in the same namespace."""
    uid: Text | None = None
    """Its unique id; the operator fills it in, so that a later Trainer of that name is not meant."""


class CheckpointSpec(ApiModel):
    """What to save."""

    trainer_ref: TrainerReference
    """The Trainer whose state is saved."""
    step: Int64 | None = None
    """Global step to save at; the operator chooses the next possible one when absent."""
    reason: CheckpointReason = CheckpointReason.ON_DEMAND
    """Why it is taken: Interval, OnDemand, PreScale, PreEvict or Final."""
    id: CheckpointId | None = None
    """Name in the store, never reused; the operator chooses it."""
    pause: StrictBool = False
    """With true, the members wait after saving until the operator lets them go on."""
    hold: StrictBool = False
    """With true, retention never removes this checkpoint."""
    discard: StrictBool = False
    """With true, nothing is restored from it any more, and it is deleted unless it is held."""

    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="self.trainerRef.name == oldSelf.trainerRef.name "
            "&& (!has(oldSelf.trainerRef.uid) || (has(self.trainerRef.uid) "
            "&& self.trainerRef.uid == oldSelf.trainerRef.uid))",
            message="trainerRef can't be changed; create another Checkpoint",
            allows=lambda old, new: (
                old.trainer_ref.name == new.trainer_ref.name
                and old.trainer_ref.uid in (None, new.trainer_ref.uid)
            ),
            at="trainerRef",
            shows="self.trainerRef.name",
        ),
        TransitionRule(
            cel="!has(oldSelf.step) || (has(self.step) && self.step == oldSelf.step)",
            message="step can't be changed once set",
            allows=lambda old, new: old.step in (None, new.step),
            at="step",
            shows="self.step",
        ),
        TransitionRule(
            cel="!has(oldSelf.id) || (has(self.id) && self.id == oldSelf.id)",
            message="id can't be changed once set",
            allows=lambda old, new: old.id in (None, new.id),
            at="id",
            shows="self.id",
        ),
    )


class CheckpointStatus(ApiModel):
    """What was observed; the store decides. Not frozen: a decision changes its own copy."""

    model_config = ConfigDict(frozen=False)

    state: CheckpointState | None = None
    """How far it is: Pending, Staging, Committed or GarbageCollected; it never goes back."""
    health: CheckpointHealth = CheckpointHealth.UNKNOWN
    """What verification last said: Unknown, Healthy, Degraded or Corrupt."""
    verified: Verification | None = None
    """How it was verified last: Listed, every object is there in full size; Full, every byte was read and hashed."""
    last_verified: Time | None = None
    """When that was."""
    id: CheckpointId | None = None
    """Its name in the store; another target gets another name."""
    step: Int64 | None = None
    """Global step that is saved."""
    missed: Annotated[list[CheckpointId], Field(max_length=8), ListType(kind="atomic")] = Field(
        default_factory=list
    )
    """Names of earlier targets that a member had passed already; they are aborted in the store."""
    epoch: Int64 | None = None
    """Membership epoch that it belongs to."""
    timeline: Int32 | None = None
    """Timeline that it belongs to, see the Trainer's status.timelines; none is 0."""
    base: CheckpointId | None = None
    """Checkpoint whose unchanged data it reuses."""
    shards: Int32 | None = None
    """Number of parts that the state is split into."""
    copies: Int32 | None = None
    """Durable copies of the shard that has the fewest."""
    bytes: Int64 | None = None
    """Bytes of all its copies."""
    reused_bytes: Int64 | None = None
    """Bytes that were not written again because its base holds them."""
    size: ShortText | None = None
    """The bytes, written for people, for example 1.5 GiB."""
    digest: Annotated[str, StringConstraints(max_length=128)] | None = None
    """SHA-256 of the DECISION object in the store."""
    store_id: Text | None = None
    """Identity of the store; another one under the same address is noticed by it."""
    holders: Annotated[tuple[ShortText, ...], Field(max_length=10000), ListType(kind="atomic")] = ()
    """Members that save a shard each, as role-index, in the order of the shards."""
    staging_started_at: Time | None = None
    """When saving began."""
    committed_at: Time | None = None
    """When it was committed."""
    pins: Annotated[list[ShortText], Field(max_length=64), ListType(kind="atomic")] = Field(
        default_factory=list
    )
    """Names of the Checkpoints that are being saved with this one as base; it is not deleted meanwhile."""
    marked_at: Time | None = None
    """When it was chosen to be deleted; from then on no other one may reuse its data."""
    swept_at: Time | None = None
    """When what it had stored was deleted, if it was given up."""
    conditions: Conditions = ()
    """Observations, one for each type; Aborted says that it was given up."""
    observed_generation: Int64 | None = None
    """Generation of the spec that was last looked at."""


def _goes_forward(old: "Checkpoint", new: "Checkpoint") -> bool:
    before, after = old.status.state, new.status.state
    if before is None:
        return True
    return after is not None and STATE_ORDER.index(after) >= STATE_ORDER.index(before)


def _forward_cel(old: str, new: str) -> str:
    """Write the allowed changes out; `indexOf` has no bounded cost."""
    steps = [
        f"({old} == '{state}' && {new} in [{', '.join(repr(str(later)) for later in STATE_ORDER[position:])}])"
        for position, state in enumerate(STATE_ORDER)
    ]
    return "(" + " || ".join(steps) + ")"


class Checkpoint(ApiObject):
    """One saved state of a Trainer. Create one to save at the next possible step; set spec.hold to keep it."""

    kind: Literal["Checkpoint"] = "Checkpoint"
    spec: CheckpointSpec
    """What to save."""
    status: CheckpointStatus = CheckpointStatus()
    """What was observed; the store decides."""

    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="!has(oldSelf.status) || !has(oldSelf.status.state) || (has(self.status) && has(self.status.state) "
            f"&& {_forward_cel('oldSelf.status.state', 'self.status.state')})",
            message="state only goes forward: Pending, Staging, Committed, GarbageCollected",
            allows=_goes_forward,
            at="status.state",
            shows="self.status.state",
        ),
    )
