"""Trainer.spec.topology: how many members of each role, what their pods look like, and their storage."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from trainer_operator.api.affinity import Affinity
from trainer_operator.api.meta import LABEL_PREFIX, ApiModel, Int32, ListType, ObjectName
from trainer_operator.api.names import TRAINER_LABEL
from trainer_operator.api.pod import (
    Arguments,
    EnvVars,
    Image,
    NodeSelector,
    Resources,
    SecurityContext,
    TerminationGrace,
    Tolerations,
    VolumeMount,
)
from trainer_operator.api.quantity import Quantity, parse_quantity
from trainer_operator.api.rules import Rule
from trainer_operator.api.volumes import Volumes

MAX_WORKERS = 10_000
MAX_SERVERS = 1_000
FIRST_EPHEMERAL_PORT = 32768
DEFAULT_PORTS = 1024
DEFAULT_GRACE_SECONDS = 30
MAX_SHM_BYTES = 2**40

LabelText = Annotated[
    str, StringConstraints(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
AnnotationText = Annotated[str, StringConstraints(max_length=16384)]
Labels = Annotated[dict[LabelKey, LabelText], Field(max_length=64)]
Annotations = Annotated[dict[LabelKey, AnnotationText], Field(max_length=64)]


def is_reserved_key(key: str) -> bool:
    """Tell whether a label or annotation is ours (TR23)."""
    return key == TRAINER_LABEL or key.startswith(LABEL_PREFIX)


def _not_reserved(field: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || !self.{field}.exists(key, key == '{TRAINER_LABEL}' "
        f"|| key.startsWith('{LABEL_PREFIX}'))",
        message=f"'{TRAINER_LABEL}' and keys that begin with '{LABEL_PREFIX}' are the operator's",
        holds=lambda settings: not any(map(is_reserved_key, getattr(settings, field) or ())),
        at=field,
    )


class SchedulingGate(ApiModel):
    """What must be removed from a pod before it is scheduled."""

    name: LabelKey
    """Name of the gate, for example kueue.x-k8s.io/topology."""


SchedulingGates = Annotated[tuple[SchedulingGate, ...], Field(max_length=16), ListType("name")]


class RoleSettings(ApiModel):
    """What one role does differently from the Trainer as a whole; absent fields are the Trainer's."""

    resources: Resources | None = None
    """Resources of each member of the role, instead of spec.resources."""
    image: Image | None = None
    """Image of the role, instead of spec.image."""
    command: Arguments | None = None
    """Command of the role, instead of spec.command."""
    args: Arguments | None = None
    """Arguments of the role, instead of spec.args."""
    env: EnvVars | None = None
    """More environment variables for the role; they win over spec.env."""
    node_selector: NodeSelector | None = None
    """Labels that a node must have to run the role."""
    tolerations: Tolerations | None = None
    """Node taints that the role accepts, besides the profile's."""
    affinity: Affinity | None = None
    """Where the role's pods may or should run."""
    labels: Labels | None = None
    """More labels of the role's pods; they win over podSpec.labels."""
    annotations: Annotations | None = None
    """More annotations of the role's pods; they win over podSpec.annotations."""
    scheduling_gates: SchedulingGates | None = None
    """Gates that keep the role's new pods from being scheduled until somebody removes them, as a queue does."""

    rules: ClassVar[tuple[Rule, ...]] = (_not_reserved("labels"), _not_reserved("annotations"))


class Roles(ApiModel):
    """Settings per role."""

    worker: RoleSettings | None = None
    """Settings of the workers."""
    ps: RoleSettings | None = None
    """Settings of the parameter servers."""
    master: RoleSettings | None = None
    """Settings of the master."""


class PodSettings(ApiModel):
    """What all pods of the Trainer have in common."""

    ports: Annotated[int, Field(ge=1, le=32768, strict=True, json_schema_extra={"format": "int32"})] = (
        DEFAULT_PORTS
    )
    """Number of ephemeral ports that a pod may use, counted from 32768: sets the safe sysctl
    net.ipv4.ip_local_port_range."""
    labels: Labels | None = None
    """More labels of the pods. trainer-name and trainer.operator.kubeflow.org/ are the operator's and are refused."""
    annotations: Annotations | None = None
    """More annotations of the pods. Those of trainer.operator.kubeflow.org/ are the operator's and are refused."""
    volumes: Volumes | None = None
    """Volumes of the pods, of the types that PodSecurity restricted allows."""
    volume_mounts: Annotated[tuple[VolumeMount, ...], Field(max_length=64), ListType("mountPath")] | None = (
        None
    )
    """Where the volumes appear in the training container."""
    service_account_name: ObjectName | None = None
    """Service account of the pods: default, or one that the administrator allows for the namespace."""
    priority_class_name: ObjectName | None = None
    """Priority class of the pods; the system- classes are refused."""
    shm_size: Quantity | None = None
    """Size of /dev/shm, for data loaders and collectives; at most 1Ti. The runtime's default when absent."""
    security_context: SecurityContext | None = None
    """Limits beyond the operator's own; it may tighten, never loosen."""
    termination_grace_period_seconds: TerminationGrace = DEFAULT_GRACE_SECONDS
    """Seconds a pod may take to end after it was asked to, 0 to 3600."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _not_reserved("labels"),
        _not_reserved("annotations"),
        Rule(
            cel="!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')",
            message="the system- priority classes are the cluster's own; name another one",
            holds=lambda pod: not (pod.priority_class_name or "").startswith("system-"),
            at="priorityClassName",
            shows="self.priorityClassName",
        ),
        Rule(
            cel="!has(self.shmSize) || quantity(string(self.shmSize)).compareTo(quantity('1Ti')) <= 0",
            message="shmSize is at most 1Ti",
            holds=lambda pod: pod.shm_size is None or parse_quantity(pod.shm_size) <= MAX_SHM_BYTES,
            at="shmSize",
            shows="self.shmSize",
        ),
        Rule(
            cel="!has(self.volumeMounts) || self.volumeMounts.all(mount, "
            "has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name))",
            message="each mount names one of podSpec.volumes",
            holds=lambda pod: (
                {mount.name for mount in pod.volume_mounts or ()}
                <= {volume.name for volume in pod.volumes or ()}
            ),
            at="volumeMounts",
        ),
    )


class StorageRecovery(StrEnum):
    """What becomes of a member's claim when its node is lost (ND3)."""

    FRESH_VOLUME = "FreshVolume"
    REATTACH = "Reattach"
    OUT_OF_SERVICE = "OutOfService"
    WAIT = "Wait"


class Storage(ApiModel):
    """A claim for each member."""

    size: Quantity
    """Size of each claim, for example 100Gi."""
    storage_class_name: ObjectName | None = None
    """Class of the storage; the cluster's default when absent."""
    recovery: StorageRecovery = StorageRecovery.FRESH_VOLUME
    """What happens when a member's node is lost: FreshVolume starts with an empty claim that is filled from peers or
    the checkpoint store, Reattach waits until the old volume can be attached elsewhere, OutOfService speeds that up
    where the administrator allows it, Wait waits for the node."""


class Topology(ApiModel):
    """How many members of each role there are, and what their pods look like."""

    workers: Annotated[
        int, Field(ge=1, le=MAX_WORKERS, strict=True, json_schema_extra={"format": "int32"})
    ] = 1
    """Number of workers, 1 to 10000. kubectl scale and autoscalers change this field."""
    parameter_servers: Annotated[Int32, Field(le=MAX_SERVERS)] = 0
    """Number of parameter-server shards, 0 to 1000; 0 trains by all-reduce."""
    masters: Annotated[Int32, Field(le=1)] = 0
    """Number of masters, 0 or 1; without a master worker 0 is the chief."""
    replication_factor: Annotated[
        int, Field(ge=1, le=5, strict=True, json_schema_extra={"format": "int32"})
    ] = 1
    """Copies of each checkpoint shard, 1 to 5; a commit needs a majority of them. Also the pods per parameter-server
    shard: one serves, the others are warm."""
    roles: Roles | None = None
    """What single roles do differently."""
    pod_spec: PodSettings = PodSettings()
    """What all pods of the Trainer have in common."""
    storage: Storage | None = None
    """A claim for each member; none when absent."""
