"""How long it takes to fill a cache, and how long the event loop stands still meanwhile (G5)."""

from __future__ import annotations

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime import clientgo
from benchmarks.runtime.subjects import DICT, MODELS, STRUCT, try_follow

__all__ = ["measure"]

_SIZES = {Scale.QUICK: 2_000, Scale.FULL: 10_000}


def measure(scale: Scale) -> Result:
    """Let each client list the same Pods."""
    pods = _SIZES[scale]
    rows = []
    for subject in (STRUCT, DICT, MODELS, clientgo.SUBJECT):
        figures = try_follow(subject, pods=pods)
        if isinstance(figures, str):
            rows.append(Row(subject, note=figures))
            continue
        values = {
            "seconds": figures["sync_seconds"],
            "cpu": figures["sync_cpu"],
            "rss": figures["peak_rss"] / 2**20,
        }
        if "sync_lag" in figures:
            values["stall"] = figures["sync_lag"]["max"]
        rows.append(Row(subject, values))
    result = Result(
        "sync",
        f"Filling a cache with {pods:,} Pods",
        "One LIST answered in one piece, the hardest form; from the start of the client until every handler has been "
        "told. The stall is the longest time that the event loop came late to a timer.",
        (
            Column("seconds", "seconds", 2),
            Column("cpu", "processor seconds", 2),
            Column("stall", "longest stall, ms", 0),
            Column("rss", "peak memory, MiB", 0),
        ),
        tuple(rows),
    )
    ours, go, models = result.row(STRUCT), result.row(clientgo.SUBJECT), result.row(MODELS)
    ratios = []
    if ours is not None and go is not None:
        ratios.append(
            Ratio("client-go against ours, processor time to fill", go.values["cpu"] / ours.values["cpu"])
        )
    if ours is not None and models is not None:
        ratios.append(
            Ratio("kubernetes-asyncio against ours, time to fill", models.values["cpu"] / ours.values["cpu"])
        )
    return Result(result.name, result.title, result.conditions, result.columns, result.rows, tuple(ratios))
