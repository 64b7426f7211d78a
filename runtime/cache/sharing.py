"""One instance of what many cached objects say alike (S2, G3).

Pods of one owner repeat each other: the owner's reference, the values of labels, node names, reasons, the seconds in
which they started. A decoder makes all of it anew for each; kept once, it is half of what a projected Pod weighs.

Only immutable values are shared, so that nobody can tell. The pool forgets everything when it is full: what is in use
lives on in the objects, and only the next object pays again. That bounds it without counting references.
"""

from typing import Final, TypeVar

import msgspec
from msgspec.structs import force_setattr

__all__ = ["Pool"]

S = TypeVar("S", bound=msgspec.Struct)

CAPACITY: Final = 16_384
"""Values a pool holds; at a few hundred bytes each that is a few MiB at worst."""


class Pool:
    """Gives the first of equal values for each later one.

    Guarantees: what is returned equals what was given, in type too; memory is bounded by `capacity` values.
    Assumptions: values are hashable and immutable; used from one thread.
    """

    __slots__ = ("_capacity", "_known")

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._known: dict[object, object] = {}

    def __len__(self) -> int:
        return len(self._known)

    def text(self, value: str) -> str:
        """Return the shared instance of a text."""
        known = self._known.get(value)
        if known is None:
            self._keep(value)
            return value
        assert isinstance(known, str)
        return known

    def part(self, value: S) -> S:
        """Return the shared instance of a frozen struct; what is in one that is new is shared as well."""
        known = self._known.get(value)
        if known is not None:
            assert type(known) is type(value)
            return known
        self.content(value)
        self._keep(value)
        return value

    def parts(self, values: tuple[S, ...]) -> tuple[S, ...]:
        """Share each of some structs."""
        return tuple([self.part(value) for value in values])

    def content(self, value: msgspec.Struct) -> None:
        """Share the texts and structs in a struct that itself is not shared, and that nobody has seen yet."""
        for name in value.__struct_fields__:
            content = getattr(value, name)
            if type(content) is str:
                force_setattr(value, name, self.text(content))
            elif isinstance(content, msgspec.Struct):
                force_setattr(value, name, self.part(content))

    def values(self, mapping: dict[str, str]) -> None:
        """Share the values of a mapping that nobody else has seen yet; decoders share short keys themselves."""
        for name, value in mapping.items():
            mapping[name] = self.text(value)

    def _keep(self, value: object) -> None:
        if len(self._known) >= self._capacity:
            self._known.clear()
        self._known[value] = value
