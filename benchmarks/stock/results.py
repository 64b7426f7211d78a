"""The result of a run: every repetition's raw figures, with versions and machine, as one JSON file.

The file alone is what tables, plots and the README are made of. Claims compare figures of the same run only.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.result import Ratio
from benchmarks.stock.costs import occupied
from benchmarks.stock.journal import Record
from benchmarks.stock.plan import Plan

__all__ = ["FOLDER", "claims", "document", "figures", "is_complete", "load", "store"]

FOLDER = Path(__file__).resolve().parents[1] / "results" / "stock"
Document = dict[str, Any]  # Any: the JSON edge


def document(plan: Plan, records: Sequence[Record], *, machine: Mapping[str, Any], command: str) -> Document:
    """Return the result of a run, or of what it has measured so far; a section for each scenario, a row for each arm."""
    sections = []
    measured = {record.cell.group for record in records}
    for group in (group for group in plan.groups if group.name in measured):
        for scenario in group.scenarios:
            rows = [
                _row(arm, scenario.name, group.name, records) for arm in plan.arms if arm not in group.skipped
            ]
            sections.append(
                {
                    "name": scenario.name,
                    "title": scenario.title,
                    "conditions": scenario.conditions,
                    "columns": [asdict(column) for column in scenario.columns],
                    "rows": rows,
                    "skipped": {arm: why for arm, why in group.skipped.items() if arm in plan.arms},
                }
            )
    versions = {record.cell.arm: dict(record.versions) for record in records if record.versions}
    return {
        "name": f"stock-{plan.name}",
        "command": command,
        "cells": {
            "measured": len(records),
            "planned": len(plan.cells()),
            "seconds": round(occupied(records), 1),
            "each": [
                {**asdict(record.cell), "seconds": round(record.seconds, 1)}
                for record in sorted(records, key=lambda record: record.began)
            ],
        },
        "machine": dict(machine),
        "versions": versions,
        "sections": sections,
    }


def store(found: Document, folder: Path = FOLDER) -> Path:
    """Write a result and return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found['name']}.json"
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return path


def load(folder: Path = FOLDER) -> Document | None:
    """Return the stored result, of the full run if there is one; None without any.

    Raises: ValueError naming a file that is no result.
    """
    for name in ("stock-full.json", "stock-quick.json"):
        if (path := folder / name).exists():
            try:
                found: Document = json.loads(path.read_text())
            except ValueError as error:
                raise ValueError(f"{path.name} is no benchmark result: delete it or run it again") from error
            return found
    return None


def figures(found: Document, section: str, arm: str, key: str) -> list[float]:
    """Return a figure in all repetitions in which it was found."""
    return [
        each["figures"][key]
        for part in found["sections"]
        if part["name"] == section
        for row in part["rows"]
        if row["arm"] == arm
        for each in row["repetitions"]
        if each["figures"].get(key) is not None
    ]


def is_complete(found: Document, section: str, arm: str, key: str) -> bool:
    """Say whether a figure came about in every repetition: what did not happen once makes no ratio."""
    return not any(
        key in each["figures"] and each["figures"][key] is None
        for part in found["sections"]
        if part["name"] == section
        for row in part["rows"]
        if row["arm"] == arm
        for each in row["repetitions"]
    )


def claims(found: Document) -> list[Ratio]:
    """Return how this operator compares, with the targets it is held to."""
    ratios: list[Ratio] = []
    names = [section["name"] for section in found["sections"]]

    def compare(
        what: str,
        section: str,
        key: str,
        peer: str,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        ours, theirs = figures(found, section, "ours", key), figures(found, section, peer, key)
        if not (is_complete(found, section, "ours", key) and is_complete(found, section, peer, key)):
            return
        if ours and theirs and (base := statistics.median(theirs)) > 0:
            ratios.append(Ratio(f"{what}, {section}", statistics.median(ours) / base, at_least, at_most))

    def bound(what: str, section: str, key: str, at_most: float) -> None:
        if ours := figures(found, section, "ours", key):
            ratios.append(Ratio(f"{what}, {section}", statistics.median(ours), at_most=at_most))

    for name in (name for name in names if name.startswith("storm-")):
        compare("pods/s against tuned training-operator", name, "pods_per_second", "stock-tuned", at_least=4)
        compare("pods/s against tuned Trainer v2", name, "pods_per_second", "v2-tuned")
        compare(
            "pods/s against training-operator's defaults",
            name,
            "pods_per_second",
            "stock-defaults",
            at_least=20,
        )
        compare("pods/s against the raw limit", name, "pods_per_second", "raw", at_least=0.6)
        compare(
            "peak memory against tuned training-operator", name, "peak_memory", "stock-tuned", at_most=1.5
        )
        if "x" not in name:
            bound("requests per job", name, "requests_per_job", at_most=8)
    for name in (name for name in names if name.startswith("idle-")):
        bound("API writes while idle", name, "writes", at_most=0)
    for name in (name for name in names if name.startswith("underload-")):
        compare(
            "p99 to a replacement during a storm against tuned training-operator",
            name,
            "created_p99",
            "stock-tuned",
            at_most=0.1,
        )
    for name in (name for name in names if name.startswith("scale-")):
        compare(
            "time from a restart to a new job's pod against tuned training-operator",
            name,
            "works",
            "stock-tuned",
        )
    full = figures(found, "resume", "ours", "full_seconds")
    if incremental := figures(found, "resume", "ours", "incremental_seconds"):
        times = statistics.median(full) / statistics.median(incremental)
        ratios.append(Ratio("full recovery over incremental, resume", times, at_least=4))
    if "pod-failed" in names:
        compare(
            "time to replace a failed pod against tuned training-operator",
            "pod-failed",
            "median",
            "stock-tuned",
            at_most=1,
        )
    return ratios


def _row(arm: str, scenario: str, group: str, records: Sequence[Record]) -> Document:
    own = sorted(
        (record for record in records if record.cell.arm == arm and record.cell.group == group),
        key=lambda record: record.cell.repetition,
    )
    return {
        "arm": arm,
        "repetitions": [asdict(record.outcomes[scenario]) for record in own if scenario in record.outcomes],
        "errors": [record.errors[scenario] for record in own if scenario in record.errors],
    }
