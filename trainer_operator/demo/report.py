"""How the demo ends: a JSON document of everything, and the final tables with the verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from trainer_operator.demo.frame import Frame
from trainer_operator.demo.screen import render
from trainer_operator.demo.tables import BAD, GOOD, QUIET
from trainer_operator.demo.timeline import (
    CheckpointSeen,
    EventSeen,
    LeaseSeen,
    NodeSeen,
    PodSeen,
    ProcessSeen,
    StatusSeen,
    Timeline,
)

FORMAT = 1
_KEPT = (StatusSeen, EventSeen, PodSeen, CheckpointSeen, ProcessSeen, LeaseSeen, NodeSeen)
_SVG_HEIGHT = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where something of the run is."""

    what: str
    path: Path


def succeeded(frame: Frame) -> bool:
    """Tell whether there were expectations and all of them held."""
    return bool(frame.checks) and all(check.holds for check in frame.checks)


def document(frame: Frame, timeline: Timeline, places: Sequence[Place]) -> dict[str, Any]:
    """Return the whole run as JSON: verdict, table, and all records but the step logs, which are files already."""
    return {
        "format": FORMAT,
        "succeeded": succeeded(frame),
        "seconds": round(frame.elapsed, 1),
        "trainer": {
            "name": frame.trainer,
            "epochs": frame.epochs,
            "step": frame.step,
            "accuracy": frame.status.accuracy if frame.status is not None else None,
        },
        "reference": asdict(frame.reference) if frame.reference is not None else None,
        "disturbances": [{**asdict(row), "repeated": row.repeated} for row in frame.rows],
        "expectations": [asdict(check) for check in frame.checks],
        "setup": [asdict(step) for step in frame.setup],
        "places": {place.what: str(place.path) for place in places},
        "records": {kind.__name__: [asdict(record) for record in timeline.of(kind)] for kind in _KEPT},
    }


def write(path: Path, frame: Frame, timeline: Timeline, places: Sequence[Place]) -> None:
    """Write the document."""
    path.write_text(json.dumps(document(frame, timeline, places), indent=1) + "\n")


def summary(frame: Frame, places: Sequence[Place], *, width: int) -> RenderableType:
    """Lay out the end of the run: state, table, expectations, and where everything is."""
    parts: list[RenderableType] = [render(frame, width=width, height=_SVG_HEIGHT)]
    if frame.checks:
        parts.append(verdict(frame))
    where = Text()
    longest = max((len(place.what) for place in places), default=0)
    for place in places:
        where.append(f"  {place.what:<{longest}}  ", style=QUIET)
        where.append(f"{place.path}" if place is places[-1] else f"{place.path}\n")
    return Group(*parts, where)


def verdict(frame: Frame) -> Text:
    """Say in a line how it went."""
    failed = [check for check in frame.checks if not check.holds]
    if failed:
        count = f"{len(failed)} of {len(frame.checks)} expectations did not hold"
        return Text(f"✗ {count} ({frame.elapsed:.0f} s)", style=BAD)
    status = frame.status
    accuracy = (
        f", accuracy {status.accuracy:.2%}" if status is not None and status.accuracy is not None else ""
    )
    return Text(
        f"✓ survived {len(frame.rows)} disturbance{'' if len(frame.rows) == 1 else 's'}{accuracy}, in {frame.elapsed:.0f} s",
        style=f"bold {GOOD}",
    )


def write_svg(path: Path, frame: Frame, *, width: int = 112) -> None:
    """Write the final screen as a picture."""
    with path.with_name(f".{path.name}.text").open("w") as nowhere:
        console = Console(record=True, width=width, file=nowhere, force_terminal=True, legacy_windows=False)
        still = replace(frame, activity="")
        console.print(render(still, width=width, height=_SVG_HEIGHT))
        console.print(verdict(frame))
    path.with_name(f".{path.name}.text").unlink()
    path.write_text(console.export_svg(title="make demo"))
