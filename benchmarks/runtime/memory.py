"""What a cached Pod weighs (G3)."""

from __future__ import annotations

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime import clientgo
from benchmarks.runtime.subjects import DICT, MODELS, STRUCT, try_follow

__all__ = ["measure"]

_SIZES = {Scale.QUICK: 1_000, Scale.FULL: 5_000}


def measure(scale: Scale) -> Result:
    """Let each client cache the same Pods and ask its allocator what is alive."""
    pods = _SIZES[scale]
    rows = []
    for subject in (STRUCT, DICT, MODELS, clientgo.SUBJECT, clientgo.STRIPPED):
        figures = try_follow(subject, pods=pods, traced=True)
        if isinstance(figures, str):
            rows.append(Row(subject, note=figures))
        else:
            rows.append(Row(subject, {"kib": figures["heap_bytes"] / pods / 1024}))
    result = Result(
        "memory",
        "Memory per cached Pod",
        f"{pods:,} Pods cached from one list; live heap after a collection as the allocator counts it (`tracemalloc`, "
        "Go's `HeapAlloc`), divided by the number of Pods, connection and client included.",
        (Column("kib", "KiB per Pod"),),
        tuple(rows),
    )
    return Result(result.name, result.title, result.conditions, result.columns, result.rows, _ratios(result))


def _ratios(result: Result) -> tuple[Ratio, ...]:
    ours = result.row(STRUCT)
    if ours is None:
        return ()
    kib = ours.values["kib"]
    others = {
        "dicts against projected Pods": DICT,
        "kubernetes-asyncio against ours": MODELS,
        "client-go against ours": clientgo.SUBJECT,
    }
    found = ((what, result.row(subject)) for what, subject in others.items())
    return (
        Ratio("a projected Pod", kib, at_most=4.0, unit=" KiB"),
        *(Ratio(what, row.values["kib"] / kib) for what, row in found if row is not None),
    )
