"""Affinity of a pod to nodes and to other pods, without any reference to another namespace (TN1).

`topology.roles.<role>.affinity` is copied into the pods; our own fields decide where a gang goes.
"""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from trainer_operator.api.meta import ApiModel, ListType, StringMap

LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
LabelValue = Annotated[str, StringConstraints(max_length=63)]
Values = Annotated[tuple[LabelValue, ...], Field(max_length=256), ListType(kind="atomic")]
Weight = Annotated[int, Field(ge=1, le=100, strict=True, json_schema_extra={"format": "int32"})]


class NodeRequirement(ApiModel):
    """A condition on a label of a node."""

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How key and values relate."""
    values: Values | None = None
    """Values to compare with; none for Exists and DoesNotExist."""


Requirements = Annotated[tuple[NodeRequirement, ...], Field(max_length=32), ListType(kind="atomic")]


class NodeTerm(ApiModel):
    """Conditions that a node must meet, all of them. Nodes can't be picked by name."""

    match_expressions: Requirements
    """Conditions on labels."""


class NodeSelectorTerms(ApiModel):
    """Alternatives: a node must meet one of them."""

    node_selector_terms: Annotated[
        tuple[NodeTerm, ...], Field(min_length=1, max_length=16), ListType(kind="atomic")
    ]
    """The alternatives."""


class PreferredNodeTerm(ApiModel):
    """A preference for nodes."""

    weight: Weight
    """How much it counts, 1 to 100."""
    preference: NodeTerm
    """The nodes that are preferred."""


class NodeAffinity(ApiModel):
    """Which nodes a pod may or should run on."""

    required_during_scheduling_ignored_during_execution: NodeSelectorTerms | None = None
    """What a node must meet."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredNodeTerm, ...], Field(max_length=16), ListType(kind="atomic")] | None
    ) = None
    """What a node should meet."""


class LabelRequirement(ApiModel):
    """A condition on a label of pods."""

    key: LabelKey
    """Key of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How key and values relate."""
    values: Values | None = None
    """Values to compare with; none for Exists and DoesNotExist."""


class LabelSelector(ApiModel):
    """Which pods are meant."""

    match_labels: StringMap | None = None
    """Labels that a pod must have."""
    match_expressions: (
        Annotated[tuple[LabelRequirement, ...], Field(max_length=32), ListType(kind="atomic")] | None
    ) = None
    """Conditions on labels, all of them."""


class PodTerm(ApiModel):
    """Pods of the same namespace, and how near they are."""

    label_selector: LabelSelector | None = None
    """Which pods are meant, in the namespace of the Trainer."""
    topology_key: LabelKey
    """Node label that says what near means, for example kubernetes.io/hostname."""


class PreferredPodTerm(ApiModel):
    """A preference for or against being near pods."""

    weight: Weight
    """How much it counts, 1 to 100."""
    pod_affinity_term: PodTerm
    """The pods that are meant."""


class PodAffinity(ApiModel):
    """Pods that a pod must or should be near to, or away from."""

    required_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PodTerm, ...], Field(max_length=16), ListType(kind="atomic")] | None
    ) = None
    """What must hold."""
    preferred_during_scheduling_ignored_during_execution: (
        Annotated[tuple[PreferredPodTerm, ...], Field(max_length=16), ListType(kind="atomic")] | None
    ) = None
    """What should hold."""


class Affinity(ApiModel):
    """Where a pod may or should run."""

    node_affinity: NodeAffinity | None = None
    """Which nodes."""
    pod_affinity: PodAffinity | None = None
    """Near which pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Away from which pods."""
