"""Kubernetes objects and kinds, as far as every object shares them.

An object is either a JSON mapping or a cached projection with a `metadata` attribute; the functions here read both,
so that code above need not know how a kind is cached. They never change what they are given (S4).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

__all__ = [
    "CONFIGMAPS",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PERSISTENT_VOLUMES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "SECRETS",
    "SERVICES",
    "SERVICE_ACCOUNTS",
    "SUBJECT_ACCESS_REVIEWS",
    "TOKEN_REVIEWS",
    "AnyObject",
    "HasMetadata",
    "JsonObject",
    "ObjectKey",
    "Resource",
    "key_of",
    "owner",
    "owner_reference",
    "owner_references",
    "resource_version_of",
    "thaw",
    "uid_of",
]

JsonObject = Mapping[str, Any]
"""An object as JSON; `Any` because the API's schema is not ours (style §5)."""


class HasMetadata(Protocol):
    """A cached projection of an object."""

    @property
    def metadata(self) -> Any:
        """Return the object's metadata with attributes in snake case."""
        ...


AnyObject = JsonObject | HasMetadata


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace of a cluster-wide object is empty."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind and where the API serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, *, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection, an object or a subresource.

        Raises: ValueError when an object of a namespaced kind is named without its namespace.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        elif self.namespaced and name:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace, none was given")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


def key_of(obj: AnyObject) -> ObjectKey:
    """Return namespace and name."""
    if isinstance(obj, Mapping):
        metadata = obj.get("metadata") or {}
        return ObjectKey(metadata.get("namespace") or "", metadata.get("name") or "")
    return ObjectKey(obj.metadata.namespace or "", obj.metadata.name or "")


def uid_of(obj: AnyObject) -> str:
    """Return the uid, empty when the object has none yet."""
    if isinstance(obj, Mapping):
        return (obj.get("metadata") or {}).get("uid") or ""
    return obj.metadata.uid or ""


def resource_version_of(obj: AnyObject) -> str:
    """Return the resource version, empty when the object has none yet."""
    if isinstance(obj, Mapping):
        return (obj.get("metadata") or {}).get("resourceVersion") or ""
    return obj.metadata.resource_version or ""


def owner_references(obj: AnyObject) -> list[dict[str, Any]]:
    """Return all owner references as JSON."""
    if isinstance(obj, Mapping):
        return list((obj.get("metadata") or {}).get("ownerReferences") or ())
    return [
        {
            "apiVersion": reference.api_version or "",
            "kind": reference.kind or "",
            "name": reference.name or "",
            "uid": reference.uid or "",
            "controller": bool(reference.controller),
            "blockOwnerDeletion": bool(reference.block_owner_deletion),
        }
        for reference in obj.metadata.owner_references or ()
    ]


def owner(obj: AnyObject) -> dict[str, Any] | None:
    """Return the controlling owner's reference, if there is one."""
    for reference in owner_references(obj):
        if reference.get("controller"):
            return reference
    return None


def owner_reference(resource: Resource, obj: AnyObject, *, controller: bool = True) -> dict[str, Any]:
    """Return the reference that makes `obj` an owner; blocks its deletion until the child is gone."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": key_of(obj).name,
        "uid": uid_of(obj),
        "controller": controller,
        "blockOwnerDeletion": True,
    }


def thaw(obj: Any) -> Any:
    """Return a mutable copy of a cached JSON value; `copy.deepcopy` takes three times as long (S4)."""
    if isinstance(obj, Mapping):
        return {key: thaw(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [thaw(value) for value in obj]
    return obj
