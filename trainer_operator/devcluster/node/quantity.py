"""Resource quantities such as `500m`, `1.5Gi` and `2e3`, exactly."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation

_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


def parse_quantity(text: str | float) -> Decimal:
    """Return the value of a quantity.

    Raises: ValueError naming the text.
    """
    written = str(text)
    number = written.rstrip("numkKMGTPEi")
    factor = _FACTORS.get(written[len(number) :])
    try:
        # Decimal forgives blanks around a number, the API does not.
        value = Decimal(number) if number == number.strip() else None
    except InvalidOperation:
        value = None
    if value is None or factor is None or not value.is_finite():
        raise ValueError(f"{written!r} is no quantity, expected a number such as 2, 500m or 1.5Gi")
    return value * factor


def divided(quantity: Decimal, divisor: Decimal) -> int:
    """Return how many divisors a quantity holds, rounded up as the kubelet does; a divisor of 0 counts as 1."""
    return int((quantity / (divisor or Decimal(1))).to_integral_value(ROUND_CEILING))
