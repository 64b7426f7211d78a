"""What a benchmark found: rows of figures, ratios between them, and the conditions they hold under.

A result is stored as one JSON file. Absolute figures belong to the machine they were measured on; ratios within one
run are what is claimed, and a ratio may have a target it has to keep.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "Column", "Ratio", "Result", "Row", "Scale", "read_all"]

FOLDER = Path(__file__).parent / "results"
"""Where results are stored."""


class Scale(Enum):
    """How much is measured."""

    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Column:
    """One figure that every row may have."""

    key: str
    label: str
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """One subject's figures; a subject that could not be measured has a note that says why."""

    subject: str
    values: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A claim: one figure over another, or one figure with a limit."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    @property
    def is_kept(self) -> bool | None:
        """Whether the target is kept, None when there is none."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Result:
    """All that one benchmark found."""

    name: str
    title: str
    conditions: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...] = ()

    def row(self, subject: str) -> Row | None:
        """Return a subject's row if it was measured."""
        return next((row for row in self.rows if row.subject == subject and row.values), None)

    def store(self, folder: Path, *, scale: Scale, machine: Mapping[str, Any], command: str) -> Path:
        """Write the result with what it was measured on, and return the file."""
        document = {**asdict(self), "scale": scale.value, "machine": machine, "command": command}
        path = folder / f"{self.name}.json"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
        return path


def read_all(folder: Path) -> list[tuple[Result, Mapping[str, Any]]]:
    """Return every stored result with the document it was read from, by name.

    Raises: ValueError naming the file that is no result.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            document = json.loads(path.read_text())
            result = Result(
                document["name"],
                document["title"],
                document["conditions"],
                tuple(Column(**column) for column in document["columns"]),
                tuple(Row(**row) for row in document["rows"]),
                tuple(Ratio(**ratio) for ratio in document["ratios"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path.name} is no benchmark result ({error!r}): delete it or run it again"
            ) from error
        found.append((result, document))
    return found
