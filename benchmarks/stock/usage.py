"""What processes have used, as the kernel counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "usage"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Usage:
    """Of some processes together."""

    cpu: float = 0.0
    """Processor seconds since each began, user and system."""
    peak_memory: float = 0.0
    """Bytes: the most that each held at once, added up."""
    memory: float = 0.0
    """Bytes held now."""


def usage(pids: Iterable[int], *, proc: Path = _PROC) -> Usage:
    """Return what these processes have used; one that has ended counts nothing."""
    found = [_of(proc / str(pid)) for pid in pids]
    return Usage(
        sum(each.cpu for each in found),
        sum(each.peak_memory for each in found),
        sum(each.memory for each in found),
    )


def _of(folder: Path) -> Usage:
    try:
        # The name in brackets may hold spaces and brackets, so fields are counted behind the last one.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        lines = (folder / "status").read_text().splitlines()
    except OSError:
        return Usage()
    sizes = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return Usage(
        (int(fields[11]) + int(fields[12])) / _TICKS,
        *(float(sizes[name][0]) * 1024 if name in sizes else 0.0 for name in ("VmHWM", "VmRSS")),
    )
