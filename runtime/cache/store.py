"""Objects of one kind as last seen, and what changed when they were (S1, S3, W15).

The store changes first and returns the differences; whoever tells handlers does so after that. All methods are
synchronous, so that a reader on the loop always sees one snapshot.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runtime.cache.index import NAMESPACE, OWNER_UID, Index
from runtime.cache.transform import Codec, Identity
from runtime.eventloop import collector_held
from runtime.objects import ObjectKey

__all__ = ["Added", "Deleted", "Delta", "Store", "Updated"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    """An object appeared."""

    obj: T


@dataclass(frozen=True, slots=True)
class Updated(Generic[T]):
    """An object changed."""

    old: T
    new: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object is gone; its final state is unknown when the deletion itself was missed (a tombstone)."""

    obj: T
    final_state_unknown: bool


Delta = Added[T] | Updated[T] | Deleted[T]


class Store(Generic[T]):
    """Key to object, with indexes.

    Guarantees: the indexes by namespace and by owner uid always exist; an index added late covers what is stored.
    """

    def __init__(self, codec: Codec[T]) -> None:
        self._codec = codec
        self._objects: dict[ObjectKey, T] = {}
        # A namespace never changes and is part of the key, so this index needs no bookkeeping of values.
        self._by_namespace: dict[str, dict[ObjectKey, T]] = {}
        self._indexes: dict[str, Index[T]] = {OWNER_UID: Index(codec.owner_uids)}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> T | None:
        """Return an object."""
        return self._objects.get(key)

    def objects(self, namespace: str | None = None) -> list[T]:
        """Return all objects, or those of a namespace."""
        found = self._objects if namespace is None else self._by_namespace.get(namespace, {})
        return list(found.values())

    def by_index(self, index: str, value: str) -> list[T]:
        """Return the objects that have a value in an index.

        Raises: KeyError naming the index that does not exist.
        """
        if index == NAMESPACE:
            return self.objects(value)
        return [self._objects[key] for key in self._indexes[index].keys(value)]

    def has_uid(self, key: ObjectKey, uid: str) -> bool:
        """Tell whether the object of that name is the one with this uid."""
        obj = self._objects.get(key)
        return obj is not None and self._codec.uid(obj) == uid

    def add_index(self, name: str, values_of: Callable[[T], Iterable[str]]) -> None:
        """Add an index and enter what is stored.

        Raises: ValueError when the name is taken.
        """
        if name == NAMESPACE or name in self._indexes:
            raise ValueError(f"index {name!r} exists already")
        index = Index(values_of)
        for key, obj in self._objects.items():
            index.put(key, obj)
        self._indexes[name] = index

    def put(self, obj: T) -> list[Delta[T]]:
        """Store an object; the same uid and version keeps the stored instance and is no change (W15)."""
        return self._put(self._codec.identity(obj), obj)

    def remove(self, obj: T) -> list[Delta[T]]:
        """Take out an object whose deletion was seen; another object of the same name stays."""
        identity = self._codec.identity(obj)
        if not self.has_uid(identity.key, identity.uid):
            return []
        self._leave(identity.key)
        return [Deleted(obj, final_state_unknown=False)]

    def replace(self, objects: Iterable[T], *, namespace: str | None = None) -> list[Delta[T]]:
        """Make the content of a namespace, or of the whole store, what a list said it is: one step (W15)."""
        with collector_held():
            listed = {(identity := self._codec.identity(obj)).key: (identity, obj) for obj in objects}
            known = self._objects if namespace is None else self._by_namespace.get(namespace, {})
            deltas: list[Delta[T]] = []
            for key in [key for key in known if key not in listed]:
                old = self._objects[key]
                self._leave(key)
                deltas.append(Deleted(old, final_state_unknown=True))
            for identity, obj in listed.values():
                deltas += self._put(identity, obj)
            return deltas

    def _put(self, identity: Identity, obj: T) -> list[Delta[T]]:
        key, uid, version = identity
        old = self._objects.get(key)
        if old is None:
            self._enter(key, obj)
            return [Added(obj)]
        if self._codec.uid(old) != uid:
            # Re-entered rather than overwritten, so that it takes its place at the end of the order of arrival.
            self._leave(key)
            self._enter(key, obj)
            return [Deleted(old, final_state_unknown=True), Added(obj)]
        if version and self._codec.version(old) == version:
            return []
        self._enter(key, obj)
        return [Updated(old, obj)]

    def _enter(self, key: ObjectKey, obj: T) -> None:
        self._objects[key] = obj
        neighbours = self._by_namespace.get(key.namespace)
        if neighbours is None:  # asked first, since `setdefault` would make a dict for each event
            neighbours = self._by_namespace[key.namespace] = {}
        neighbours[key] = obj
        for index in self._indexes.values():
            index.put(key, obj)

    def _leave(self, key: ObjectKey) -> None:
        del self._objects[key]
        neighbours = self._by_namespace[key.namespace]
        del neighbours[key]
        if not neighbours:
            del self._by_namespace[key.namespace]
        for index in self._indexes.values():
            index.remove(key)
