"""Lines of container logs: their times, their order over members, and which of them were seen before. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from trainer_operator.cli.plugin.words import moment

_COLOURS = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and when it was written; the time is the earliest one there is where the log does not tell."""

    at: datetime
    text: str
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What stands before the lines of a member; all prefixes of a page have one width."""

    member: str
    width: int
    colour: int | None = None

    def write(self, line: LogLine, *, timestamps: bool = False) -> str:
        """Return a whole line of output."""
        name = self.member.ljust(self.width)
        if self.colour is not None:
            name = f"\x1b[{self.colour}m{name}\x1b[0m"
        return f"{name} | {f'{line.stamp} ' if timestamps else ''}{line.text}\n"


@dataclass(slots=True)
class Reading:
    """How far a log was read, so that reading on neither repeats nor leaves out a line."""

    last: datetime | None = None
    _at_last: set[str] = field(default_factory=set)

    def is_new(self, line: LogLine) -> bool:
        """Whether a line was not read yet; from now on it was."""
        if self.last is not None and (
            line.at < self.last or (line.at == self.last and line.text in self._at_last)
        ):
            return False
        if line.at != self.last:
            self.last, self._at_last = line.at, set()
        self._at_last.add(line.text)
        return True


def parse(raw: bytes) -> LogLine:
    """Read a line that was asked for with timestamps."""
    text = raw.decode(errors="replace").removesuffix("\r")
    stamp, _, rest = text.partition(" ")
    at = moment(stamp)
    return LogLine(at, rest, stamp) if at is not None else LogLine(_EARLIEST, text)


def parse_all(body: bytes) -> list[LogLine]:
    """Read a whole log."""
    return [parse(raw) for raw in body.split(b"\n") if raw]


def interleave(logs: Sequence[tuple[Prefix, Iterable[LogLine]]]) -> Iterator[tuple[Prefix, LogLine]]:
    """Return the lines of several logs in the order of their times; each log keeps its own order."""

    def tagged(number: int, lines: Iterable[LogLine]) -> Iterator[tuple[datetime, int, LogLine]]:
        latest = _EARLIEST
        for line in lines:
            latest = max(latest, line.at)  # a line without a time stays where it was
            yield latest, number, line

    streams = [tagged(number, lines) for number, (_, lines) in enumerate(logs)]
    for _, number, line in heapq.merge(*streams, key=lambda each: each[:2]):
        yield logs[number][0], line


def prefixes(members: Sequence[str], *, colours: bool) -> dict[str, Prefix]:
    """Give each member its prefix."""
    width = max(map(len, members), default=0)
    return {
        member: Prefix(member, width, _COLOURS[number % len(_COLOURS)] if colours else None)
        for number, member in enumerate(members)
    }
