"""What a run shows of itself: one line on a terminal that says what is being measured; elsewhere a line for each cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TextIO

from benchmarks.stock.costs import span
from benchmarks.stock.journal import Record
from benchmarks.stock.plan import Cell
from runtime.clock import SystemClock

__all__ = ["Progress"]

_WIDTH = 150


class Progress:
    """Where the run is; of cells that run side by side, the terminal's line has a part each."""

    def __init__(self, stream: TextIO = sys.stderr, *, total: int, done: int = 0) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._total, self._done = total, done
        self._running: dict[Cell, str] = {}

    def begin(self, cell: Cell) -> Callable[[str], None]:
        """Name a cell that begins, and return what shows what goes on in it."""

        def say(text: str) -> None:
            self._running[cell] = text
            self._show()

        say("a fresh cluster")
        return say

    def end(self, record: Record) -> None:
        """Say how a cell ended."""
        self._done += 1
        self._running.pop(record.cell, None)
        said = "; ".join(f"{name} is broken: {error}" for name, error in record.errors.items()) or "done"
        start = "\r\x1b[2K" if self._is_terminal else ""
        self._stream.write(
            f"{start}{self._where(self._done)} {_name(record.cell)}: {said}, {span(record.seconds)}\n"
        )
        self._stream.flush()
        self._show()

    def _show(self) -> None:
        if not self._is_terminal or not self._running:
            return
        width = _WIDTH // len(self._running)
        parts = [f"{_name(cell)}: {text}"[:width] for cell, text in self._running.items()]
        self._stream.write(f"\r\x1b[2K{self._where(self._done + 1)} {' | '.join(parts)}")
        self._stream.flush()

    def _where(self, number: int) -> str:
        return f"[{number}/{self._total}] {span(self._clock.monotonic() - self._began)}"


def _name(cell: Cell) -> str:
    return f"{cell.group}, {cell.arm}, repetition {cell.repetition + 1}"
