"""Which checkpoints may go (GC1, GC8). Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer_operator.api.timelines import Path, is_on_path

KEEP_COLLECTED = 10
"""Objects of collected checkpoints that stay per Trainer, for people who look back."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A checkpoint as retention sees it."""

    name: str
    step: int
    sequence: int
    state: str
    health: str
    hold: bool = False
    discard: bool = False
    """The user wants it gone: it counts for nothing any more."""
    timeline: int = 0
    on_path: bool = True
    """Whether the present training came from it; else it went back behind it (CK6)."""
    store_id: str = ""
    """Store that it lies in, once it is committed (CK7)."""
    id: str = ""
    shards: int = 0
    base: str = ""
    """Id of the checkpoint whose unchanged data it reuses."""
    pins: tuple[str, ...] = ()
    """Who reads it: checkpoints that are being saved with it as base, and restores (GC2, RS4)."""
    marked: bool = False
    """It was chosen for collection: nobody may rely on it any more."""
    aborted: str = ""
    """Why it was given up, if it was."""


def read_kept(obj: Mapping[str, Any], status: Mapping[str, Any], path: Path) -> Kept:
    """Return what retention needs of a Checkpoint object with this status, of a Trainer with this path."""
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    digits = name.rpartition("-c")[2]
    reasons = [c.get("reason") for c in status.get("conditions") or () if c.get("type") == "Aborted"]
    timeline, step = status.get("timeline") or 0, status.get("step") or 0
    return Kept(
        name=name,
        step=step,
        timeline=timeline,
        on_path=is_on_path(path, timeline, step),
        sequence=int(digits) if digits.isdecimal() else 0,
        state=status.get("state") or "",
        health=status.get("health") or "",
        hold=bool(spec.get("hold")),
        discard=bool(spec.get("discard")),
        store_id=status.get("storeId") or "",
        id=status.get("id") or "",
        shards=status.get("shards") or 0,
        base=status.get("base") or "",
        pins=tuple(status.get("pins") or ()),
        marked=bool(status.get("markedAt")),
        aborted=str(next(iter(reasons), "")),
    )


def to_retire(checkpoints: Iterable[Kept], max_retention: int) -> set[str]:
    """Return the names of Committed checkpoints beyond `max_retention`.

    Guarantees: never the newest, never the newest that is not Corrupt, never a held or pinned one; only healthy ones that
    stay count against the limit (GC1, IV6). Those are of the current path; of what training went back behind, the newest
    stay, as many as of the path (CK6). What the user discarded goes whatever else there is.
    """
    everything = [c for c in checkpoints if c.state == "Committed" and not c.marked]
    wanted = [c for c in everything if not c.discard]
    committed = sorted((c for c in wanted if c.on_path), key=lambda c: (c.step, c.sequence), reverse=True)
    aside = sorted(
        (c for c in wanted if not c.on_path), key=lambda c: (c.timeline, c.step, c.sequence), reverse=True
    )
    sound = [c for c in committed if c.health != "Corrupt"]
    kept = {c.name for c in sound[:max_retention]} | {c.name for c in committed[:1]}
    oldest_kept = min((c.step for c in sound[:max_retention]), default=0)
    surplus = [c for c in committed if c.name not in kept and (c.health != "Corrupt" or c.step < oldest_kept)]
    discarded = [c for c in everything if c.discard]
    return {c.name for c in [*surplus, *aside[max_retention:], *discarded] if not c.hold and not c.pins}


def to_forget(checkpoints: Iterable[Kept]) -> set[str]:
    """Return the names of objects whose checkpoint is gone from the store and that nobody needs to see (GC8)."""
    gone = sorted(
        (c for c in checkpoints if c.state == "GarbageCollected"), key=lambda c: c.sequence, reverse=True
    )
    return {c.name for c in gone[KEEP_COLLECTED:]}
