"""Whether cost per object stays the same as a cache grows."""

from __future__ import annotations

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime.subjects import STRUCT, try_follow

__all__ = ["measure"]

_SIZES = {Scale.QUICK: (500, 2_000, 5_000), Scale.FULL: (1_000, 10_000, 50_000)}
_EVENTS = {Scale.QUICK: 4_000, Scale.FULL: 20_000}


def measure(scale: Scale) -> Result:
    """Fill and follow caches of three sizes."""
    rows = []
    for pods in _SIZES[scale]:
        figures = try_follow(STRUCT, pods=pods, events=_EVENTS[scale], pages=True)
        if isinstance(figures, str):
            rows.append(Row(f"{pods:,} Pods", note=figures))
            continue
        values = {
            "list": figures["sync_cpu"] / pods * 1e6,
            "event": figures["events_cpu"] / figures["events"] * 1e6,
            "rss": figures["peak_rss"] / 2**20,
        }
        rows.append(Row(f"{pods:,} Pods", values))
    smallest, largest = rows[0], rows[-1]
    ratios: tuple[Ratio, ...] = ()
    if smallest.values and largest.values:
        ratios = (
            Ratio(
                f"cost of an event at {largest.subject} against {smallest.subject}",
                largest.values["event"] / smallest.values["event"],
                at_most=1.5,
            ),
        )
    return Result(
        "growth",
        "Growth with the size of the cache",
        f"Projected Pods, listed in pages, then {_EVENTS[scale]:,} updates; processor time per object.",
        (
            Column("list", "µs per Pod listed"),
            Column("event", "µs per update"),
            Column("rss", "peak memory, MiB", 0),
        ),
        tuple(rows),
        ratios,
    )
