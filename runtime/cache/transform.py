"""From an object's bytes to what is stored (S2).

A :class:`Codec` decodes, strips what nobody reads (managedFields and the last-applied annotation are a third of a
Pod), and tells the few things the store must know of an object. It runs once, before storing, and is idempotent.
"""

import sys
from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import orjson

from runtime.cache.projection import PartialObject, Projection
from runtime.cache.sharing import Pool
from runtime.errors import RuntimeFault
from runtime.objects import JsonObject, ObjectKey, Resource

__all__ = ["METADATA_ONLY", "Codec", "Identity", "JsonCodec", "StructCodec", "Undecodable", "codec_for"]

METADATA_ONLY = PartialObject
"""The projection that has the server send metadata alone (W17)."""

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def _sparing(media_type: str) -> str:
    """Ask for a media type without managedFields, which we drop anyway, or else with them (W17, KEP-5958).

    A server that does not know the parameter ignores it; one that refuses it takes the second offer.
    """
    return f"{media_type};drop=metadata.managedFields,{media_type}"


_JSON = _sparing("application/json")
_METADATA_LIST = _sparing("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
_METADATA_EVENT = _sparing("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
P = TypeVar("P", bound=Projection)


class Undecodable(RuntimeFault):
    """An object cannot be read as its kind; it is counted and skipped, never fatal (PY9)."""


class Identity(NamedTuple):
    """What tells one state of one object from another."""

    key: ObjectKey
    uid: str
    version: str


class Codec(Protocol[T]):
    """How objects of one kind are read and recognised."""

    accept_list: str
    accept_watch: str

    def decode(self, raw: bytes | memoryview | msgspec.Raw) -> T:
        """Decode and strip one object.

        Raises: Undecodable, also when it is of another kind (W14) or has no name.
        """
        ...

    def identity(self, obj: T) -> Identity:
        """Return key, uid and version."""
        ...

    def uid(self, obj: T) -> str:
        """Return the uid alone."""
        ...

    def version(self, obj: T) -> str:
        """Return the resource version alone."""
        ...

    def owner_uids(self, obj: T) -> Iterable[str]:
        """Return the uids of all owners."""
        ...


class StructCodec(Generic[P]):
    """Objects as a projection."""

    def __init__(self, resource: Resource, projection: type[P]) -> None:
        self._kinds = (None, resource.kind)
        self._decode = msgspec.json.Decoder(projection).decode
        self._pool = Pool()
        self.accept_list = self.accept_watch = _JSON
        if issubclass(projection, METADATA_ONLY):
            self._kinds = (None, "PartialObjectMetadata")
            self.accept_list, self.accept_watch = _METADATA_LIST, _METADATA_EVENT

    def decode(self, raw: bytes | memoryview | msgspec.Raw) -> P:
        """Decode one object, drop what only kubectl reads, share what other objects have too."""
        try:
            obj = self._decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Undecodable(str(error)) from error
        if obj.kind not in self._kinds:
            raise Undecodable(f"object of kind {obj.kind!r}")
        if not obj.metadata.name:
            raise Undecodable("object without a name")
        if obj.metadata.annotations:
            obj.metadata.annotations.pop(_LAST_APPLIED, None)
        obj.share(self._pool)
        return obj

    def identity(self, obj: P) -> Identity:
        """Return key, uid and version."""
        metadata = obj.metadata
        return Identity(
            ObjectKey(metadata.namespace or "", metadata.name or ""),
            metadata.uid or "",
            metadata.resource_version or "",
        )

    def uid(self, obj: P) -> str:
        """Return the uid alone."""
        return obj.metadata.uid or ""

    def version(self, obj: P) -> str:
        """Return the resource version alone."""
        return obj.metadata.resource_version or ""

    def owner_uids(self, obj: P) -> Iterable[str]:
        """Return the uids of all owners."""
        return [reference.uid for reference in obj.metadata.owner_references or () if reference.uid]


class JsonCodec:
    """Objects as JSON mappings."""

    def __init__(self, resource: Resource) -> None:
        self._kind = sys.intern(resource.kind)
        self._api_version = sys.intern(resource.api_version)
        self.accept_list = self.accept_watch = _JSON

    def decode(self, raw: bytes | memoryview | msgspec.Raw) -> JsonObject:
        """Decode one object, drop what only servers and kubectl read, share strings that many objects have."""
        try:
            obj = orjson.loads(memoryview(raw) if isinstance(raw, msgspec.Raw) else raw)
        except orjson.JSONDecodeError as error:
            raise Undecodable(str(error)) from error
        if not isinstance(obj, dict) or not isinstance(metadata := obj.get("metadata"), dict):
            raise Undecodable("no object with metadata")
        if obj.setdefault("kind", self._kind) != self._kind:
            raise Undecodable(f"object of kind {obj['kind']!r}")
        if not isinstance(metadata.get("name"), str) or not metadata["name"]:
            raise Undecodable("object without a name")
        obj["kind"] = self._kind
        obj["apiVersion"] = self._api_version
        _strip(metadata)
        return obj

    def identity(self, obj: JsonObject) -> Identity:
        """Return key, uid and version."""
        metadata = obj["metadata"]
        return Identity(
            ObjectKey(metadata.get("namespace") or "", metadata["name"]),
            metadata.get("uid") or "",
            metadata.get("resourceVersion") or "",
        )

    def uid(self, obj: JsonObject) -> str:
        """Return the uid alone."""
        return obj["metadata"].get("uid") or ""

    def version(self, obj: JsonObject) -> str:
        """Return the resource version alone."""
        return obj["metadata"].get("resourceVersion") or ""

    def owner_uids(self, obj: JsonObject) -> Iterable[str]:
        """Return the uids of all owners."""
        return [ref["uid"] for ref in obj["metadata"].get("ownerReferences") or () if ref.get("uid")]


def codec_for(resource: Resource, projection: type[Projection] | None) -> Codec[Any]:
    """Return the codec of a kind: a projection's, or JSON's when there is none."""
    return JsonCodec(resource) if projection is None else StructCodec(resource, projection)


def _strip(metadata: dict[str, Any]) -> None:
    metadata.pop("managedFields", None)
    if isinstance(annotations := metadata.get("annotations"), dict):
        annotations.pop(_LAST_APPLIED, None)
    if isinstance(namespace := metadata.get("namespace"), str):
        metadata["namespace"] = sys.intern(namespace)
    if isinstance(labels := metadata.get("labels"), dict):
        for name, value in labels.items():
            if isinstance(value, str):
                labels[name] = sys.intern(value)
