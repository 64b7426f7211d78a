"""TrainingProfile: what the Trainers of a namespace share, and how its retry policy combines with theirs.

A Trainer copies the profile into its status when it starts (`status.profileSnapshot`), so later edits touch nothing
that runs (TN7). A retry policy has no schema defaults: a default would look like a choice and hide the profile's. The
defaults are applied by `effective_retry_policy`, after both were read (TR33).
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from trainer_operator.api.meta import ApiModel, ApiObject, Conditions, Int32, Int64, ObjectName, Text
from trainer_operator.api.pod import EnvVars, MountPath, NodeSelector, Tolerations
from trainer_operator.api.rules import Rule

DEFAULT_BACKOFF_LIMIT = 5
DEFAULT_BASE_SECONDS = 2
DEFAULT_CAP_SECONDS = 300
DEFAULT_RESET_AFTER_SECONDS = 600

Seconds = Annotated[int, Field(ge=1, le=86400, strict=True, json_schema_extra={"format": "int32"})]


class RestartPolicy(StrEnum):
    """Which exits of a member lead to a restart (RC7)."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class BackoffPolicy(ApiModel):
    """How the wait before a restart grows: baseSeconds, doubled each time, up to capSeconds."""

    base_seconds: Seconds | None = None
    """Wait before the second restart in a row; the first comes at once. Default 2."""
    cap_seconds: Seconds | None = None
    """Longest wait between two restarts. Default 300."""
    reset_after_seconds: Seconds | None = None
    """Trouble-free training time, with progress, after which the wait begins anew. Default 600."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.baseSeconds) || !has(self.capSeconds) || self.baseSeconds <= self.capSeconds",
            message="baseSeconds must not be more than capSeconds",
            holds=lambda backoff: (
                backoff.base_seconds is None
                or backoff.cap_seconds is None
                or backoff.base_seconds <= backoff.cap_seconds
            ),
            at="baseSeconds",
            shows="self.baseSeconds",
        ),
    )


class RetryPolicy(ApiModel):
    """What happens after failures. A field that is absent is taken from the profile, else from its default."""

    backoff_limit: Int32 | None = None
    """Failures of the training itself that are retried, in all; one more ends the Trainer. Disruptions such as
    evictions and lost nodes don't count. Default 5."""
    restart_policy: RestartPolicy | None = None
    """Which exits are retried: OnFailure (any but 0), Always (also 0 before the training is complete), Never, or
    ExitCode (those above 128, the signals). Default OnFailure."""
    backoff: BackoffPolicy | None = None
    """How the wait before a restart grows."""
    max_disruptions: Int32 | None = None
    """Disruptions that are survived: evictions, preemptions, lost nodes. Without limit when absent."""


@dataclass(frozen=True, slots=True)
class EffectiveRetryPolicy:
    """The retry policy that holds for one Trainer, every field decided."""

    backoff_limit: int = DEFAULT_BACKOFF_LIMIT
    restart_policy: RestartPolicy = RestartPolicy.ON_FAILURE
    base_seconds: int = DEFAULT_BASE_SECONDS
    cap_seconds: int = DEFAULT_CAP_SECONDS
    reset_after_seconds: int = DEFAULT_RESET_AFTER_SECONDS
    max_disruptions: int | None = None


def effective_retry_policy(own: RetryPolicy | None, profile: RetryPolicy | None) -> EffectiveRetryPolicy:
    """Combine a Trainer's policy with its profile's, field by field: own, then profile, then default."""
    decided: dict[str, object] = {}
    for policy in (profile, own):  # later ones win
        if policy is None:
            continue
        for part in (policy, policy.backoff):
            if part is not None:
                decided |= {name: value for name, value in part if value is not None and name != "backoff"}
    policy_of = EffectiveRetryPolicy(**decided)  # type: ignore[arg-type]  # names and types are the models' own
    if policy_of.base_seconds <= policy_of.cap_seconds:
        return policy_of
    # Each half is valid alone, for example a short cap here and a long base in the profile: the cap is the promise.
    return EffectiveRetryPolicy(**{**decided, "base_seconds": policy_of.cap_seconds})  # type: ignore[arg-type]


class RuntimeConfig(ApiModel):
    """A Secret that every member finds as files."""

    secret: ObjectName
    """Name of the Secret, in the namespace of the profile; kubelet mounts it, the operator never reads it."""
    mount_path: MountPath
    """Absolute path where its keys appear as files, for example /etc/secrets."""


class TrainingProfileSpec(ApiModel):
    """Settings that Trainers take over when they name this profile."""

    node_selector: NodeSelector | None = None
    """Labels that a node must have; a role's own nodeSelector is added and wins."""
    tolerations: Tolerations | None = None
    """Node taints that the pods accept; a role's own are added."""
    runtime_config: RuntimeConfig | None = None
    """A Secret that every member finds as files."""
    env_vars: EnvVars | None = None
    """Environment variables of every member; the Trainer's own win."""
    retry_policy: RetryPolicy | None = None
    """What happens after failures, where the Trainer doesn't say so itself."""


class TrainingProfileStatus(ApiModel):
    """What was observed about the profile."""

    conditions: Conditions = ()
    """Observations, one for each type."""
    observed_generation: Int64 | None = None
    """Generation of the spec that was last looked at."""


class TrainingProfile(ApiObject):
    """Settings that several Trainers of a namespace share: where they run, what they find there, how they retry.
    A Trainer copies the profile when it starts; later edits reach later Trainers only.
    """

    kind: Literal["TrainingProfile"] = "TrainingProfile"
    spec: TrainingProfileSpec
    """Settings that Trainers take over."""
    status: TrainingProfileStatus = TrainingProfileStatus()
    """What was observed about the profile."""


class ProfileSnapshot(ApiModel):
    """The copy of a profile that a running Trainer goes by."""

    name: ObjectName
    """Name of the profile."""
    uid: Text = ""
    """Unique id of the profile that was copied."""
    generation: Int64 = 0
    """Its generation at that time."""
    spec: TrainingProfileSpec
    """Its content at that time."""
