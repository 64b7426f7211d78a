"""Trainer: one training run. The spec is the user's wish, and says all of `api.md`'s table.

Fields whose behaviour arrives later are typed and validated already: fields are added, never given a new meaning.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool, StringConstraints, ValidationError

from trainer_operator.api import bucket as buckets
from trainer_operator.api import pattern
from trainer_operator.api.meta import (
    DNS_LABEL,
    GROUP,
    INT32_MAX,
    ApiModel,
    ApiObject,
    Int32,
    LabelName,
    ListType,
    ObjectName,
    Role,
    ShortText,
)
from trainer_operator.api.names import MAX_ATTEMPT, MAX_NAME, is_trainer_name, longest_name
from trainer_operator.api.pod import (
    Arguments,
    EnvVars,
    Image,
    ImagePullPolicy,
    LocalObjectReference,
    MountPath,
    Resources,
    SubPath,
)
from trainer_operator.api.profile import RetryPolicy
from trainer_operator.api.rules import Rule, TransitionRule
from trainer_operator.api.status import TrainerStatus
from trainer_operator.api.topology import MAX_WORKERS, Topology

__all__ = [
    "MANAGER",
    "CheckpointPolicy",
    "CleanPodPolicy",
    "Elastic",
    "FailureAction",
    "FailureRule",
    "Notebook",
    "Scheduling",
    "SuccessPolicy",
    "Trainer",
    "TrainerSpec",
    "TrainerStatus",
]

MANAGER = f"{GROUP}/trainer-controller"

MIN_INTERVAL_MINUTES = 0.05

PositiveSeconds = Annotated[
    int, Field(ge=1, le=INT32_MAX, strict=True, json_schema_extra={"format": "int32"})
]
Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS, strict=True, json_schema_extra={"format": "int32"})]


class Elastic(ApiModel):
    """How far the number of workers may change."""

    min_workers: Workers = 1
    """Fewest workers that training goes on with when capacity is lost or an autoscaler asks. Default 1."""
    max_workers: Workers | None = None
    """Most workers that an autoscaler may ask for; topology.workers when absent."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.maxWorkers) || !has(self.minWorkers) || self.minWorkers <= self.maxWorkers",
            message="minWorkers must not be more than maxWorkers",
            holds=lambda elastic: elastic.max_workers is None or elastic.min_workers <= elastic.max_workers,
            at="minWorkers",
            shows="self.minWorkers",
        ),
    )


class CheckpointPolicy(ApiModel):
    """Where and how often the state of training is saved."""

    bucket: Annotated[
        str,
        StringConstraints(min_length=1, max_length=buckets.MAX_LENGTH),
        Rule(
            cel=f'self.matches("{buckets.BUCKET_PATTERN.replace(chr(92), chr(92) * 2)}") '
            f'&& !self.matches("{buckets.TRAVERSAL_PATTERN.replace(chr(92), chr(92) * 2)}") '
            "&& (self.contains('://') || self.size() <= 253)",
            message=buckets.ALLOWED,
            holds=buckets.is_bucket,
            shows="self",
        ),
    ]
    """Where checkpoints go: the name of a PersistentVolumeClaim in the namespace (pvc-backups), s3://bucket/prefix, or
    file:///directory."""
    prefix: SubPath | None = None
    """Relative path inside the bucket; namespace and Trainer are appended to it. The bucket's root when absent."""
    interval_minutes: Annotated[
        float,
        Field(ge=0, le=525600),
        Rule(
            cel="self >= 0.05",
            message="give at least 0.05 minutes (3 seconds)",
            holds=lambda minutes: minutes >= MIN_INTERVAL_MINUTES,
            shows="self",
        ),
    ] = 15
    """Minutes between two checkpoints, 0.05 or more. Default 15."""
    max_retention: Annotated[
        int, Field(ge=1, le=1000, strict=True, json_schema_extra={"format": "int32"})
    ] = 3
    """Committed checkpoints that are kept; older ones are removed, held ones never. Default 3."""
    staging_timeout_seconds: Annotated[
        int, Field(ge=10, le=86400, strict=True, json_schema_extra={"format": "int32"})
    ] = 600
    """Seconds that saving may take before it is given up. Default 600."""
    retain_on_delete: StrictBool = True
    """Whether the checkpoints in the bucket outlive the Trainer. Default true."""
    verify_at_rest: StrictBool = True
    """Whether a pod is started once a day to read the checkpoints while no member runs. Default true."""
    credentials_secret: ObjectName | None = None
    """Secret with the credentials of the bucket, in the namespace of the Trainer."""


class FailureAction(StrEnum):
    """What a failure rule does."""

    FAIL_TRAINER = "FailTrainer"
    RESTART_MEMBER = "RestartMember"
    RESTART_ALL = "RestartAll"
    IGNORE = "Ignore"


ExitCode = Annotated[int, Field(ge=0, le=255, strict=True, json_schema_extra={"format": "int32"})]


class FailureRule(ApiModel):
    """What to do about failures of one kind. All criteria that are given must match."""

    role: Role | None = None
    """Role of the member that failed; any when absent."""
    exit_codes: (
        Annotated[tuple[ExitCode, ...], Field(min_length=1, max_length=256), ListType(kind="set")] | None
    ) = None
    """Exit codes, 0 to 255; any when absent."""
    reason: ShortText | None = None
    """Reason such as OOMKilled or Evicted; any when absent."""
    message_pattern: (
        Annotated[
            str,
            StringConstraints(min_length=1, max_length=256),
            Rule(
                cel=None,  # CEL can't compile a variable
                message="give a regular expression of RE2, which has no look-around and no back references",
                holds=lambda text: not pattern.fault(text),
            ),
        ]
        | None
    ) = None
    """Regular expression (RE2) that is found in the last output of the process; anything when absent."""
    action: FailureAction
    """FailTrainer ends the Trainer, RestartMember and RestartAll restart and count, Ignore restarts without counting."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.role) || has(self.exitCodes) || has(self.reason) || has(self.messagePattern)",
            message="give at least one of role, exitCodes, reason and messagePattern",
            holds=lambda rule: any(
                part is not None for part in (rule.role, rule.exit_codes, rule.reason, rule.message_pattern)
            ),
        ),
    )


class WeightFile(ApiModel):
    """One file of a repository."""

    path: SubPath
    """Path in the repository."""
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)] | None = None
    """SHA-256 that the file must have, in lower-case hex; the hub's own figure when absent."""


class HuggingFaceWeights(ApiModel):
    """Weights from a Hugging Face repository."""

    repo: Annotated[
        str, StringConstraints(min_length=1, max_length=193, pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?$")
    ]
    """Repository, for example org/model."""
    revision: Annotated[
        str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_./-]+$")
    ] = "main"
    """Branch, tag or commit; it is pinned to a commit before anything is fetched. Default main."""
    files: Annotated[tuple[WeightFile, ...], Field(max_length=1024), ListType("path")] | None = None
    """Files to fetch; all that are safe to load when absent."""
    mount_path: MountPath
    """Absolute path where the files appear in the training container."""
    credentials_secret: ObjectName | None = None
    """Secret with the token for the hub, in the namespace of the Trainer."""


class Weights(ApiModel):
    """Pretrained weights that are fetched and verified before training starts."""

    hugging_face: HuggingFaceWeights
    """Weights from a Hugging Face repository."""


class TopologyPolicy(ApiModel):
    """How near to each other the members run."""

    required: LabelName | None = None
    """Level, for example zone, that must hold all members in one domain."""
    preferred: LabelName | None = None
    """Level that should hold all members in one domain."""


class Scheduling(ApiModel):
    """How the pods find their nodes."""

    gang: StrictBool = True
    """Whether pods are placed all together or not at all. Default true."""
    scheduler_name: ObjectName | None = None
    """Scheduler that places the pods; the operator's configuration decides when absent."""
    queue: ObjectName | None = None
    """Queue that the Trainer waits in."""
    topology_policy: TopologyPolicy | None = None
    """How near to each other the members run."""


class CleanPodPolicy(StrEnum):
    """Which pods are removed at the end."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """When training has succeeded."""

    CHIEF = "Chief"
    ALL_WORKERS = "AllWorkers"


class Notebook(ApiModel):
    """A Jupyter Kernel Gateway beside the training."""

    image: Image | None = None
    """Image with the kernel gateway; the Trainer's image when absent."""
    kernel_name: LabelName = "python3"
    """Kernel to start. Default python3."""
    idle_timeout_seconds: PositiveSeconds = 3600
    """Seconds without use after which a kernel ends. Default 3600."""


class NotificationRoute(ApiModel):
    """Which events go to which service."""

    name: LabelName
    """Name of the route."""
    severity: Literal["Info", "Warning", "Critical"] = "Warning"
    """Least severity that is sent. Default Warning."""
    service: LabelName
    """Name of a service that the administrator has configured; addresses can't be given here."""


class Notifications(ApiModel):
    """Who is told about events of this Trainer."""

    routes: Annotated[tuple[NotificationRoute, ...], Field(max_length=16), ListType("name")]
    """Which events go to which service."""


class TrainerSpec(ApiModel):
    """What to train, with whom, and what to do when things fail."""

    epochs: Annotated[int, Field(ge=1, le=INT32_MAX, strict=True, json_schema_extra={"format": "int32"})]
    """Passes over the training data, 1 or more."""
    image: Image
    """Image of the training container."""
    command: Arguments | None = None
    """Command of the training process; the image's own when absent."""
    args: Arguments | None = None
    """Arguments of the command."""
    env: EnvVars | None = None
    """Environment variables of the training process. Names that begin with TRAINER_ are the operator's."""
    working_dir: Annotated[str, StringConstraints(max_length=1024, pattern=r"^/")] | None = None
    """Absolute path of the working directory; the image's own when absent."""
    image_pull_policy: ImagePullPolicy | None = None
    """When a node fetches the image: Always, IfNotPresent or Never; as for any pod when absent."""
    image_pull_secrets: (
        Annotated[tuple[LocalObjectReference, ...], Field(max_length=16), ListType("name")] | None
    ) = None
    """Secrets with the credentials of the image registry, in the namespace of the Trainer."""
    resources: Resources | None = None
    """Resources of each worker; parameter servers and the master take the same unless topology.roles says otherwise."""
    topology: Topology = Topology()
    """How many members of each role there are, and what their pods look like."""
    elastic: Elastic | None = None
    """How far the number of workers may change; not at all by itself when absent."""
    checkpoint: CheckpointPolicy | None = None
    """Where and how often the state of training is saved; never when absent."""
    profile: ObjectName | None = None
    """Name of a TrainingProfile in the same namespace. It is copied when the Trainer starts."""
    retry_policy: RetryPolicy | None = None
    """What happens after failures; it overrides the profile, field by field."""
    failure_rules: (
        Annotated[tuple[FailureRule, ...], Field(max_length=32), ListType(kind="atomic")] | None
    ) = None
    """What to do about failures of certain kinds; the first that matches decides, before retryPolicy."""
    weights: Weights | None = None
    """Pretrained weights that are fetched and verified before training starts."""
    scheduling: Scheduling = Scheduling()
    """How the pods find their nodes."""
    suspend: StrictBool = False
    """With true, members are ended after a checkpoint and their resources released, until it is false again."""
    managed_by: Annotated[str, StringConstraints(min_length=1, max_length=63)] | None = None
    """Controller in charge, as in batch/v1 Job. With any but trainer.operator.kubeflow.org/trainer-controller this
    operator touches nothing. It can't be changed."""
    ttl_seconds_after_finished: Int32 | None = None
    """Seconds after its end at which the Trainer is deleted; never when absent."""
    active_deadline_seconds: PositiveSeconds | None = None
    """Seconds after its start at which the Trainer is ended as failed; never when absent."""
    pending_timeout_seconds: PositiveSeconds = 300
    """Seconds that members may wait for a node before training goes on smaller (elastic) or the members are released
    and queued again. Default 300."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Pods that are removed at the end: Running, All or None. Default Running."""
    success_policy: SuccessPolicy | None = None
    """When training has succeeded: Chief (the default with a master) or AllWorkers (the default without)."""
    notebook: Notebook | None = None
    """A Jupyter Kernel Gateway beside the training; none when absent."""
    notifications: Notifications | None = None
    """Who is told about events of this Trainer; as the administrator configured when absent."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.elastic) || !has(self.elastic.maxWorkers) "
            "|| self.topology.workers <= self.elastic.maxWorkers",
            message="topology.workers must not be more than elastic.maxWorkers",
            holds=lambda spec: (
                spec.elastic is None
                or spec.elastic.max_workers is None
                or spec.topology.workers <= spec.elastic.max_workers
            ),
            at="topology.workers",
            shows="self.topology.workers",
        ),
        Rule(
            cel="!has(self.elastic) || !has(self.elastic.minWorkers) "
            "|| self.topology.workers >= self.elastic.minWorkers",
            message="topology.workers must not be less than elastic.minWorkers",
            holds=lambda spec: spec.elastic is None or spec.topology.workers >= spec.elastic.min_workers,
            at="topology.workers",
            shows="self.topology.workers",
        ),
    )
    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            cel="has(self.managedBy) == has(oldSelf.managedBy) "
            "&& (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
            message="managedBy can't be changed; create another Trainer",
            allows=lambda old, new: old.managed_by == new.managed_by,
            at="managedBy",
        ),
    )

    @property
    def is_ours(self) -> bool:
        """Tell whether this operator is in charge (TR36)."""
        return self.managed_by in (None, MANAGER)

    @property
    def most_workers(self) -> int:
        """Return the most workers that it may be scaled to."""
        bound = self.elastic.max_workers if self.elastic else None
        return max(self.topology.workers, bound or 0)

    @property
    def effective_success_policy(self) -> SuccessPolicy:
        """Return the success policy that holds: given, else Chief with a master and AllWorkers without."""
        if self.success_policy is not None:
            return self.success_policy
        return SuccessPolicy.CHIEF if self.topology.masters else SuccessPolicy.ALL_WORKERS


_NAME_ALLOWED = (
    f"pod names such as <name>-worker-<index>-a{MAX_ATTEMPT} must fit {MAX_NAME} characters at the largest index "
    "(topology.workers or elastic.maxWorkers); choose a shorter name"
)


def _longest_name(trainer: "Trainer") -> str:
    topology = trainer.spec.topology
    return longest_name(
        trainer.metadata.name,
        workers=trainer.spec.most_workers,
        servers=topology.parameter_servers * topology.replication_factor,
        masters=topology.masters,
    )


_MOST_WORKERS_CEL = (
    "(has(self.spec.elastic) && has(self.spec.elastic.maxWorkers) "
    "&& self.spec.elastic.maxWorkers > self.spec.topology.workers "
    "? self.spec.elastic.maxWorkers : self.spec.topology.workers)"
)
_SERVERS_CEL = "(self.spec.topology.parameterServers * self.spec.topology.replicationFactor)"


def _fits_cel(role: Role, count: str) -> str:
    fixed = len(f"-{role}--a{MAX_ATTEMPT}")
    return f"self.metadata.name.size() + {fixed} + string({count} - 1).size() <= {MAX_NAME}"


class Trainer(ApiObject):
    """One training run: its members, its checkpoints, and what happens when something fails. List its pods with
    kubectl get pods -l trainer-name=<name>.
    """

    kind: Literal["Trainer"] = "Trainer"
    spec: TrainerSpec
    """What to train, with whom, and what to do when things fail."""
    status: TrainerStatus = TrainerStatus()
    """What the operator observed and decided."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f"self.metadata.name.matches('{DNS_LABEL}')",
            message="a Trainer's name is part of host names: lower-case letters, digits and -, no dots",
            holds=lambda trainer: (
                is_trainer_name(trainer.metadata.name) or len(trainer.metadata.name) > MAX_NAME
            ),
            at="metadata.name",
            shows="self.metadata.name",
        ),
        Rule(
            cel=f"{_fits_cel(Role.WORKER, _MOST_WORKERS_CEL)} && "
            f"(self.spec.topology.parameterServers == 0 || {_fits_cel(Role.PS, _SERVERS_CEL)}) && "
            f"(self.spec.topology.masters == 0 || {_fits_cel(Role.MASTER, '1')})",
            message=_NAME_ALLOWED,
            holds=lambda trainer: len(_longest_name(trainer)) <= MAX_NAME,
            at="metadata.name",
            shows="self.metadata.name",
        ),
    )


def readable(stored: Mapping[str, Any]) -> Trainer | None:
    """Return a stored Trainer; None if it cannot be read, which its own reconciler says on the object."""
    try:
        return Trainer.read(stored)
    except ValidationError:
        return None
