"""How responsive the event loop stays while 10,000 Pods are cached and 2,000 change each second (G6)."""

from __future__ import annotations

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime.reader import IDLE_RATE, KINDS
from benchmarks.runtime.subjects import DICT, MODELS, STRUCT, try_follow

__all__ = ["measure"]

_RATE = IDLE_RATE
_CONTROLS = (KINDS["idle"], KINDS["discard"])
_SIZES = {Scale.QUICK: (2_000, 5), Scale.FULL: (10_000, 20)}
_MODELS_SHARE = 10  # models fall behind at once: a tenth of the updates shows it


def measure(scale: Scale) -> Result:
    """Let each Python client follow updates at a fixed rate."""
    pods, seconds = _SIZES[scale]
    rows = []
    for subject in (*_CONTROLS, STRUCT, DICT, MODELS):
        events = _RATE * seconds // (_MODELS_SHARE if subject == MODELS else 1)
        figures = try_follow(subject, pods=pods, events=events, rate=_RATE)
        if isinstance(figures, str):
            rows.append(Row(subject, note=figures))
            continue
        values = {**figures["lag"], "collection": figures["collections"]["max"]}
        if "events" in figures:
            values["handled"] = figures["events"] / figures["events_seconds"]
            values["busy"] = 100 * figures["events_cpu"] / figures["events_seconds"]
        rows.append(Row(subject, values))
    result = Result(
        "lag",
        "Event-loop lag under load",
        f"{pods:,} Pods cached, {_RATE:,} updates a second for {seconds} s from another process (a tenth of that "
        "for the client with models, which falls behind); every 5 ms a timer shows how late the loop comes to it. The "
        "controls are the same program without a cache: what they show is the machine's, not ours.",
        (
            Column("p50", "median, ms", 2),
            Column("p99", "99th percentile, ms"),
            Column("max", "maximum, ms"),
            Column("collection", "longest garbage collection, ms"),
            Column("handled", "updates handled per second", 0),
            Column("busy", "% of one core"),
        ),
        tuple(rows),
    )
    return Result(result.name, result.title, result.conditions, result.columns, result.rows, _ratios(result))


def _ratios(result: Result) -> tuple[Ratio, ...]:
    ours, control = result.row(STRUCT), result.row(_CONTROLS[1])
    if ours is None:
        return ()
    target = Ratio("99th percentile of ours", ours.values["p99"], at_most=50.0, unit=" ms")
    if control is None:
        return (target,)
    above = ours.values["p99"] - control.values["p99"]
    return (target, Ratio("the same above the control that throws the stream away", above, unit=" ms"))
