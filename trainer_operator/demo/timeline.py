"""What was seen during the demo, and when: the only source of measures, checks and screens.

Records are facts with a time, in seconds since the demo began. They come from the API server's watches, the training
processes' own step logs, the process table and the operators' metrics; nobody's opinion is among them. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

ProcessId = tuple[int, int]
"""A process: its ID and its start time, since IDs are used again."""


@dataclass(frozen=True, slots=True)
class Record:
    """A fact and when it was seen."""

    at: float


@dataclass(frozen=True, slots=True)
class StatusSeen(Record):
    """The Trainer's status at one moment."""

    phase: str = ""
    step: int = 0
    data_epochs: int = 0
    epoch: int = 0
    server_epoch: int = 0
    world: int = 0
    ready_workers: str = ""
    ready_servers: str = ""
    failures: int = 0
    disruptions: int = 0
    restarts: int = 0
    rollbacks: int = 0
    rollback: tuple[int, int] | None = None
    """From and to step of the latest rollback."""
    recovering: tuple[str, ...] = ()
    """Members that the latest recovery names."""
    changing: bool = False
    """Whether a change of members is under way."""
    accuracy: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class EventSeen(Record):
    """An Event of the Trainer or one of its checkpoints."""

    warning: bool
    reason: str
    message: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class PodSeen(Record):
    """A member's pod."""

    name: str
    member: str
    attempt: int = 0
    node: str = ""
    phase: str = "Pending"
    is_ending: bool = False
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointSeen(Record):
    """A Checkpoint object."""

    name: str
    step: int
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StepSeen(Record):
    """A line of a member's step log: it applied a step, with these positions of the data epoch's permutation."""

    member: str
    epoch: int
    server_epoch: int
    step: int
    data_epoch: int
    first: int
    end: int
    world: int


@dataclass(frozen=True, slots=True)
class ProcessSeen(Record):
    """The training process of a member; None when there is none any more."""

    member: str
    process: ProcessId | None


@dataclass(frozen=True, slots=True)
class LeaseSeen(Record):
    """Who holds the operators' lease."""

    holder: str
    transitions: int = 0


@dataclass(frozen=True, slots=True)
class LeadersSeen(Record):
    """Operators whose metrics said, before and after all others were asked, that they lead."""

    leaders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeSeen(Record):
    """A node and whether it is ready."""

    name: str
    is_ready: bool


R = TypeVar("R", bound=Record)


class Timeline:
    """All records, each kind in the order in which it was seen."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._records: defaultdict[type[Record], list[Record]] = defaultdict(list)
        self.extend(records)

    def add(self, record: Record) -> None:
        """Append a record, which is no older than the last of its kind."""
        self._records[type(record)].append(record)

    def extend(self, records: Iterable[Record]) -> None:
        """Append records."""
        for record in records:
            self.add(record)

    def of(self, kind: type[R], *, after: float = float("-inf"), until: float = float("inf")) -> Iterator[R]:
        """Iterate over records of a kind with `after` < time <= `until`."""
        found = cast("list[R]", self._records[kind])
        for position in range(bisect_right(found, after, key=_at), len(found)):
            record = found[position]
            if record.at > until:
                return
            yield record

    def last(self, kind: type[R], *, until: float = float("inf")) -> R | None:
        """Return the newest record of a kind, None when there is none yet."""
        found = cast("list[R]", self._records[kind])
        position = bisect_right(found, until, key=_at)
        return found[position - 1] if position else None

    def status(self, *, until: float = float("inf")) -> StatusSeen:
        """Return the newest status; an empty one before the first."""
        return self.last(StatusSeen, until=until) or StatusSeen(0.0)

    def step(self, *, until: float = float("inf")) -> int:
        """Return the step that was applied last."""
        newest = self.last(StepSeen, until=until)
        return newest.step if newest is not None else 0

    def pods(self, *, until: float = float("inf")) -> dict[str, PodSeen]:
        """Return each member's newest pod that is not gone."""
        newest: dict[str, PodSeen] = {}
        for pod in self.of(PodSeen, until=until):
            newest[pod.name] = pod
        found: dict[str, PodSeen] = {}
        for pod in newest.values():
            if not pod.is_gone and (pod.member not in found or found[pod.member].attempt < pod.attempt):
                found[pod.member] = pod
        return found

    def processes(self, *, until: float = float("inf")) -> dict[str, ProcessId]:
        """Return the training process of each member that has one."""
        found: dict[str, ProcessId] = {}
        for seen in self.of(ProcessSeen, until=until):
            if seen.process is None:
                found.pop(seen.member, None)
            else:
                found[seen.member] = seen.process
        return found

    def nodes(self, *, until: float = float("inf")) -> dict[str, bool]:
        """Return whether each node is ready."""
        return {node.name: node.is_ready for node in self.of(NodeSeen, until=until)}

    def checkpoints(self) -> dict[str, CheckpointSeen]:
        """Return each checkpoint's newest record, in the order of their creation."""
        found: dict[str, CheckpointSeen] = {}
        for checkpoint in self.of(CheckpointSeen):
            found[checkpoint.name] = checkpoint
        return found


def _at(record: Record) -> float:
    return record.at
