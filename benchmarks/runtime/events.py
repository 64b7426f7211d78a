"""How much processor time one watch event costs, from the socket to a handler (G1, G2)."""

from __future__ import annotations

import json
import timeit

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime import clientgo
from benchmarks.runtime.pods import PodTemplate
from benchmarks.runtime.subjects import DICT, MODELS, STRUCT, try_follow

__all__ = ["measure"]

_SIZES = {Scale.QUICK: (1_000, 6_000), Scale.FULL: (10_000, 40_000)}
_MODELS_SHARE = 10  # models are so slow that a tenth of the events tells as much


def measure(scale: Scale) -> Result:
    """Let each client follow the same stream of updates."""
    pods, events = _SIZES[scale]
    line = PodTemplate().body(1, version=1_000_000_000)
    reference = min(timeit.repeat(lambda: json.loads(line), number=2_000, repeat=5)) / 2_000
    rows = [
        Row("`json.loads` of one event, nothing else", {"micros": reference * 1e6, "rate": 1 / reference})
    ]
    for subject in (STRUCT, DICT, MODELS, clientgo.SUBJECT):
        wanted = events // _MODELS_SHARE if subject == MODELS else events
        figures = try_follow(subject, pods=pods, events=wanted)
        if isinstance(figures, str):
            rows.append(Row(subject, note=figures))
            continue
        cost = figures["events_cpu"] / figures["events"]
        rows.append(Row(subject, {"micros": cost * 1e6, "rate": 1 / cost}))
    result = Result(
        "events",
        "Watch events",
        f"{pods:,} Pods of {len(line):,} B cached, {events:,} updates as fast as the client reads them; processor time "
        "of all threads of the client, from the first update that a handler hears to the last.",
        (Column("rate", "events per second of processor time", 0), Column("micros", "µs per event")),
        tuple(rows),
    )
    return Result(
        result.name, result.title, result.conditions, result.columns, result.rows, _ratios(result, reference)
    )


def _ratios(result: Result, reference: float) -> tuple[Ratio, ...]:
    ours, dicts = result.row(STRUCT), result.row(DICT)
    if ours is None or dicts is None:
        return ()
    ratios = [
        Ratio(
            "projected event against `json.loads` of it (G1)",
            ours.values["micros"] / reference / 1e6,
            at_most=0.75,
        ),
        Ratio(
            "dict event against `json.loads` of it (G2)",
            dicts.values["micros"] / reference / 1e6,
            at_most=1.2,
        ),
        Ratio("projected against dict, events per second", ours.values["rate"] / dicts.values["rate"]),
    ]
    if (models := result.row(MODELS)) is not None:
        ratios.append(
            Ratio(
                "ours against kubernetes-asyncio, events per second",
                ours.values["rate"] / models.values["rate"],
            )
        )
    if (go := result.row(clientgo.SUBJECT)) is not None:
        ratios.append(
            Ratio(
                "ours against client-go, events per second of one core",
                ours.values["rate"] / go.values["rate"],
                at_least=0.5,
            )
        )
    return tuple(ratios)
