"""The scrubs of committed checkpoints: what is ordered when, and what is kept of the answer (PB1, PB4, CS6).

    scrub:<id>:<time of the last one>      the directive's id, so a leader that takes over repeats the same order
    …#<n>                                  tried again after a failure, with growing pauses

What a scrub found is one write of the Checkpoint. A store that stays at fault is one write as well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.clock import Clock
from runtime.conditions import set_condition
from runtime.objects import ObjectKey
from trainer_operator.api.checkpoint import (
    VERIFY_ANNOTATION,
    Checkpoint,
    CheckpointHealth,
    CheckpointState,
    CheckpointStatus,
    Verification,
)
from trainer_operator.api.meta import Condition
from trainer_operator.checkpoint.prober import Candidate, Finding, choose, due_at, judge, pace
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import Directive

RECHECK = 30.0
"""Seconds until we look again whether one that is due has its turn."""
WITHOUT_AGENT = 600.0
"""The same while nobody could read it; agents that come wake us sooner."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Between two tries at a store that is at fault."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What is known when a committed checkpoint is looked at."""

    key: ObjectKey
    checkpoint: Checkpoint
    siblings: Sequence[Mapping[str, Any]]
    """All of the Trainer's Checkpoint objects, itself included."""
    answers: Mapping[str, DirectiveResult]
    """What agents answered to orders for this checkpoint, by id."""
    has_agent: bool
    """Whether an agent is there to do it."""
    at_rest: bool
    """Whether no member runs; then a pod would be started for it, so only what a user asks for is read."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows for a checkpoint: news for its status, an order, and when to look again."""

    finding: Finding | None = None
    order: Directive | None = None
    wait: float | None = None


class Scrubs:
    """Plans scrubs; remembers only how often a store failed lately, which a new leader finds out again."""

    def __init__(self, clock: Clock, metrics: TrainerMetrics) -> None:
        self._clock = clock
        self._tries: dict[ObjectKey, tuple[str, float]] = {}
        """By checkpoint, the next try's id and when it may be made."""
        self._due: dict[ObjectKey, datetime] = {}
        metrics.scrub_lag(self._lag)

    def plan(self, seen: Scrubbed) -> Plan:
        """Return what follows for a checkpoint now."""
        status = seen.checkpoint.status
        candidates = [_candidate(each) for each in seen.siblings if _state(each) == CheckpointState.COMMITTED]
        own = _candidate(seen.checkpoint.dump())
        candidates = [each for each in candidates if each.name != own.name] + [own]
        now = self._clock.utcnow()
        due = due_at(own, candidates)
        if not seen.has_agent or (seen.at_rest and not own.is_asked):
            self.forget(seen.key)
            return Plan(wait=WITHOUT_AGENT)
        self._due[seen.key] = due
        if due > now:
            self._tries.pop(seen.key, None)
            return Plan(wait=(due - now).total_seconds())
        base = _order_id(status)
        mine = {name: each for name, each in seen.answers.items() if name.partition("#")[0] == base}
        found = [judge(own.name, mine[name]) for name in sorted(mine, key=_try_of)]
        done = next((each for each in found if each is not None and each.complete), None)
        if done is not None:
            self._tries.pop(seen.key, None)
            return Plan(finding=done, wait=0.0)
        last = next((each for each in reversed(found) if each is not None), None)
        if choose(candidates, now) != own or any(map(_is_open, seen.siblings)):
            return Plan(finding=last, wait=RECHECK)
        order, wait = self._next_try(seen.key, base, len(mine))
        if wait > 0:
            return Plan(finding=last, wait=wait)
        args = {"ckpt": status.id, "storeId": status.store_id or "", "bytesPerSecond": pace(candidates)}
        return Plan(finding=last, order=Directive(order, "Scrub", args), wait=RECHECK)

    def forget(self, key: ObjectKey) -> None:
        """Forget a checkpoint that is not committed any more."""
        self._tries.pop(key, None)
        self._due.pop(key, None)

    def _next_try(self, key: ObjectKey, base: str, tries: int) -> tuple[str, float]:
        """Return the id of the next try, and the seconds until it may be made."""
        if tries == 0:
            return base, 0.0
        order, now = f"{base}#{tries}", self._clock.monotonic()
        known, at = self._tries.get(key, ("", 0.0))
        if known != order:
            at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries - 1, 16))
            self._tries[key] = order, at
        return order, max(0.0, at - now)

    def _lag(self) -> float:
        oldest = min(self._due.values(), default=None)
        return max(0.0, (self._clock.utcnow() - oldest).total_seconds()) if oldest is not None else 0.0


def apply(status: CheckpointStatus, finding: Finding, *, generation: int | None, now: datetime) -> None:
    """Put what was found into a status; the same again changes nothing but the time of a complete scrub."""
    status.health = finding.health
    if finding.complete:
        status.verified, status.last_verified = Verification.FULL, now
    current, _ = set_condition(
        [condition.dump() for condition in status.conditions],
        type="Verified",
        status="True" if finding.health is CheckpointHealth.HEALTHY else "False",
        reason=finding.reason,
        message=finding.message,
        generation=generation,
        now=now,
    )
    status.conditions = tuple(Condition.read(entry) for entry in current)


def _order_id(status: CheckpointStatus) -> str:
    last = status.last_verified
    return f"scrub:{status.id}:{last:%Y%m%d%H%M%S}" if last is not None else f"scrub:{status.id}:-"


def _try_of(name: str) -> int:
    number = name.partition("#")[2]
    return int(number) if number.isdecimal() else 0


def _candidate(obj: Mapping[str, Any]) -> Candidate:
    metadata, status = obj["metadata"], obj.get("status") or {}
    committed = _time(status.get("committedAt")) or _time(metadata.get("creationTimestamp"))
    read = status.get("lastVerified") if status.get("verified") == Verification.FULL else None
    size = status.get("bytes")
    return Candidate(
        name=metadata["name"],
        committed_at=committed or datetime.fromisoformat("1970-01-01T00:00:00+00:00"),
        read_at=_time(read),
        asked_at=_time((metadata.get("annotations") or {}).get(VERIFY_ANNOTATION)),
        corrupt=status.get("health") == CheckpointHealth.CORRUPT,
        bytes=size if isinstance(size, int) else 0,
    )


def _state(obj: Mapping[str, Any]) -> str | None:
    found = (obj.get("status") or {}).get("state")
    return str(found) if found is not None else None


def _is_open(obj: Mapping[str, Any]) -> bool:
    return _state(obj) in {None, CheckpointState.PENDING, CheckpointState.STAGING}


def _time(value: object) -> datetime | None:
    """Read a time; what is none, as a user may write, counts as absent."""
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None
