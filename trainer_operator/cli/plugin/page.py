"""Output: aligned columns, objects as JSON and YAML, colour on terminals only (CL1)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import orjson
import yaml
from rich.console import Console
from rich.text import Text

from trainer_operator.cli.plugin.words import presentable

Cell = str | Text
GAP = 3
PHASE_STYLES: Mapping[str, str] = {
    "Running": "bold green",
    "Succeeded": "bold green",
    "Failed": "bold red",
    "Recovering": "bold yellow",
    "Starting": "bold cyan",
    "Scaling": "bold cyan",
    "Suspended": "bold blue",
    "Pending": "bold",
}
BAR_WIDTH = 30


class Output(StrEnum):
    """The forms that a command can write."""

    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def console(*, stderr: bool = False) -> Console:
    """Return the console of standard output or error; without a terminal it writes plain text."""
    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    return Console(
        file=stream, force_terminal=terminal, no_color=not terminal or None, highlight=False, markup=False
    )


def show(lines: Iterable[Cell]) -> None:
    """Print lines; long ones are wrapped by the terminal and never cut."""
    page = console()
    for line in lines:
        page.print(line, soft_wrap=True)


def note(text: str) -> None:
    """Say something about the output, beside it."""
    console(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def columns(
    header: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    keep: Iterable[str] = (),
    indent: int = 0,
    gap: int = GAP,
) -> list[Text]:
    """Align rows under a header; columns without content are left out, except those of `keep`."""
    kept = set(keep)
    used = [
        number
        for number, title in enumerate(header)
        if title in kept or any(len(row[number]) for row in rows)
    ]
    titled: list[Sequence[Cell]] = (
        [[Text(title, style="bold dim") for title in header]] if any(header) else []
    )
    table = [[_text(row[number]) for number in used] for row in (*titled, *rows)]
    widths = [max((row[column].cell_len for row in table), default=0) for column in range(len(used))]
    return [_line(row, widths, indent, gap) for row in table]


def phase(name: str) -> Text:
    """Return a Trainer's phase in its colour."""
    return Text(name or "Pending", style=PHASE_STYLES.get(name, ""))


def bar(done: int, total: int) -> Text:
    """Draw how much of something is done."""
    filled = BAR_WIDTH * min(max(done, 0), total) // total if total > 0 else 0
    return Text().append("━" * filled, style="green").append("─" * (BAR_WIDTH - filled), style="bright_black")


def show_objects(objects: Sequence[Mapping[str, Any]], output: Output, *, single: bool = False) -> None:
    """Print objects of the API as JSON, as YAML, or by name; several as one List, as kubectl does."""
    if output is Output.NAME:
        for each in objects:
            sys.stdout.write(f"{_full_name(each)}\n")
        return
    shown = [presentable(each) for each in objects]
    show_value(
        shown[0] if single else {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": shown}, output
    )


def show_value(value: Mapping[str, Any] | Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print a JSON value as JSON or YAML."""
    if output is Output.YAML:
        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n")


def _full_name(obj: Mapping[str, Any]) -> str:
    kind = str(obj.get("kind", "")).lower()
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    return f"{kind}{f'.{group}' if version and group else ''}/{obj['metadata']['name']}"


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def _line(row: Sequence[Text], widths: Sequence[int], indent: int, gap: int) -> Text:
    line = Text(" " * indent)
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        line.append_text(cell)
        if number < len(row) - 1:
            line.append(" " * (width - cell.cell_len + gap))
    line.rstrip()
    return line
