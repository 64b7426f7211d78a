"""How responsive the event loop stays while 10,000 Pods are cached and 2,000 change each second (G6)."""

from __future__ import annotations

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime.subjects import DICT, MODELS, STRUCT, try_follow

__all__ = ["measure"]

_RATE = 2_000
_SIZES = {Scale.QUICK: (2_000, 5), Scale.FULL: (10_000, 20)}
_MODELS_SHARE = 10  # models fall behind at once: a tenth of the updates shows it


def measure(scale: Scale) -> Result:
    """Let each Python client follow updates at a fixed rate."""
    pods, seconds = _SIZES[scale]
    rows = []
    for subject in (STRUCT, DICT, MODELS):
        events = _RATE * seconds // (_MODELS_SHARE if subject == MODELS else 1)
        figures = try_follow(subject, pods=pods, events=events, rate=_RATE)
        if isinstance(figures, str):
            rows.append(Row(subject, note=figures))
            continue
        handled = figures["events"] / figures["events_seconds"]
        busy = 100 * figures["events_cpu"] / figures["events_seconds"]
        rows.append(Row(subject, {**figures["lag"], "handled": handled, "busy": busy}))
    result = Result(
        "lag",
        "Event-loop lag under load",
        f"{pods:,} Pods cached, {_RATE:,} updates a second for {seconds} s from another process (a tenth of that "
        "for the client with models, which falls behind); every 5 ms a timer "
        "shows how late the loop comes to it.",
        (
            Column("p50", "median, ms", 2),
            Column("p99", "99th percentile, ms"),
            Column("max", "maximum, ms"),
            Column("handled", "updates handled per second", 0),
            Column("busy", "% of one core"),
        ),
        tuple(rows),
    )
    ours = result.row(STRUCT)
    ratios = (
        ()
        if ours is None
        else (Ratio("99th percentile of ours", ours.values["p99"], at_most=50.0, unit=" ms"),)
    )
    return Result(result.name, result.title, result.conditions, result.columns, result.rows, ratios)
