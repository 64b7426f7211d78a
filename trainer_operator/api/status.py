"""Trainer.status: what the operator observed and decided (contract of the reconciler, RC4, RC8).

Counters and decisions live here so that the next leader goes on from them. Python defaults make an empty status
readable; the CRD has none of them, since absent is not zero. Everything that grows is bounded (TR18); the full State
Tree is an HTTP endpoint (CR10).
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.meta import (
    ApiModel,
    Conditions,
    Int32,
    Int64,
    ListType,
    LongText,
    Role,
    ShortText,
    Text,
    Time,
)
from trainer_operator.api.profile import ProfileSnapshot

MAX_MEMBERS = 10_000
Word = Annotated[str, StringConstraints(max_length=4096)]


class StatusModel(ApiModel):
    """A part of the status. Not frozen: a decision changes its own deep copy, field by field."""

    model_config = ConfigDict(frozen=False)


class Phase(StrEnum):
    """A summary for people; programs read conditions (CR8)."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    SCALING = "Scaling"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""Phases that never change again."""
AT_REST = TERMINAL | {Phase.SUSPENDED}
"""Phases in which no member runs, once its pods are gone."""


class MembershipPhase(StrEnum):
    """Whether the members of an epoch may train yet."""

    PREPARING = "Preparing"
    ACTIVE = "Active"


class ServerPhase(StrEnum):
    """Whether all parameter-server shards are served."""

    RECOVERING = "Recovering"
    SERVING = "Serving"


class Rung(StrEnum):
    """How much is restarted for a member that fails again and again (RC6)."""

    PROCESS = "Process"
    POD = "Pod"
    NODE = "Node"
    GROUP = "Group"


class OldPodPhase(StrEnum):
    """How far the removal of a pod of a lost node has come (ND4)."""

    WAITING = "Waiting"
    FORCING = "Forcing"
    DETACHING = "Detaching"
    OUT_OF_SERVICE = "OutOfService"


class RoleStatus(StatusModel):
    """Counts of one role's members."""

    desired: Int32 = 0
    """Members that there should be."""
    ready: Int32 = 0
    """Members that train or could."""
    active: Int32 = 0
    """Members whose pod lives."""
    failed: Int32 = 0
    """Members that are down at the moment."""


class RolesStatus(StatusModel):
    """Counts per role."""

    worker: RoleStatus = RoleStatus()
    """Counts of the workers."""
    ps: RoleStatus = RoleStatus()
    """Counts of the parameter servers."""
    master: RoleStatus = RoleStatus()
    """Counts of the master."""


class MembershipStatus(StatusModel):
    """Who trains together: the current membership epoch, decided by the operator alone (ME1)."""

    epoch: Int64 = 0
    """Number of the epoch; it rises with every change of members or restart."""
    process_epoch: Int64 = 0
    """Epoch in which processes were last started together; those of it and of later epochs train in the present one."""
    phase: MembershipPhase = MembershipPhase.PREPARING
    """Preparing until every member is ready, then Active."""
    members: Text = ""
    """The members, as ranges: worker:0-99,101;ps:0-3."""
    world: Int32 = 0
    """Number of members that take part in the collective."""
    restore_step: Int64 = 0
    """Global step that the epoch starts from."""
    restore_from: ShortText = ""
    """Id of the checkpoint that it starts from; none when memory or the beginning serves."""
    ps_epoch: Int64 = 0
    """Number of the parameter-server epoch; it rises when a server is replaced, without a new membership epoch."""
    serving: LongText = ""
    """Replica that serves each parameter-server shard, as 1.0.0.0; empty while it is the first one of every shard."""
    ps_phase: ServerPhase | None = None
    """Recovering while a parameter-server shard is not served, else Serving."""
    reason: ShortText = ""
    """Why the epoch began."""
    since: Time | None = None
    """When its present phase began."""


class MemberStatus(StatusModel):
    """The record of one member that has been restarted or disrupted."""

    role: Role
    """Its role."""
    index: Int32
    """Its index in the role."""
    attempt: Int32 = 0
    """Number of the present pod; 0 is the first."""
    failures: Int32 = 0
    """Failures that counted against backoffLimit."""
    disruptions: Int32 = 0
    """Disruptions that counted against maxDisruptions."""
    last_reason: ShortText | None = None
    """Why it was last restarted."""
    handled: ShortText = ""
    """Key of the last failure that was dealt with; each is dealt with once."""
    done: Int64 = 0
    """Membership epoch in which it finished its work; 0 while it has not."""
    rung: Rung | None = None
    """What its last failure was met with: a restart of the process, of the pod, on another node, or of all pods."""
    rung_failures: Int32 = 0
    """Failures since that was reached."""
    rung_since: Time | None = None
    """When that was reached."""


class RecoveryStatus(StatusModel):
    """The latest recovery."""

    reason: ShortText = ""
    """What failed, in one word."""
    message: Text = ""
    """What failed, as a sentence."""
    members: Annotated[list[ShortText], Field(max_length=64), ListType(kind="atomic")] = Field(
        default_factory=list
    )
    """The members that failed together, as role-index."""
    detected_at: Time | None = None
    """When the failure was noticed."""
    not_before: Time | None = None
    """When the restart may happen, after its backoff."""
    count: Int32 = 0
    """Number of this restart in its series; a stable time with progress begins a new series."""
    step: Int64 = 0
    """Global step at the time of the failure."""
    without_progress: Int32 = 0
    """Restarts in a row that got no further than the failure before them."""
    fingerprint: Text = ""
    """Kind and place of the last failure that told them."""
    fingerprint_step: Int64 = 0
    """Global step of that failure."""
    fingerprint_count: Int32 = 0
    """How often that failure came at that step in a row; the third ends the Trainer."""


class StallStatus(StatusModel):
    """Training that stands still: stacks are collected, then the processes are restarted (SL4)."""

    member: ShortText
    """The member that is suspected, as role-index."""
    message: Text = ""
    """What was seen, as a sentence."""
    since: Time
    """When it was noticed."""


class PendingChange(StatusModel):
    """A change of members that is under way: it waits for a checkpoint or the end of a step, so that no step is lost."""

    reason: Literal["Scale", "Suspend", "Evict"]
    """Scale, Suspend or Evict."""
    since: Time
    """When it began."""
    checkpoint: ShortText = ""
    """Name of the Checkpoint object that it waits for."""
    soft: bool = False
    """Whether no process ends: the members change at the end of a step, which the parameter servers agree on."""
    step: Int64 | None = None
    """Step after which parameter servers wait for the change; absent while new members still start."""


class GangStatus(StatusModel):
    """Members that were released because not all of them found a node, until all have one (gang start)."""

    tries: Int32 = 0
    """How often in a row they were released."""
    since: Time | None = None
    """When their pods were last created anew."""
    not_before: Time | None = None
    """When their pods are created again; absent once they are."""
    message: Text = ""
    """Which member found no node, and why, in the scheduler's words."""


class OldPod(StatusModel):
    """A pod of a lost node that has a successor, and its volume, until both are free (ND2 to ND4)."""

    member: ShortText
    """The member, as role-index."""
    pod: ShortText
    """Name of the pod."""
    uid: ShortText
    """Uid of the pod."""
    node: ShortText
    """The lost node."""
    claim: ShortText = ""
    """Its volume claim, if it has one."""
    volume: ShortText = ""
    """The volume that the claim is bound to."""
    phase: OldPodPhase = OldPodPhase.WAITING
    """Waiting while the node may still run, then Forcing and Detaching, or OutOfService."""
    since: Time
    """When that began."""


class ExcludedNode(StatusModel):
    """A node that was lost: pods of this Trainer keep away from it for a while."""

    name: ShortText
    """Name of the node."""
    until: Time | None = None
    """When it may be used again; absent once that time is over."""
    count: Int32 = 1
    """How often it was lost; the time doubles with each."""


class LastCheckpoint(StatusModel):
    """The newest committed checkpoint."""

    name: ShortText
    """Name of the Checkpoint object."""
    step: Int64
    """Global step that it holds."""
    committed_at: Time | None = None
    """When it was committed."""


class LastRestore(StatusModel):
    """Where the bytes came from when members last started from a checkpoint."""

    checkpoint: ShortText = ""
    """Id of the checkpoint."""
    step: Int64 = 0
    """Global step that it holds."""
    epoch: Int64 = 0
    """Membership epoch that started from it."""
    ps_epoch: Int64 = 0
    """Parameter-server epoch that started from it."""
    members: Int32 = 0
    """Members that read from it."""
    own_bytes: Int64 = 0
    """Bytes that they had in their own pods."""
    peer_bytes: Int64 = 0
    """Bytes that came from other members."""
    store_bytes: Int64 = 0
    """Bytes that came from the store."""
    at: Time | None = None
    """When all of them trained again."""


class CheckpointInFlight(StatusModel):
    """The one checkpoint that is being taken."""

    name: ShortText
    """Name of the Checkpoint object."""
    reason: CheckpointReason = CheckpointReason.INTERVAL
    """Why it is taken."""
    pause: bool = False
    """Whether the members wait at its step, because the epoch is about to end."""
    since: Time | None = None
    """When it began."""


class ProgressStatus(StatusModel):
    """How fast training goes, and when it will be done."""

    steps_per_second: Annotated[float, Field(ge=0)] | None = None
    """Steps finished each second, from the members' latest steps."""
    steps_per_epoch: Annotated[float, Field(ge=0)] | None = None
    """Steps of one pass over the training data; known once an epoch is finished."""
    percent: Annotated[float, Field(ge=0, le=100)] | None = None
    """Part of all epochs that is done; known once an epoch is finished."""
    estimated_completion_time: Time | None = None
    """When training will be done if it goes on like this; absent while it rests or nothing can be said."""


class Rollback(StatusModel):
    """Training that had to be repeated."""

    from_step: Annotated[Int64, Field(alias="from")]
    """Global step that had been reached."""
    to_step: Annotated[Int64, Field(alias="to")]
    """Global step that training went back to."""
    reason: ShortText = ""
    """Why, in one word."""
    at: Time | None = None
    """When."""


class Timeline(StatusModel):
    """A course of training that began at an older checkpoint, beside the steps that it left (CK6)."""

    number: Int32
    """Its number; the first course of all is 0 and has no record."""
    parent: Int32 = 0
    """Timeline that it branched off."""
    step: Int64 = 0
    """Last step of the parent that counts for it."""


class ImageStatus(ApiModel):
    """An image as it runs."""

    role: Role
    """Role that runs it."""
    container: ShortText
    """Container that runs it."""
    tag: Text
    """Reference as it was given."""
    digest: ShortText | None = None
    """Digest that it resolved to."""
    command: Annotated[tuple[Word, ...], Field(max_length=64), ListType(kind="atomic")] = ()
    """Its ENTRYPOINT, which is run when the Trainer names no command."""
    args: Annotated[tuple[Word, ...], Field(max_length=64), ListType(kind="atomic")] = ()
    """Its CMD, which the Trainer's own args replace."""
    signature: Literal["Verified", "Unverified", "Failed", "Skipped"] | None = None
    """Result of the signature check."""


class WeightsStatus(StatusModel):
    """The commit of the weights that all members get."""

    repo: Text
    """Repository."""
    revision: Text
    """Branch, tag or commit that was asked for."""
    commit: ShortText
    """Commit that it was."""


class AllocationStatus(ApiModel):
    """Where the members were placed, and what that costs."""

    required_label: Text | None = None
    """Node label of the level that all members share, from topologyPolicy."""
    preferred_label: Text | None = None
    """Node label of the level that members rather share."""
    placement: Int32 | None = None
    """How often nobody was left whom new pods had to be near to."""
    tried: Annotated[tuple[ShortText, ...], Field(max_length=64), ListType(kind="atomic")] = ()
    """Domains that had no room for all members; new pods keep away from them."""
    domain: Text | None = None
    """Lowest topology domain that holds all members."""
    cost: Annotated[float, Field(ge=0)] | None = None
    """Cost of communication in this placement; less is better."""
    estimate: Annotated[float, Field(ge=0)] | None = None
    """Expected seconds of communication per step."""


class TrainerStatus(StatusModel):
    """What the operator observed and decided."""

    phase: Phase | None = None
    """Pending, Starting, Running, Recovering, Scaling, Suspended, Succeeded or Failed. For people; programs read the
    conditions."""
    conditions: Conditions = ()
    """Observations, one for each type: Ready, Succeeded, Suspended, QuotaReserved, CheckpointHealthy, Degraded and
    others."""
    observed_generation: Int64 | None = None
    """Generation of the spec that was last acted on."""
    global_step: Int64 = 0
    """Training steps finished. It falls only by a recorded rollback."""
    epochs_completed: Int32 = 0
    """Passes over the training data that are finished."""
    progress: ProgressStatus | None = None
    """How fast training goes, and when it will be done."""
    workers: Int32 = 0
    """Number of worker pods, as the scale subresource reports it."""
    ready_workers: ShortText | None = None
    """Workers ready and desired, as 3/4."""
    ready_servers: ShortText | None = None
    """Parameter servers ready and desired, as 1/1."""
    nodes: Int32 | None = None
    """Number of nodes that run members."""
    selector: Text | None = None
    """Label selector of the worker pods, for autoscalers."""
    roles: RolesStatus = RolesStatus()
    """Counts per role."""
    membership: MembershipStatus = MembershipStatus()
    """Who trains together at the moment."""
    members: Annotated[list[MemberStatus], Field(max_length=MAX_MEMBERS), ListType("role", "index")] = Field(
        default_factory=list
    )
    """Members that have been restarted or disrupted; all others are on their first pod."""
    failures: Int32 = 0
    """Failures that counted against backoffLimit."""
    disruptions: Int32 = 0
    """Disruptions that counted against maxDisruptions."""
    restarts: Int32 = 0
    """Restarts of any cause."""
    recovery: RecoveryStatus | None = None
    """The latest recovery, if there was any."""
    suspects: Annotated[list[ShortText], Field(max_length=16), ListType(kind="atomic")] = Field(
        default_factory=list
    )
    """Members whose step takes suspiciously long, as role-index; nothing is done to them yet."""
    stall: StallStatus | None = None
    """A stall that is being dealt with, if any."""
    excluded_nodes: Annotated[list[ExcludedNode], Field(max_length=16), ListType("name")] = Field(
        default_factory=list
    )
    """Nodes that new pods keep away from, because they were lost."""
    old_pods: Annotated[list[OldPod], Field(max_length=64), ListType("uid")] = Field(default_factory=list)
    """Pods of lost nodes that are removed by force; only where the administrator allows it."""
    pending_change: PendingChange | None = None
    """The change of members under way, if any."""
    gang: GangStatus | None = None
    """Members that were released because not all of them found a node; absent once all have one."""
    last_checkpoint: LastCheckpoint | None = None
    """The newest committed checkpoint."""
    last_restore: LastRestore | None = None
    """Where the bytes of the last restore came from."""
    checkpoint_in_flight: CheckpointInFlight | None = None
    """The checkpoint that is being taken, if any."""
    last_checkpoint_attempt: Time | None = None
    """When the last checkpoint was begun."""
    checkpoint_sequence: Int64 = 0
    """Number of checkpoints begun; names of Checkpoint objects end in it."""
    checkpoint_failures: Int32 = 0
    """Checkpoints aborted in a row."""
    outbox: Annotated[list[Text], Field(max_length=32), ListType(kind="atomic")] = Field(default_factory=list)
    """Notifications that are not sent yet."""
    told: Annotated[list[Text], Field(max_length=80), ListType(kind="atomic")] = Field(default_factory=list)
    """What was notified last, and when."""
    metrics: Annotated[dict[str, float], Field(max_length=8)] = Field(default_factory=dict)
    """Figures that the training code reports, such as accuracy."""
    profile_snapshot: ProfileSnapshot | None = None
    """The copy of the profile that this run goes by; later edits of the profile don't touch it."""
    allocation: AllocationStatus | None = None
    """Where the members were placed."""
    images: Annotated[tuple[ImageStatus, ...], Field(max_length=32), ListType("role", "container")] = ()
    """The images as they run."""
    weights: WeightsStatus | None = None
    """The commit of the weights that all members get."""
    start_time: Time | None = None
    """When the first pods were made."""
    completion_time: Time | None = None
    """When the Trainer succeeded or failed."""
    suspended_at: Time | None = None
    """When it was suspended, while it is."""
    timelines: Annotated[list[Timeline], Field(max_length=64), ListType(kind="atomic")] = Field(
        default_factory=list
    )
    """Timelines that training branched into, oldest first; the last one is the current one."""
    restore_request: Text = ""
    """Value of the annotation restore-from that was honoured or refused last."""
    last_rollback: Rollback | None = None
    """The last time training had to be repeated."""
    rollbacks: Int32 = 0
    """How often training had to be repeated."""
    reason: ShortText = ""
    """Why it ended, in one word."""
    message: LongText = ""
    """Why it ended, as a sentence."""
