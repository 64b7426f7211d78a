"""The step logs that training processes write: JSON lines, read as they grow.

A member that is killed in the middle of a line leaves a half line behind, and its successor appends to it; such a
line is counted and left out, since the update it speaks of was never answered.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainer_operator.demo.timeline import StepSeen

_CHUNK = 1024 * 1024
_SUFFIX = ".jsonl"


def parse(line: bytes, *, at: float) -> StepSeen | None:
    """Read a line; None when it is none."""
    try:
        raw: Any = json.loads(line)
        return StepSeen(
            at=at,
            member=str(raw["member"]),
            epoch=int(raw["epoch"]),
            server_epoch=int(raw["psEpoch"]),
            step=int(raw["step"]),
            data_epoch=int(raw["dataEpoch"]),
            first=int(raw["from"]),
            end=int(raw["to"]),
            world=int(raw["world"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


class StepLogs:
    """All step logs of a folder; the folder may come later."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.malformed = 0
        self._read: dict[Path, int] = {}

    def read(self, *, at: float) -> list[StepSeen]:
        """Return the whole lines that were added since the last call, servers first."""
        found: list[StepSeen] = []
        for path in sorted(
            self.folder.glob(f"*{_SUFFIX}"), key=lambda path: (path.stem[:2] != "ps", path.stem)
        ):
            for line in self._new_lines(path):
                seen = parse(line, at=at)
                if seen is None:
                    self.malformed += 1
                else:
                    found.append(seen)
        return found

    def _new_lines(self, path: Path) -> list[bytes]:
        begin = self._read.get(path, 0)
        try:
            with path.open("rb") as stream:
                stream.seek(begin)
                data = stream.read(_CHUNK)
        except OSError:
            return []
        whole = data.rfind(b"\n") + 1
        self._read[path] = begin + whole
        return data[:whole].splitlines()
