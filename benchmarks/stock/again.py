"""Groups that are measured again, all arms in turn, in place of what a stored result says of them.

Figures are compared within a group only, so that those of another hour can stand beside the rest, and say that they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merged", "require_same_machine"]

Document = dict[str, Any]  # Any: the JSON edge

_SAME = ("cpu", "cpus", "memory_gib", "kubernetes", "python")
"""Facts of the machine in which both must agree."""


def require_same_machine(stored: Mapping[str, Any] | None, machine: Mapping[str, Any]) -> None:
    """Refuse to measure what could not stand beside the rest.

    Raises: ValueError when there is no rest, or naming the fact that differs.
    """
    if stored is None or stored["name"] != "stock-full":
        raise ValueError("no result of a whole run is stored yet: measure everything")
    for fact in _SAME:
        was, now = stored["machine"].get(fact), machine.get(fact)
        if was != now:
            raise ValueError(
                f"the stored result is of another machine ({fact}: {was}, now {now}): measure everything"
            )


def merged(stored: Document, fresh: Mapping[str, Any], *, date: str) -> Document:
    """Return the stored result with the groups that were measured afresh; `date` is when that was.

    The time that the whole run took stays what it was.

    Raises: ValueError saying why they cannot stand together, naming what differs.
    """
    require_same_machine(stored, fresh["machine"])
    for arm, now in fresh["versions"].items():
        if (was := stored["versions"].get(arm, now)) != now:
            raise ValueError(
                f"the stored result is of other versions of {arm} ({was}, now {now}): measure everything"
            )
    again = {"date": date, "load_before": fresh["machine"].get("load_before")}
    sections = {section["name"]: {**section, "again": again} for section in fresh["sections"]}
    known = [section["name"] for section in stored["sections"]]
    if unknown := [name for name in sections if name not in known]:
        raise ValueError(f"the stored result has nothing of {', '.join(unknown)}: measure everything")
    groups = {cell["group"] for cell in fresh["cells"]["each"]}
    kept = [cell for cell in stored["cells"]["each"] if cell["group"] not in groups]
    return {
        **stored,
        "cells": {**stored["cells"], "each": [*kept, *fresh["cells"]["each"]]},
        "sections": [sections.get(section["name"], section) for section in stored["sections"]],
    }
