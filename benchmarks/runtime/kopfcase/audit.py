"""What one user asked of the API server, read from its audit log as it grows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

__all__ = ["Asked", "AuditTrail"]


@dataclass(slots=True)
class Asked:
    """The requests of one user so far."""

    first: datetime | None = None
    last_child: datetime | None = None
    children: int = 0
    parents_written: set[str] = field(default_factory=set)
    """Names of the parents that were written to."""
    requests: Counter[str] = field(default_factory=Counter)
    """How often each verb was used on each kind."""

    @property
    def seconds(self) -> float:
        """Seconds from the first request to the last child created."""
        if self.first is None or self.last_child is None:
            return 0.0
        return (self.last_child - self.first).total_seconds()


class AuditTrail:
    """Follows the log; events of other users are passed over."""

    def __init__(self, file: Path, *, user: str) -> None:
        self._file = file
        self._user = user
        self._position = file.stat().st_size
        self._rest = b""
        self.asked = Asked()

    def read(self) -> Asked:
        """Take in what was written since the last call."""
        with self._file.open("rb") as log:
            log.seek(self._position)
            content = log.read()
        self._position += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        for line in lines:
            if self._user.encode() in line:
                self._take(json.loads(line))
        return self.asked

    def _take(self, event: dict[str, object]) -> None:
        match event:
            case {
                "user": {"username": username},
                "verb": str(verb),
                "requestReceivedTimestamp": str(received),
                "stageTimestamp": str(answered),
                "stage": str(stage),
            } if username == self._user:
                begun = datetime.fromisoformat(received)
                self.asked.first = min(self.asked.first or begun, begun)
            case _:
                return
        if stage == "ResponseStarted":  # a watch, which is counted when it ends
            return
        reference = event.get("objectRef")
        kind = str(reference.get("resource", "")) if isinstance(reference, dict) else ""
        name = str(reference.get("name", "")) if isinstance(reference, dict) else ""
        self.asked.requests[f"{verb} {kind}".strip()] += 1
        status = event.get("responseStatus")
        if not isinstance(status, dict) or int(status.get("code", 500)) >= 300:
            return
        if verb == "create" and kind == "configmaps":
            self.asked.children += 1
            self.asked.last_child = datetime.fromisoformat(answered)
        elif verb in ("patch", "update") and kind == "bundles":
            self.asked.parents_written.add(name)
