"""Volumes of a training pod: the types that PodSecurity `restricted` allows, each by a name in the namespace (PS2).

There is no hostPath, and no projected service account token: tokens are the operator's business.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictBool

from trainer_operator.api.meta import ApiModel, LabelName, ListType, ObjectName, ShortText, StringMap
from trainer_operator.api.pod import (
    DataKey,
    FieldSelector,
    LocalObjectReference,
    ResourceFieldSelector,
    ResourceList,
    SubPath,
)
from trainer_operator.api.quantity import Quantity
from trainer_operator.api.rules import Rule

FileMode = Annotated[int, Field(ge=0, le=0o777, strict=True, json_schema_extra={"format": "int32"})]


class KeyToPath(ApiModel):
    """One key of a Secret or ConfigMap as a file."""

    key: DataKey
    """Key in the object's data."""
    path: SubPath
    """Relative path of the file in the volume."""
    mode: FileMode | None = None
    """Permission bits of the file; the volume's default when absent."""


Items = Annotated[tuple[KeyToPath, ...], Field(max_length=32), ListType(kind="atomic")]


class ConfigMapVolume(ApiModel):
    """The keys of a ConfigMap as files."""

    name: ObjectName
    """Name of the ConfigMap, in the namespace of the Trainer."""
    items: Items | None = None
    """Which keys appear, and where; all of them when absent."""
    default_mode: FileMode | None = None
    """Permission bits of the files; 0644 when absent."""
    optional: StrictBool | None = None
    """With true, a missing ConfigMap gives an empty volume."""


class SecretVolume(ApiModel):
    """The keys of a Secret as files."""

    secret_name: ObjectName
    """Name of the Secret, in the namespace of the Trainer."""
    items: Items | None = None
    """Which keys appear, and where; all of them when absent."""
    default_mode: FileMode | None = None
    """Permission bits of the files; 0644 when absent."""
    optional: StrictBool | None = None
    """With true, a missing Secret gives an empty volume."""


class EmptyDirVolume(ApiModel):
    """An empty folder that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = None
    """Memory keeps it in memory; the node's disk when absent."""
    size_limit: Quantity | None = None
    """The most it may hold; no limit of its own when absent."""


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the Trainer."""
    read_only: StrictBool | None = None
    """Mount without the right to write."""


class DownwardItem(ApiModel):
    """One fact about the pod as a file."""

    path: SubPath
    """Relative path of the file in the volume."""
    field_ref: FieldSelector | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldSelector | None = None
    """A resource figure of a container."""
    mode: FileMode | None = None
    """Permission bits of the file."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.fieldRef) != has(self.resourceFieldRef)",
            message="give exactly one of fieldRef and resourceFieldRef",
            holds=lambda item: (item.field_ref is None) != (item.resource_field_ref is None),
        ),
    )


class DownwardVolume(ApiModel):
    """Facts about the pod as files."""

    items: Annotated[tuple[DownwardItem, ...], Field(max_length=32), ListType(kind="atomic")]
    """The files."""
    default_mode: FileMode | None = None
    """Permission bits of the files; 0644 when absent."""


class NamedProjection(ApiModel):
    """Keys of a Secret or ConfigMap inside a projected volume."""

    name: ObjectName
    """Name of the object, in the namespace of the Trainer."""
    items: Items | None = None
    """Which keys appear, and where; all of them when absent."""
    optional: StrictBool | None = None
    """With true, a missing object gives no files."""


class DownwardProjection(ApiModel):
    """Facts about the pod inside a projected volume."""

    items: Annotated[tuple[DownwardItem, ...], Field(max_length=32), ListType(kind="atomic")]
    """The files."""


class ProjectionSource(ApiModel):
    """One source of a projected volume: exactly one of these."""

    secret: NamedProjection | None = None
    """Keys of a Secret."""
    config_map: NamedProjection | None = None
    """Keys of a ConfigMap."""
    downward_api: Annotated[DownwardProjection | None, Field(alias="downwardAPI")] = None
    """Facts about the pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.secret), has(self.configMap), has(self.downwardAPI)]"
            ".filter(given, given).size() == 1",
            message="give exactly one of secret, configMap and downwardAPI",
            holds=lambda source: (
                sum(part is not None for part in (source.secret, source.config_map, source.downward_api)) == 1
            ),
        ),
    )


class ProjectedVolume(ApiModel):
    """Several sources in one folder."""

    sources: Annotated[
        tuple[ProjectionSource, ...], Field(min_length=1, max_length=8), ListType(kind="atomic")
    ]
    """What is put together."""
    default_mode: FileMode | None = None
    """Permission bits of the files; 0644 when absent."""


class CsiVolume(ApiModel):
    """A volume that a CSI driver makes for the pod alone."""

    driver: ShortText
    """Name of the driver."""
    read_only: StrictBool | None = None
    """Mount without the right to write."""
    fs_type: ShortText | None = None
    """File system, for example ext4; the driver's default when absent."""
    volume_attributes: StringMap | None = None
    """Settings for the driver."""
    node_publish_secret_ref: LocalObjectReference | None = None
    """A Secret of the namespace that the driver gets."""


class ClaimResources(ApiModel):
    """How much storage a claim asks for."""

    requests: ResourceList
    """Requested amounts; storage is the one that counts."""


class ClaimSpec(ApiModel):
    """What a claim asks for."""

    access_modes: Annotated[
        tuple[Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"], ...],
        Field(min_length=1, max_length=4),
        ListType(kind="set"),
    ]
    """How many nodes or pods may use it."""
    resources: ClaimResources
    """How much storage it asks for."""
    storage_class_name: ObjectName | None = None
    """Class of the storage; the cluster's default when absent."""
    volume_mode: Literal["Filesystem"] | None = None
    """Filesystem, the only mode a training pod can mount."""


class ClaimTemplate(ApiModel):
    """The claim to make for each pod."""

    spec: ClaimSpec
    """What the claim asks for."""


class EphemeralVolume(ApiModel):
    """A claim that lives and dies with the pod."""

    volume_claim_template: ClaimTemplate
    """The claim to make."""


class Volume(ApiModel):
    """A named volume of the pod: exactly one source."""

    name: LabelName
    """Name that mounts refer to."""
    config_map: ConfigMapVolume | None = None
    """The keys of a ConfigMap as files."""
    secret: SecretVolume | None = None
    """The keys of a Secret as files."""
    empty_dir: EmptyDirVolume | None = None
    """An empty folder that lives as long as the pod."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim of the namespace."""
    projected: ProjectedVolume | None = None
    """Several sources in one folder."""
    downward_api: Annotated[DownwardVolume | None, Field(alias="downwardAPI")] = None
    """Facts about the pod as files."""
    csi: CsiVolume | None = None
    """A volume that a CSI driver makes for the pod alone."""
    ephemeral: EphemeralVolume | None = None
    """A claim that lives and dies with the pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), "
            "has(self.projected), has(self.downwardAPI), has(self.csi), has(self.ephemeral)]"
            ".filter(given, given).size() == 1",
            message=(
                "give exactly one of configMap, secret, emptyDir, persistentVolumeClaim, projected, downwardAPI, csi "
                "and ephemeral; other volume types are not offered"
            ),
            holds=lambda volume: sum(part is not None for _, part in volume) == 2,  # the name and one source
        ),
        Rule(
            cel="!self.name.startsWith('trainer-')",
            message="volume names that begin with trainer- are the operator's",
            holds=lambda volume: not volume.name.startswith("trainer-"),
            at="name",
            shows="self.name",
        ),
    )


Volumes = Annotated[tuple[Volume, ...], Field(max_length=32), ListType("name")]
