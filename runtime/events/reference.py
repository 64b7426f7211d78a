"""Which object an event is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.cache.projection import Node, Pod
from runtime.objects import NODES, PODS, AnyObject, Resource, key_of, resource_version_of, uid_of

__all__ = ["ObjectReference", "reference_to"]


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """A reference to one object, precise enough to outlive its name."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the reference as the API writes it."""
        fields = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: value for key, value in fields.items() if value}


def reference_to(obj: AnyObject, resource: Resource | None = None) -> ObjectReference:
    """Return a reference to the object.

    Raises: ValueError when the object does not say of which kind it is, and `resource` does not either.
    """
    if resource is not None:
        api_version, kind = resource.api_version, resource.kind
    elif isinstance(obj, Mapping):
        api_version, kind = obj.get("apiVersion") or "", obj.get("kind") or ""
    elif isinstance(obj, Pod):
        api_version, kind = PODS.api_version, PODS.kind
    elif isinstance(obj, Node):
        api_version, kind = NODES.api_version, NODES.kind
    else:
        api_version, kind = "", ""
    if not api_version or not kind:
        raise ValueError(f"cannot refer to {key_of(obj)}: it does not carry its kind, pass its resource")
    key = key_of(obj)
    return ObjectReference(api_version, kind, key.namespace, key.name, uid_of(obj), resource_version_of(obj))
