"""The fields of a container and a pod that users may set; everything else of a pod is ours.

Not offered, so pruned or refused (PS2): host paths, host namespaces and ports, node names, runtime classes, other
sysctls. The security context may only tighten. Typing the few fields we support also keeps the CRD small (CR2).
"""

import re
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool, StringConstraints

from trainer_operator.api.meta import (
    ApiModel,
    Int64,
    LabelName,
    ListType,
    LongText,
    ObjectName,
    ShortText,
)
from trainer_operator.api.quantity import Quantity, is_whole
from trainer_operator.api.rules import Rule

RESERVED_ENV_PREFIX = "TRAINER_"

MOUNT_PATH_SHAPE = r"^/[^/:\x00]+(/[^/:\x00]+)*$"
MOUNT_PATH_FORBIDDEN = (
    r"(^|/)\.\.?(/|$)"  # not normalised
    r"|^/(etc|root|var|var/run|run)$"
    r"|^/(proc|sys|dev|trainer|run/secrets|var/run/secrets)(/|$)"
    r"|^/etc/(ld\.so\.(preload|cache|conf)|ld\.so\.conf\.d|passwd|group|shadow|gshadow|sudoers|sudoers\.d|pam\.d"
    r"|nsswitch\.conf|resolv\.conf|hosts|hostname|ssl|pki|ca-certificates)(/|$)"
)


def _is_mount_path(path: str) -> bool:
    return re.search(MOUNT_PATH_SHAPE, path) is not None and re.search(MOUNT_PATH_FORBIDDEN, path) is None


def _cel_regex(pattern: str) -> str:
    """Write a pattern as a CEL string literal."""
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'


MountPath = Annotated[
    str,
    StringConstraints(min_length=2, max_length=256),
    Rule(
        cel=f"self.matches({_cel_regex(MOUNT_PATH_SHAPE)}) && !self.matches({_cel_regex(MOUNT_PATH_FORBIDDEN)})",
        message=(
            "give an absolute, normalised path such as /etc/secrets or /data; not / or /etc itself, and nothing at or "
            "under /proc, /sys, /dev, /trainer, /var/run/secrets or the account, loader, resolver and TLS files of /etc"
        ),
        holds=_is_mount_path,
        shows="self",
    ),
]
SubPath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=256),
    Rule(
        cel='!self.startsWith("/") && !self.matches("(^|/)\\\\.\\\\.(/|$)")',
        message="give a relative path without ..",
        holds=lambda path: not path.startswith("/") and ".." not in path.split("/"),
        shows="self",
    ),
]

EnvName = Annotated[
    str, StringConstraints(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")
]
DataKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
Argument = LongText
Arguments = Annotated[tuple[Argument, ...], Field(max_length=1024)]
Image = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\s]+$")]


class ImagePullPolicy(StrEnum):
    """When the node fetches the image."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class LocalObjectReference(ApiModel):
    """The name of an object in the Trainer's namespace."""

    name: ObjectName
    """Name of the object, in the namespace of the Trainer."""


class KeySelector(ApiModel):
    """One key of a Secret or ConfigMap in the Trainer's namespace."""

    name: ObjectName
    """Name of the object, in the namespace of the Trainer."""
    key: DataKey
    """Key in its data."""
    optional: StrictBool | None = None
    """With true, a missing object or key leaves the variable unset instead of stopping the pod."""


class FieldSelector(ApiModel):
    """A field of the pod itself."""

    api_version: ShortText | None = None
    """Version of the path's schema; v1 when absent."""
    field_path: ShortText
    """Path such as metadata.name, status.podIP or spec.nodeName."""


class ResourceFieldSelector(ApiModel):
    """A resource figure of the container."""

    container_name: LabelName | None = None
    """Name of the container; needed in volumes only."""
    resource: ShortText
    """Figure such as limits.cpu or requests.memory."""
    divisor: Quantity | None = None
    """Unit to count in; 1 when absent."""


def _present(model: ApiModel) -> list[str]:
    """Return the names of the fields that are given."""
    return [name for name in type(model).model_fields if getattr(model, name) is not None]


class EnvSource(ApiModel):
    """Where the value of a variable comes from: exactly one of these."""

    field_ref: FieldSelector | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldSelector | None = None
    """A resource figure of the container."""
    config_map_key_ref: KeySelector | None = None
    """A key of a ConfigMap in the namespace."""
    secret_key_ref: KeySelector | None = None
    """A key of a Secret in the namespace; the operator never reads it, kubelet does."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.fieldRef), has(self.resourceFieldRef), has(self.configMapKeyRef), "
            "has(self.secretKeyRef)].filter(given, given).size() == 1",
            message="give exactly one of fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef",
            holds=lambda source: len(_present(source)) == 1,
        ),
    )


class EnvVar(ApiModel):
    """An environment variable of the training process."""

    name: EnvName
    """Name of the variable. Names that begin with TRAINER_ are the operator's and are refused."""
    value: LongText | None = None
    """Its value; $(NAME) is replaced by an earlier variable."""
    value_from: EnvSource | None = None
    """Where its value comes from, instead of value."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=f'!self.name.startsWith("{RESERVED_ENV_PREFIX}")',
            message=f"names that begin with {RESERVED_ENV_PREFIX} are set by the operator; choose another name",
            holds=lambda var: not var.name.startswith(RESERVED_ENV_PREFIX),
            at="name",
            shows="self.name",
        ),
        Rule(
            cel="!(has(self.value) && has(self.valueFrom))",
            message="give value or valueFrom, not both",
            holds=lambda var: var.value is None or var.value_from is None,
            at="valueFrom",
        ),
    )


EnvVars = Annotated[tuple[EnvVar, ...], Field(max_length=256), ListType("name")]

ResourceName = Annotated[str, StringConstraints(min_length=1, max_length=317)]
ResourceList = Annotated[dict[ResourceName, Quantity], Field(max_length=32)]


def _has_whole_devices(resources: dict[str, int | str] | None) -> bool:
    """Tell whether all extended resources (`vendor/device`) are whole numbers."""
    return all("/" not in name or is_whole(amount) for name, amount in (resources or {}).items())


def _devices_cel(field: str) -> str:
    return (
        f"!has(self.{field}) || self.{field}.all(name, !name.contains('/') || type(self.{field}[name]) == int "
        f"|| quantity(self.{field}[name]).isInteger())"
    )


class Resources(ApiModel):
    """Resources of one container."""

    requests: ResourceList | None = None
    """What is reserved for the container, by resource name; a resource with a limit only is requested in full."""
    limits: ResourceList | None = None
    """The most it may use, by resource name, for example nvidia.com/gpu."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=_devices_cel("limits"),
            message="devices such as nvidia.com/gpu are counted in whole numbers",
            holds=lambda resources: _has_whole_devices(resources.limits),
            at="limits",
        ),
        Rule(
            cel=_devices_cel("requests"),
            message="devices such as nvidia.com/gpu are counted in whole numbers",
            holds=lambda resources: _has_whole_devices(resources.requests),
            at="requests",
        ),
    )


class VolumeMount(ApiModel):
    """Where a volume of the pod appears in the container."""

    name: LabelName
    """Name of a volume in topology.podSpec.volumes."""
    mount_path: MountPath
    """Absolute path in the container."""
    sub_path: SubPath | None = None
    """Relative path inside the volume; its root when absent."""
    read_only: StrictBool | None = None
    """Mount without the right to write."""


class Toleration(ApiModel):
    """A node taint that the pod accepts."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=317)]
    """Key of the taint. Taints of control-plane nodes can't be tolerated."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal compares the value, Exists takes any; Equal when absent."""
    value: Annotated[str, StringConstraints(max_length=63)] | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; every effect when absent."""
    toleration_seconds: Int64 | None = None
    """How long the pod stays after such a taint appeared, for NoExecute; for ever when absent."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(self.key in ['node-role.kubernetes.io/control-plane', 'node-role.kubernetes.io/master'])",
            message="training never runs on control-plane nodes; name the taint of your training nodes",
            holds=lambda toleration: (
                toleration.key
                not in ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
            ),
            at="key",
            shows="self.key",
        ),
        Rule(
            cel="!(has(self.operator) && self.operator == 'Exists' && has(self.value) && self.value != '')",
            message="with operator Exists leave value out",
            holds=lambda toleration: not (toleration.operator == "Exists" and toleration.value),
            at="value",
            shows="self.value",
        ),
    )


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=64), ListType(kind="atomic")]
NodeSelector = Annotated[
    dict[Annotated[str, StringConstraints(max_length=317)], Annotated[str, StringConstraints(max_length=63)]],
    Field(max_length=64),
]

PositiveId = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True, json_schema_extra={"format": "int64"})]


class Capabilities(ApiModel):
    """Linux capabilities; they can be dropped, never added."""

    drop: Annotated[tuple[ShortText, ...], Field(max_length=64), ListType(kind="set")] | None = None
    """Capabilities to drop; the operator drops ALL already."""


class SeccompProfile(ApiModel):
    """The filter on system calls."""

    type: Literal["RuntimeDefault", "Localhost"]
    """RuntimeDefault, or Localhost for a profile file on the node."""
    localhost_profile: SubPath | None = None
    """Path of the profile on the node, for Localhost."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(self.type == 'Localhost') == has(self.localhostProfile)",
            message="give localhostProfile exactly when type is Localhost",
            holds=lambda profile: (profile.type == "Localhost") == (profile.localhost_profile is not None),
            at="localhostProfile",
        ),
    )


class SecurityContext(ApiModel):
    """Limits of the training process beyond the operator's own; it may tighten, never loosen."""

    run_as_non_root: Literal[True] | None = None
    """Always true: training never runs as root unless an administrator allows it for the namespace."""
    run_as_user: PositiveId | None = None
    """User id of the process, 1 or more."""
    run_as_group: PositiveId | None = None
    """Group id of the process, 1 or more."""
    fs_group: PositiveId | None = None
    """Group that owns the volumes, 1 or more."""
    supplemental_groups: (
        Annotated[tuple[PositiveId, ...], Field(max_length=32), ListType(kind="set")] | None
    ) = None
    """More groups of the process, 1 or more."""
    read_only_root_filesystem: StrictBool | None = None
    """With true, only volumes can be written to."""
    allow_privilege_escalation: Literal[False] | None = None
    """Always false."""
    capabilities: Capabilities | None = None
    """Capabilities to drop."""
    seccomp_profile: SeccompProfile | None = None
    """The filter on system calls; RuntimeDefault when absent."""


TerminationGrace = Annotated[int, Field(ge=0, le=3600, strict=True, json_schema_extra={"format": "int64"})]
