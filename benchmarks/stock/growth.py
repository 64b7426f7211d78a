"""How costs grow with the number of pods, read off the sections of one scenario at several sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.stock.results import figures
from benchmarks.stock.spread import spread

__all__ = ["Growth", "growth", "sizes"]

_PREFIX = "scale-"


@dataclass(frozen=True, slots=True)
class Growth:
    """One cost of one arm, at the smallest and at the largest size at which it was measured."""

    smallest: int
    largest: int
    low: float
    high: float

    @property
    def factor(self) -> float | None:
        """How many times as much; None of nothing."""
        return self.high / self.low if self.low > 0 else None


def sizes(found: Mapping[str, Any]) -> list[int]:
    """Return the sizes that a result has, in order."""
    names = (section["name"] for section in found["sections"])
    return sorted(int(name.removeprefix(_PREFIX)) for name in names if name.startswith(_PREFIX))


def growth(found: Mapping[str, Any], arm: str, key: str) -> Growth | None:
    """Return how a cost grew, None unless it was measured at two sizes."""
    values = {size: figures(dict(found), f"{_PREFIX}{size}", arm, key) for size in sizes(found)}
    medians = {size: spread(each).median for size, each in values.items() if each}
    if len(medians) < 2:
        return None
    smallest, largest = min(medians), max(medians)
    return Growth(smallest, largest, medians[smallest], medians[largest])
