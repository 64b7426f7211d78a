"""What an interrupted run has measured already: one JSON line for each cell, written when the cell is done.

Lines stand in the order in which cells ended, which is another one where some run side by side. The first line says
which run it is. Lines of another run, and a last line that was cut off, count as not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.stock.plan import Cell, Plan
from benchmarks.stock.scenario import Outcome

__all__ = ["Journal", "Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """What came of one cell."""

    cell: Cell
    versions: Mapping[str, str] = field(default_factory=dict)
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """By scenario."""
    errors: Mapping[str, str] = field(default_factory=dict)
    """By scenario: why the arm is broken there."""
    began: float = 0.0
    """When, in seconds since the epoch."""
    seconds: float = 0.0
    """How long it took, from nothing to nothing: its cluster's start and end are in it."""


class Journal:
    """The file of one run.

    Guarantees: a cell that was recorded is there after a kill at any moment; one that was not is measured again.
    """

    def __init__(self, file: Path, plan: Plan) -> None:
        """Go on with the file if it is of this very plan, else begin anew with the next record."""
        self._file = file
        self._fingerprint = plan.fingerprint()
        self.records = _read(file, self._fingerprint)
        self._begun = False

    def done(self) -> set[Cell]:
        """Return the cells that need not be measured again."""
        return {record.cell for record in self.records}

    def add(self, record: Record) -> None:
        """Record a cell."""
        self.records.append(record)
        if not self._begun:  # written anew: what was cut off would spoil the line after it
            self._file.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"plan": self._fingerprint}), *map(_line, self.records)]
            whole = self._file.with_suffix(".new")
            whole.write_text("\n".join(lines) + "\n")
            whole.replace(self._file)
            self._begun = True
            return
        with self._file.open("a") as appended:
            appended.write(_line(record) + "\n")

    def remove(self) -> None:
        """Forget the run: it is complete, and its result is stored."""
        self._file.unlink(missing_ok=True)


def _line(record: Record) -> str:
    return json.dumps(asdict(record))


def _read(file: Path, fingerprint: str) -> list[Record]:
    try:
        head, *lines = file.read_text().splitlines()
        if json.loads(head) != {"plan": fingerprint}:
            return []
    except (OSError, ValueError):
        return []
    found: list[Record] = []
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            break  # the run was killed while it wrote
        found.append(
            Record(
                Cell(**said["cell"]),
                said["versions"],
                {name: Outcome(**outcome) for name, outcome in said["outcomes"].items()},
                said["errors"],
                said["began"],
                said["seconds"],
            )
        )
    return found
