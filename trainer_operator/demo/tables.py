"""The tables of the demo in rich: disturbances and expectations. Used by the screen and by the end of the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from trainer_operator.demo.measures import Row
from trainer_operator.demo.verify import Check

GOOD, BAD, QUIET, ACCENT = "green", "bold red", "bright_black", "cyan"


def seconds(value: float | None, *, none: str = "–") -> str:
    """Write a duration."""
    return none if value is None else f"{value:.1f} s"


def disturbance_table(rows: Sequence[Row], *, planned: int = 0, is_narrow: bool = False) -> Table:
    """Lay out what each disturbance did; rows that are still to come are left to the caller."""
    table = Table(box=None, expand=True, pad_edge=False, header_style=QUIET, padding=(0, 1))
    table.add_column("", width=1)
    table.add_column("Disturbance", ratio=3, no_wrap=True)
    if not is_narrow:
        table.add_column("Done to", ratio=2, no_wrap=True)
    table.add_column("Noticed", justify="right", no_wrap=True)
    table.add_column("Next step", justify="right", no_wrap=True)
    table.add_column("Step", justify="right", no_wrap=True)
    table.add_column("Charged", no_wrap=True)
    for row in rows:
        table.add_row(
            Text("✓" if row.survived else "✗", style=GOOD if row.survived else BAD),
            row.title,
            *(() if is_narrow else (Text(row.target, style=QUIET),)),
            seconds(row.detected),
            Text("no pause", style=GOOD) if row.next_step is None else seconds(row.next_step),
            _steps(row),
            _charge(row),
        )
    for number in range(len(rows), planned):
        table.add_row(Text("·", style=QUIET), Text("…" if number == len(rows) else "", style=QUIET))
    return table


def check_table(checks: Sequence[Check]) -> Table:
    """Lay out the expectations; those that did not hold are red."""
    table = Table(box=None, expand=True, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column("", width=1)
    table.add_column("Expectation", ratio=3)
    table.add_column("Found", ratio=2)
    for check in checks:
        table.add_row(
            Text("✓" if check.holds else "✗", style=GOOD if check.holds else BAD),
            Text(check.expectation, style="" if check.holds else BAD),
            Text(check.found, style=QUIET if check.holds else BAD),
        )
    return table


def _steps(row: Row) -> Text:
    text = Text(str(row.step_before))
    if row.repeated:
        text.append(f" → {row.step_after}", style="yellow")
    return text


def _charge(row: Row) -> Text:
    parts = [
        f"{count} {name}{'' if count == 1 else 's'}"
        for count, name in ((row.failures, "failure"), (row.disruptions, "disruption"))
        if count
    ]
    return Text(", ".join(parts) or "nothing", style="" if parts else QUIET)
