"""How long cells took, by the clock on the wall: what a plan costs is trimmed by fact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.stock.journal import Record

__all__ = ["costs", "occupied", "span"]


def occupied(records: Iterable[Record]) -> float:
    """Return the seconds in which at least one of these cells ran: those side by side count once."""
    total, until = 0.0, float("-inf")
    for began, ended in sorted((each.began, each.began + each.seconds) for each in records):
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def costs(records: Sequence[Record]) -> str:
    """Return a line that says what all cells cost, and each group, the dearest first.

    Groups whose cells ran beside those of others add up to more than all cells.
    """
    by_group: dict[str, list[Record]] = {}
    for record in records:
        by_group.setdefault(record.cell.group, []).append(record)
    seconds = {group: occupied(own) for group, own in by_group.items()}
    groups = [
        f"{group} {span(seconds[group])} ({len(by_group[group])})"
        for group in sorted(seconds, key=lambda group: -seconds[group])
    ]
    return f"{len(records)} cells took {span(occupied(records))}: {', '.join(groups)}"


def span(seconds: float) -> str:
    """Return a time such as `2:05`, or `1:00:00`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
