"""Container logs on disk, in the format of container runtimes: time, stream, tag, line.

A line that has no end yet is held back up to 16 KiB and then written with the tag `P` (partial). A file that grows
beyond 10 MiB becomes `<name>.1`, so a run keeps its last 10 to 20 MiB.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from runtime.clock import Clock, parse_time

LONGEST_LINE = 16 * 1024
ROTATE_AT = 10 * 1024 * 1024
FALLBACK_LINES, FALLBACK_BYTES = 80, 2048
"""What of a log stands in for a missing termination message, as at the kubelet."""


class LogWriter:
    """Appends what a container's streams say."""

    def __init__(self, path: Path, *, clock: Clock, rotate_at: int = ROTATE_AT) -> None:
        self.path = path
        self._clock = clock
        self._rotate_at = rotate_at
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size
        self._rests: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> None:
        """Take what a stream said; complete lines are on disk when this returns."""
        *lines, rest = (self._rests.get(stream, b"") + data).split(b"\n")
        entries = []
        for line in lines:
            *pieces, end = _cut(line)
            entries += [(b"P", piece) for piece in pieces]
            entries.append((b"F", end))
        *pieces, self._rests[stream] = _cut(rest)
        entries += [(b"P", piece) for piece in pieces]
        self._write(stream, entries)

    def close(self) -> None:
        """Write what is left of unfinished lines; nothing may be fed afterwards."""
        for stream, rest in self._rests.items():
            if rest:
                self._write(stream, [(b"F", rest)])
        self._rests.clear()
        self._file.close()

    def _write(self, stream: str, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries:
            return
        moment = self._clock.utcnow().strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
        prefix = moment + b" " + stream.encode() + b" "
        text = b"".join(prefix + tag + b" " + line + b"\n" for tag, line in entries)
        self._file.write(text)
        self._size += len(text)
        if self._size >= self._rotate_at:
            self._file.close()
            os.replace(self.path, older(self.path))
            self._file = self.path.open("ab", buffering=0)
            self._size = 0


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which part of a log is wanted, and how it is written."""

    tail: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    stream: str | None = None

    def show(self, entry: bytes) -> bytes:
        """Return a stored line as it is shown, empty when it is not wanted."""
        moment, stream, tag, line = _parts(entry)
        if self.stream is not None and stream != self.stream.encode():
            return b""
        if self.since is not None and moment and parse_time(_microseconds(moment)) < self.since:
            return b""
        shown = line if tag == b"P" else line + b"\n"
        return moment + b" " + shown if self.timestamps else shown


def older(path: Path) -> Path:
    """Return the file that a log's earlier part was moved to."""
    return path.with_name(path.name + ".1")


def read_log(path: Path, query: LogQuery) -> Iterator[bytes]:
    """Return what is stored now, piece by piece; nothing when there is no log."""
    shown = (text for entry in _entries(path) if (text := query.show(entry)))
    if query.tail is None:
        return shown
    return iter(deque(shown, maxlen=query.tail)) if query.tail > 0 else iter(())


def last_words(path: Path) -> str:
    """Return the end of a log, for a termination message."""
    text = b"".join(read_log(path, LogQuery(tail=FALLBACK_LINES)))
    return text[-FALLBACK_BYTES:].decode(errors="replace")


class LogTail:
    """Reads on where a log ends now, over rotations."""

    def __init__(self, path: Path, query: LogQuery) -> None:
        self._path = path
        self._query = query
        self._file = path.open("rb") if path.exists() else None
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)
        self._rest = b""

    def more(self) -> bytes:
        """Return what was added since the last call."""
        if self._file is None:
            if not self._path.exists():
                return b""
            self._file = self._path.open("rb")
        text = self._read()
        if not text and self._rotated():
            text = self._read()  # written between the read above and the rotation
            self._file.close()
            self._file = self._path.open("rb")
            text += self._read()
        return text

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _read(self) -> bytes:
        if self._file is None:
            return b""
        *entries, self._rest = (self._rest + self._file.read()).split(b"\n")
        return b"".join(self._query.show(entry) for entry in entries)

    def _rotated(self) -> bool:
        if self._file is None:
            return False
        try:
            return os.fstat(self._file.fileno()).st_ino != self._path.stat().st_ino
        except FileNotFoundError:
            return False


def _cut(line: bytes) -> list[bytes]:
    """Cut a line into pieces of the greatest length; the last one may be empty only when the line is."""
    return [line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE)] or [b""]


def _entries(path: Path) -> Iterator[bytes]:
    for part in (older(path), path):
        if part.exists():
            with part.open("rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        yield line[:-1]


def _parts(entry: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    parts = entry.split(b" ", 3)
    if len(parts) < 4:
        return b"", b"", b"F", entry
    return parts[0], parts[1], parts[2], parts[3]


def _microseconds(moment: bytes) -> str:
    """Cut nanoseconds, which the parser does not read."""
    return moment[:26].decode(errors="replace") + "Z"
