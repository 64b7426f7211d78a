"""How long training waits for a checkpoint, and what is written of a state that is frozen for the most part (KT1, KT2).

The ways of saving take turns in processes of their own, on one state and one disk: `torch.save`, PyTorch's distributed
checkpoint (DCP), its asynchronous form, and ours with the agent in another process.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.child import Failed, run
from benchmarks.result import Column, Ratio, Result, Row, Scale

__all__ = ["INTERVAL", "interpreter", "measure"]

INTERVAL = 600.0
"""Seconds between two checkpoints, for the overhead in percent."""
_WAYS = {
    "plain": "torch.save and fsync",
    "dcp": "DCP save",
    "dcp-async": "DCP async_save of a clone",
    "ours": "job.save",
}
_COPY = "only a copy in memory"
_PLANS = {Scale.QUICK: (64, 1, 1), Scale.FULL: (512, 3, 2)}
"""MiB of the state, saves in a process, processes."""
_ROOT = Path(__file__).parents[2]


def interpreter() -> Path | None:
    """Return a Python that has torch: TORCH_PYTHON, or the one that `make frameworks` has set up."""
    named = os.environ.get("TORCH_PYTHON")
    if named:
        return Path(named)
    cache = (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainer-operator" / "frameworks"
    )
    return next(iter(sorted(cache.glob("torch-*/bin/python"))), None)


def measure(scale: Scale) -> Result:
    """Save one state in each way, turn by turn."""
    size, repeats, turns = _PLANS[scale]
    python = interpreter()
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    notes = dict.fromkeys(
        _WAYS, "no torch: run `make frameworks`, or name a Python that has it in TORCH_PYTHON"
    )
    for way in [way for _ in range(turns) for way in _WAYS if python is not None]:
        try:
            found[way].append(_run(python, way, size, repeats))
        except Failed as failure:
            notes[way] = str(failure).rpartition(": ")[2]
    rows = [
        Row(subject, _figures(found[way], size * 2**20)) if found[way] else Row(subject, note=notes[way])
        for way, subject in _WAYS.items()
    ]
    all_turns = [turn for turns_of in found.values() for turn in turns_of]
    if all_turns:
        copy = statistics.median(value for turn in all_turns for value in turn["copies"]) / (
            size * 2**20 / 1e9
        )
        rows.append(Row(_COPY, {"pause": copy}))
    version = next((turn["torch"] for turn in all_turns), "")
    return Result(
        "pause",
        "Pause: what a save costs training",
        f"A torch state of {size * 2**20 / 1e6:,.0f} MB on the CPU{', torch ' + version if version else ''}; median of "
        f"{repeats * turns} saves in {turns} processes each, in turn, to one disk. *Until durable* is the time to the end of "
        "the last sync, and for ours to the commit. *Lost* is what training had not done by then, compared with its speed "
        "right before: the pause, and what saving in the background takes from it on these processors. DCP's async_save "
        "takes tensors on the CPU as they are when it writes them, so a state that is trained on must be cloned first, which "
        "is part of its pause. Of the last save nine tenths of the tensors were as before.",
        (
            Column("pause", "pause, s per GB", 2),
            Column("durable", "until durable, s per GB", 2),
            Column("lost", "lost, s per GB", 2),
            Column("overhead", f"% of the time, each {INTERVAL / 60:g} min and 1 GB", 2),
            Column("written", "MB written, 90 % frozen", 0),
        ),
        tuple(rows),
        tuple(_ratios({row.subject: row.values for row in rows if row.values})),
    )


def _run(python: Path | None, way: str, size: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-m", "benchmarks.checkpoint.torchcase", way, folder, str(size), str(repeats)]
        return run([*command, sys.executable], environment={"PYTHONPATH": str(_ROOT)})


def _figures(turns: list[dict[str, Any]], size: int) -> dict[str, float]:
    def median(name: str) -> float:
        return float(statistics.median(value for turn in turns for value in turn[name])) / (size / 1e9)

    return {
        "pause": median("pauses"),
        "durable": median("durable"),
        "lost": median("lost"),
        "overhead": median("lost") / INTERVAL * 100,
        "written": statistics.median(turn["written"] for turn in turns) / 1e6,
        "share": statistics.median(turn["written"] / turn["total"] for turn in turns) * 100,
    }


def _ratios(values: dict[str, Any]) -> list[Ratio]:
    ours = values.get(_WAYS["ours"])
    if ours is None:
        return []
    ratios = [
        Ratio("pause of job.save (KT1)", ours["pause"], at_most=1, unit=" s per GB"),
        Ratio("bytes written with 90 % frozen (KT2)", ours["share"], at_most=12, unit=" %"),
    ]
    ratios.append(
        Ratio(
            "pause of job.save over a copy in memory", ours["pause"] / values[_COPY]["pause"], unit=" times"
        )
    )
    for way in ("plain", "dcp", "dcp-async"):
        peer = values.get(_WAYS[way])
        if peer is not None:
            ratios.append(
                Ratio(f"pause of {_WAYS[way]} over ours", peer["pause"] / ours["pause"], unit=" times")
            )
            ratios.append(
                Ratio(
                    f"bytes of {_WAYS[way]} over ours, 90 % frozen",
                    peer["written"] / ours["written"],
                    unit=" times",
                )
            )
    return ratios
