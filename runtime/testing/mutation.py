"""Finds out who writes into a cache (S4).

Cached objects are shared by every reader, so one that is changed in place lies to all others, and the next write is
computed from a state the server never had. Types and frozen structs catch most of it; this catches the rest: every
object's bytes are kept when it is stored, and compared when it leaves the store and when the test ends.

It costs an encoding an object, and memory: for tests only.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from unittest import mock

import msgspec
import orjson

from runtime.cache import informer
from runtime.cache.store import Delta, Store
from runtime.cache.transform import Codec
from runtime.objects import ObjectKey

__all__ = ["MutationDetector"]

T = TypeVar("T")


class MutationDetector:
    """Watches over the stores of all informers that are made while it is installed."""

    def __init__(self) -> None:
        self._stores: list[_GuardedStore[Any]] = []
        self._found: list[str] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Guard every informer made inside the block.

        The one name it replaces is the only way to reach caches that a whole program builds for itself.
        """

        def guarded(codec: Codec[T]) -> Store[T]:
            store = _GuardedStore(codec, self._found)
            self._stores.append(store)
            return store

        with mock.patch.object(informer, "Store", guarded):
            yield

    def findings(self) -> list[str]:
        """Name every object that was changed in a cache, and the fields, one line each."""
        for store in self._stores:
            store.check_all()
        return list(self._found)


class _GuardedStore(Store[T]):
    def __init__(self, codec: Codec[T], found: list[str]) -> None:
        super().__init__(codec)
        self._stored: dict[ObjectKey, tuple[T, bytes]] = {}
        self._found = found

    def put(self, obj: T) -> list[Delta[T]]:
        deltas = super().put(obj)
        self._follow(self._codec.identity(obj).key)
        return deltas

    def remove(self, obj: T) -> list[Delta[T]]:
        deltas = super().remove(obj)
        self._follow(self._codec.identity(obj).key)
        return deltas

    def replace(self, objects: Iterable[T], *, namespace: str | None = None) -> list[Delta[T]]:
        deltas = super().replace(objects, namespace=namespace)
        for key in {*self._objects, *self._stored}:
            self._follow(key)
        return deltas

    def check_all(self) -> None:
        """Compare everything that is stored now."""
        for key in self._stored:
            self._check(key)

    def _follow(self, key: ObjectKey) -> None:
        """Check the object that was here before, and remember the one that is here now."""
        now, before = self._objects.get(key), self._stored.get(key)
        if before is not None and now is before[0]:
            return
        self._check(key)
        self._stored.pop(key, None)
        if now is not None:
            self._stored[key] = (now, _encode(now))

    def _check(self, key: ObjectKey) -> None:
        if key not in self._stored:
            return
        obj, before = self._stored[key]
        if (after := _encode(obj)) != before:
            fields = ", ".join(_differences(orjson.loads(before), orjson.loads(after), ""))
            self._found.append(f"{key} was changed in the cache: {fields}")
            self._stored[key] = (obj, after)


def _encode(obj: object) -> bytes:
    return orjson.dumps(obj) if isinstance(obj, dict) else msgspec.json.encode(obj)


def _differences(before: Any, after: Any, path: str) -> list[str]:
    """Return the paths at which two JSON values differ."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            found
            for name in sorted({*before, *after})
            for found in _differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)
        ]
    return [] if before == after else [path]
