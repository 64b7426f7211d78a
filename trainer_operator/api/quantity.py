"""Quantities of Kubernetes (`20`, `40Gi`, `500m`): their type on the wire and their exact value.

Values are kept as users wrote them and copied into pods unchanged; only checks and sums need the number.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field

PATTERN = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
MAX_LENGTH = 32

_SHAPE = re.compile(PATTERN)
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse_quantity(value: int | str) -> Decimal:
    """Return the exact value of a quantity.

    Raises: ValueError, with a sentence, when it isn't one or is negative.
    """
    text = str(value)
    match = _SHAPE.match(text)
    if match is None or len(text) > MAX_LENGTH:
        msg = f"{text!r} is not a quantity: write a number of 0 or more with an optional unit such as m, k, Mi, Gi"
        raise ValueError(msg)
    number, suffix = match.group(1), match.group(3) or ""
    if suffix in _SUFFIXES:
        return Decimal(number) * _SUFFIXES[suffix]
    return Decimal(number + suffix)


def is_whole(value: int | str) -> bool:
    """Tell whether a quantity is a whole number; devices such as GPUs can't be split."""
    return parse_quantity(value) % 1 == 0


def _checked(value: object) -> int | str:
    """Check before pydantic tries either type, so that a bad value gives one error, not one per type."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        msg = f"{value!r} is not a quantity: write a whole number or a string such as 40Gi"
        raise ValueError(msg)  # noqa: TRY004 (pydantic reports ValueErrors)
    parse_quantity(value)
    return value


Quantity = Annotated[
    int | str,
    BeforeValidator(_checked),
    Field(json_schema_extra={"pattern": PATTERN, "maxLength": MAX_LENGTH}),
]
