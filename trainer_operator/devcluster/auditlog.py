"""The API server's audit log, read from a mark on: who asked for what, and what came of it.

The server writes an event before it answers, so a client that has its answer finds the event in the file. The policy
(`component.AUDIT_POLICY`) keeps the bodies of most writes; reads, secrets and chatter are there without theirs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

JsonBody = dict[str, Any]  # Any: the JSON edge


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who asked."""

    username: str = ""


class Target(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """What was asked for; empty fields are those that the request had no use for."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    subresource: str = ""


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How the request ended."""

    code: int = 0
    message: str = ""


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One answered request."""

    verb: str
    stage: str = "ResponseComplete"
    user: Caller = Caller()
    user_agent: str = ""
    request_uri: str = msgspec.field(name="requestURI", default="")
    object_ref: Target = Target()
    response_status: Outcome = Outcome()
    request_object: JsonBody | list[Any] | None = None
    """What was sent; a list is a JSON patch."""
    response_object: JsonBody | None = None
    request_received_timestamp: dt.datetime | None = None
    stage_timestamp: dt.datetime | None = None

    @property
    def ok(self) -> bool:
        """Whether the request did what it asked for."""
        return 200 <= self.response_status.code < 300

    def __str__(self) -> str:
        target = self.object_ref
        what = "/".join(part for part in (target.resource, target.subresource) if part) or self.request_uri
        where = "/".join(part for part in (target.namespace, target.name) if part)
        at = f"{self.stage_timestamp:%H:%M:%S.%f}"[:-3] if self.stage_timestamp is not None else "--:--:--"
        text = f"{at} {self.user.username or 'nobody'}: {self.verb} {what} {where} -> {self.response_status.code}"
        return f"{text} ({self.response_status.message})" if self.response_status.message else text


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the log: which file, and how far into it."""

    inode: int = 0
    offset: int = 0


class AuditLog:
    """The log of one API server.

    Guarantees: a line that is half written is read when it is whole; what was rotated away once since the mark is
    read too.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def mark(self) -> Mark:
        """Return the present end of the log."""
        try:
            found = self._file.stat()
        except FileNotFoundError:  # the API server has not started yet
            return Mark()
        return Mark(found.st_ino, found.st_size)

    def since(self, mark: Mark = Mark()) -> list[AuditEvent]:
        """Return the requests that were answered after a mark, in the order of their answers."""
        return [event for line in self._lines(mark) if (event := parse(line)) is not None]

    def _lines(self, mark: Mark) -> Iterator[bytes]:
        for file, offset in self._files(mark):
            with file.open("rb") as log:
                log.seek(offset)
                for line in log:
                    if line.endswith(b"\n"):
                        yield line

    def _files(self, mark: Mark) -> list[tuple[Path, int]]:
        """Return the files to read, from where on: the marked one may have been renamed with a time in its name."""
        if not self._file.exists():
            return []
        if not mark.inode or self._file.stat().st_ino == mark.inode:
            return [(self._file, mark.offset)]
        pattern = f"{self._file.stem}-*{self._file.suffix}"
        older = [file for file in self._file.parent.glob(pattern) if file.stat().st_ino == mark.inode]
        return [*((file, mark.offset) for file in older), (self._file, 0)]


def parse(line: bytes) -> AuditEvent | None:
    """Read one line; None for the beginning of a long answer, whose end has a line of its own."""
    event = _decode(line.strip(b"\0"))  # a log that is rotated while it is written can have a gap of zeros
    return event if event.stage != "ResponseStarted" else None


_decode = msgspec.json.Decoder(AuditEvent).decode
