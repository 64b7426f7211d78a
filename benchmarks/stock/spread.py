"""Figures of repetitions and of single jobs, put in a few numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Spread", "percentile", "spread"]


@dataclass(frozen=True, slots=True)
class Spread:
    """One figure over all repetitions in which it was found."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the extremes.

    Raises: ValueError without a value.
    """
    if not values:
        raise ValueError("no repetition gave this figure")
    return Spread(statistics.median(values), min(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed.

    No interpolation: it is always a value that was measured, and the largest one for few values.

    Raises: ValueError without a value, or for a share that is not within 0 to 1.
    """
    if not values or not 0 <= share <= 1:
        raise ValueError(f"no percentile {share} of {len(values)} values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
