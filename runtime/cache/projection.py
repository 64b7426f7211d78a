"""Pods, nodes and bare metadata, as the few fields that are read from them.

Frozen msgspec structs, tuples for lists, outside the garbage collector, and what objects say alike is kept once: 3 KiB
a Pod, against 29 KiB as dict (measured). The server writes `null` for empty lists, maps and times, so every such field accepts it
(PY9); parts that are plain structs in Go, like `status`, are never null. Properties give the readable form. A
projection is never written back (S4).
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr

from runtime.cache.sharing import Pool
from runtime.objects import ObjectKey

__all__ = [
    "Condition",
    "ContainerState",
    "ContainerStatus",
    "Metadata",
    "Node",
    "NodeAddress",
    "NodeSpec",
    "NodeStatus",
    "OwnerReference",
    "PartialObject",
    "Pod",
    "PodSpec",
    "PodStatus",
    "Projection",
    "Running",
    "Taint",
    "Terminated",
    "Waiting",
]

_EMPTY: Mapping[str, str] = {}


class _Part(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A part of an object: immutable, camel case on the wire."""


class OwnerReference(_Part, frozen=True):
    """Who owns the object."""

    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(_Part, frozen=True):
    """What every object has."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None


_NO_METADATA = Metadata()


class Condition(_Part, frozen=True):
    """One condition of a pod or a node."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class Projection(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """An object reduced to what we read; `kind` is set on watch events and absent in lists."""

    kind: str | None = None
    metadata: Metadata = _NO_METADATA

    @property
    def key(self) -> ObjectKey:
        """Return namespace and name."""
        return ObjectKey(self.metadata.namespace or "", self.metadata.name or "")

    @property
    def name(self) -> str:
        """Return the name."""
        return self.metadata.name or ""

    @property
    def namespace(self) -> str:
        """Return the namespace, empty for a cluster-wide object."""
        return self.metadata.namespace or ""

    @property
    def uid(self) -> str:
        """Return the uid."""
        return self.metadata.uid or ""

    @property
    def resource_version(self) -> str:
        """Return the resource version."""
        return self.metadata.resource_version or ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the labels."""
        return self.metadata.labels or _EMPTY

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the annotations."""
        return self.metadata.annotations or _EMPTY

    @property
    def is_deleting(self) -> bool:
        """Tell whether deletion has been asked for."""
        return self.metadata.deletion_timestamp is not None

    def share(self, pool: Pool) -> None:
        """Replace parts by equal ones that other objects have already; called once, before anybody sees the object.

        A projection with large parts of its own extends this; one that does not works, and weighs more.
        """
        metadata = self.metadata
        if self.kind is not None:
            force_setattr(self, "kind", pool.text(self.kind))
        if metadata.namespace is not None:
            force_setattr(metadata, "namespace", pool.text(metadata.namespace))
        if metadata.creation_timestamp is not None:
            force_setattr(metadata, "creation_timestamp", pool.text(metadata.creation_timestamp))
        if metadata.labels:
            pool.values(metadata.labels)
        if metadata.owner_references:
            force_setattr(metadata, "owner_references", pool.parts(metadata.owner_references))


P = TypeVar("P", bound=Projection)


class PartialObject(Projection, frozen=True):
    """Metadata of any kind (W17)."""


class Waiting(_Part, frozen=True):
    """A container that has not started."""

    reason: str | None = None
    message: str | None = None


class Running(_Part, frozen=True):
    """A container that runs."""

    started_at: str | None = None


class Terminated(_Part, frozen=True):
    """A container that has ended."""

    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Part, frozen=True):
    """Exactly one of three, or none when the kubelet has not reported."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Part, frozen=True):
    """What the kubelet says of one container."""

    name: str | None = None
    ready: bool | None = None
    started: bool | None = None
    restart_count: int | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodSpec(_Part, frozen=True):
    """Where a pod runs and who put it there."""

    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None


class PodStatus(_Part, frozen=True):
    """What became of a pod."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


_NO_POD_SPEC = PodSpec()
_NO_POD_STATUS = PodStatus()


class Pod(Projection, frozen=True):
    """A pod."""

    spec: PodSpec = _NO_POD_SPEC
    status: PodStatus = _NO_POD_STATUS

    @property
    def phase(self) -> str:
        """Return the phase, `Pending` when none was reported."""
        return self.status.phase or "Pending"

    @property
    def node_name(self) -> str | None:
        """Return the node the pod was bound to."""
        return self.spec.node_name or None

    @property
    def is_terminal(self) -> bool:
        """Tell whether the pod has ended, well or not."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_ready(self) -> bool:
        """Tell whether the pod's `Ready` condition is true."""
        return _is_true(self.status.conditions, "Ready")

    def share(self, pool: Pool) -> None:
        """Share what pods of one owner, and of one node, have alike."""
        super().share(pool)
        force_setattr(self, "spec", pool.part(self.spec))
        status = self.status
        pool.content(status)
        if status.conditions:
            force_setattr(status, "conditions", pool.parts(status.conditions))
        if status.init_container_statuses:
            force_setattr(status, "init_container_statuses", pool.parts(status.init_container_statuses))
        if status.container_statuses:
            force_setattr(status, "container_statuses", pool.parts(status.container_statuses))


class Taint(_Part, frozen=True):
    """What keeps pods off a node."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class NodeSpec(_Part, frozen=True):
    """What the administrator said of a node."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class NodeAddress(_Part, frozen=True):
    """How to reach a node."""

    type: str | None = None
    address: str | None = None


class NodeStatus(_Part, frozen=True):
    """What the kubelet says of its node."""

    conditions: tuple[Condition, ...] | None = None
    allocatable: dict[str, str] | None = None
    capacity: dict[str, str] | None = None
    addresses: tuple[NodeAddress, ...] | None = None


_NO_NODE_SPEC = NodeSpec()
_NO_NODE_STATUS = NodeStatus()


class Node(Projection, frozen=True):
    """A node."""

    spec: NodeSpec = _NO_NODE_SPEC
    status: NodeStatus = _NO_NODE_STATUS

    @property
    def is_ready(self) -> bool:
        """Tell whether the node's `Ready` condition is true."""
        return _is_true(self.status.conditions, "Ready")

    @property
    def is_schedulable(self) -> bool:
        """Tell whether the node is not cordoned."""
        return not self.spec.unschedulable


def _is_true(conditions: tuple[Condition, ...] | None, type: str) -> bool:
    return any(condition.type == type and condition.status == "True" for condition in conditions or ())
