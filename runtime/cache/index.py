"""Finding cached objects by something else than their name (S3)."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from runtime.objects import ObjectKey

__all__ = ["NAMESPACE", "OWNER_UID", "Index"]

T = TypeVar("T")

NAMESPACE = "namespace"
"""The index by namespace; every store has it."""
OWNER_UID = "owner-uid"
"""The index by the uids of owners; every store has it."""


class Index(Generic[T]):
    """Values of a function of an object, each with the keys of the objects that have it, in order of arrival."""

    def __init__(self, values_of: Callable[[T], Iterable[str]]) -> None:
        self._values_of = values_of
        self._keys: dict[str, dict[ObjectKey, None]] = {}
        self._values: dict[ObjectKey, tuple[str, ...]] = {}

    def put(self, key: ObjectKey, obj: T) -> None:
        """Enter an object, or enter it anew after a change."""
        values = tuple(self._values_of(obj))
        before = self._values.get(key, ())
        if values == before:
            return
        if before:
            self._leave(key, [value for value in before if value not in values])
        for value in values:
            self._keys.setdefault(value, {})[key] = None
        if values:
            self._values[key] = values
        else:
            self._values.pop(key, None)

    def remove(self, key: ObjectKey) -> None:
        """Take an object out."""
        self._leave(key, self._values.pop(key, ()))

    def keys(self, value: str) -> Iterable[ObjectKey]:
        """Return the keys of the objects that have a value."""
        return self._keys.get(value, ())

    def _leave(self, key: ObjectKey, values: Iterable[str]) -> None:
        for value in values:
            keys = self._keys.get(value)
            if keys is not None:
                keys.pop(key, None)
                if not keys:
                    del self._keys[value]
