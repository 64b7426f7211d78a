"""The scrubs of a Trainer's committed checkpoints: what is ordered when, and what is kept of the answer (PB1, PB4, CS6).

    scrub:<id>:<time of the last one>      the directive's id, so a leader that takes over repeats the same order
    …#<n>                                  tried again after a failure, with growing pauses

One order at a time per Trainer. What a scrub found is one write of the Checkpoint; a store that stays at fault is one
as well. While a Trainer is at rest a janitor is started for it, one at a time per namespace and store, unless
`checkpoint.verifyAtRest` is false; only what a user asks for is read in any case, and does not wait for its turn.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from runtime.cache.index import OWNER_UID
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.conditions import find_condition, set_condition
from runtime.controller.reconciler import Request, Result
from runtime.objects import JsonObject, ObjectKey, key_of
from runtime.resourceversion import compare
from trainer_operator.api.checkpoint import (
    VERIFY_ANNOTATION,
    Checkpoint,
    CheckpointHealth,
    CheckpointState,
    CheckpointStatus,
    Verification,
)
from trainer_operator.api.meta import API_VERSION, Condition
from trainer_operator.api.resources import CHECKPOINTS
from trainer_operator.api.status import AT_REST
from trainer_operator.api.trainer import MANAGER
from trainer_operator.checkpoint.executor import choose_executor
from trainer_operator.checkpoint.news import EventSink
from trainer_operator.checkpoint.objects import Objects
from trainer_operator.checkpoint.prober import Candidate, Finding, choose, due_at, judge, pace
from trainer_operator.checkpoint.view import OPEN
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, Directive, MemberId, Members

SOURCE = "scrub"
"""Under which the members' table keeps our orders."""
RECHECK = 30.0
"""Seconds until we look again while a save is in flight, or a scrub runs; its answer wakes us sooner."""
WITHOUT_AGENT = 600.0
"""The same while nobody could read it; agents that come wake us sooner."""
WAITS_ITS_TURN = 120.0
"""The same while a janitor of another Trainer reads the same store."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Between two tries at a store that is at fault."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Prober:
    """Has the checkpoints of each Trainer read in full, one after the other; its keys are those of Trainers.

    Guarantees: it changes the health of a checkpoint, never its state, and deletes nothing (PB1).
    """

    def __init__(
        self,
        *,
        client: Client,
        checkpoints: Objects,
        trainers: Objects,
        members: Members,
        events: EventSink,
        clock: Clock,
        call_janitor: Callable[[ObjectKey], None],
        metrics: TrainerMetrics,
    ) -> None:
        self._call_janitor = call_janitor
        self._at_janitor: dict[ObjectKey, tuple[str, str]] = {}
        """Trainers whose janitor has an order of ours, with the namespace and store that it reads."""
        self._client, self._checkpoints, self._trainers = client, checkpoints, trainers
        self._members, self._events, self._clock, self._metrics = members, events, clock, metrics
        self._written: dict[ObjectKey, Mapping[str, Any]] = {}
        """What we wrote, until the cache shows it."""
        self._due: dict[ObjectKey, datetime] = {}
        """By Trainer, when the verification is due that waits longest; only while somebody could do it."""
        self._tries: dict[ObjectKey, tuple[str, float]] = {}
        """By Trainer, the id of the next try and when it may be made."""
        metrics.scrub_lag(self._lag)

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over the checkpoints of one Trainer."""
        trainer = self._trainers.get(request.key)
        if trainer is None:
            self._due.pop(request.key, None)
            self._tries.pop(request.key, None)
            self._at_janitor.pop(request.key, None)
            return None
        uid, rests = trainer["metadata"]["uid"], _rests(trainer)
        listed = [self._newest(each) for each in self._checkpoints.by_index(OWNER_UID, uid)]
        committed = {each["metadata"]["name"]: each for each in listed if _is_kept(each)}
        candidates = {name: _candidate(each) for name, each in committed.items()}
        now = self._clock.utcnow()
        unasked = _is_read_unasked(trainer)
        awaited = [each for each in candidates.values() if each.is_asked or unasked]
        chosen = choose(awaited, now, rests=rests)
        reader = self._reader(trainer, chosen, rests=rests) if chosen is not None else None
        if chosen is None or reader is None:
            self._declare(request.key, uid, None)
            self._due.pop(request.key, None)
            if chosen is not None:
                return Result(requeue_after=WITHOUT_AGENT)
            listed_due = (due_at(each, awaited, rests=rests) for each in awaited)
            due = min(listed_due, default=None)
            return Result(requeue_after=(due - now).total_seconds()) if due is not None else None
        self._due[request.key] = due_at(chosen, candidates.values(), rests=rests)
        place = (request.key.namespace, str(committed[chosen.name]["status"].get("storeId") or ""))
        if reader == JANITOR and not chosen.is_asked and self._is_read(place, by_other_than=request.key):
            self._declare(request.key, uid, None)
            return Result(requeue_after=WAITS_ITS_TURN)
        rate = pace(candidates.values(), rests=reader == JANITOR)
        order, wait = self._next_order(request.key, uid, committed[chosen.name], rate=rate)
        found = self._findings(uid, order.id, chosen.name)
        if found and (found[-1].complete or _is_news(committed[chosen.name], found[-1])):
            await self._keep(trainer, committed[chosen.name], found[-1])
            if found[-1].complete:
                self._declare(request.key, uid, None)
                return Result(requeue_after=0)
        is_saving = any(_state(each) in OPEN for each in listed)
        self._declare(request.key, uid, reader, *([] if is_saving or wait > 0 else [order]), place=place)
        return Result(requeue_after=wait or RECHECK)

    def _reader(self, trainer: Mapping[str, Any], chosen: Candidate, *, rests: bool) -> MemberId | None:
        """Return whose agent reads: the first live member's, in rank order; at rest a janitor's."""
        view = self._members.view(trainer["metadata"]["uid"])
        may_start = rests and (chosen.is_asked or _is_looked_after(trainer))
        return choose_executor(view, rests=may_start, led_for=self._members.led_for)

    def _is_read(self, place: tuple[str, str], *, by_other_than: ObjectKey) -> bool:
        """Whether a janitor of another Trainer reads there: a store shall not be flooded at rest."""
        return any(place == other and key != by_other_than for key, other in self._at_janitor.items())

    def _declare(
        self,
        key: ObjectKey,
        uid: str,
        reader: MemberId | None,
        *orders: Directive,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        """Want this of the reader, and nothing of anybody else."""
        to_janitor = reader == JANITOR and bool(orders)
        to_members = {reader: orders} if reader is not None and not to_janitor else {}
        self._members.declare(uid, SOURCE, to_members)
        if not to_janitor and key not in self._at_janitor:
            return
        self._members.declare(janitor_of(uid), SOURCE, {JANITOR: orders} if to_janitor else {})
        if to_janitor:
            self._at_janitor[key] = place
        else:
            del self._at_janitor[key]
        self._call_janitor(key)

    def _answers(self, uid: str, base: str) -> dict[str, DirectiveResult]:
        return {
            name: answer
            for training in (uid, janitor_of(uid))
            for agent in self._members.view(training).values()
            for name, answer in agent.results.items()
            if name.partition("#")[0] == base
        }

    def _findings(self, uid: str, order: str, name: str) -> list[Finding]:
        """Return what agents found for an order, whichever try it was; the last one counts."""
        answers = self._answers(uid, order.partition("#")[0])
        found = [judge(name, answers[each]) for each in sorted(answers, key=_try_of)]
        known = [each for each in found if each is not None]
        return sorted(known, key=lambda each: each.complete)

    def _next_order(
        self, trainer: ObjectKey, uid: str, obj: Mapping[str, Any], *, rate: int
    ) -> tuple[Directive, float]:
        """Return what is to be done next, and the seconds until it may be: a store that failed is given time."""
        status, now = obj["status"], self._clock.monotonic()
        last = _time(status.get("lastVerified"))
        base = (
            f"scrub:{status.get('id')}:{last:%Y%m%d%H%M%S}"
            if last is not None
            else f"scrub:{status.get('id')}:-"
        )
        failed = len(self._answers(uid, base))
        args = {"ckpt": status.get("id"), "storeId": status.get("storeId") or "", "bytesPerSecond": rate}
        if failed == 0:
            return Directive(base, "Scrub", args), 0.0
        name = f"{base}#{failed}"
        known, at = self._tries.get(trainer, ("", 0.0))
        if known != name:
            at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failed - 1, 16))
            self._tries[trainer] = name, at
        return Directive(name, "Scrub", args), max(0.0, at - now)

    async def _keep(self, trainer: Mapping[str, Any], obj: Mapping[str, Any], finding: Finding) -> None:
        """Write what was found, then tell of it.

        Raises: Conflict when the object changed meanwhile; the next pass finds the same answer.
        """
        checkpoint = Checkpoint.read(obj)
        status = checkpoint.status.model_copy(deep=True)
        apply(status, finding, generation=checkpoint.metadata.generation, now=self._clock.utcnow())
        body = {**obj, "apiVersion": API_VERSION, "kind": "Checkpoint", "status": status.dump()}
        stored = await self._client.replace(CHECKPOINTS, body, subresource="status")
        self._written[key_of(stored)] = stored
        namespace = checkpoint.metadata.namespace or ""
        self._metrics.checkpoint_scrubbed(
            namespace, finding.health, size=finding.bytes, repaired=finding.repaired
        )
        if not finding.event:
            return
        self._tell(stored, "Checkpoint", finding)
        if finding.health is CheckpointHealth.CORRUPT:
            self._tell(trainer, "Trainer", finding)

    def _tell(self, obj: Mapping[str, Any], kind: str, finding: Finding) -> None:
        about: JsonObject = {"apiVersion": API_VERSION, "kind": kind, "metadata": dict(obj["metadata"])}
        self._events.event(about, type="Warning", reason=finding.event, message=finding.message)

    def _newest(self, cached: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what we wrote ourselves while the cache is older."""
        key = key_of(cached)
        written = self._written.get(key)
        if written is None:
            return cached
        metadata, ours = cached["metadata"], written["metadata"]
        if (
            ours["uid"] == metadata["uid"]
            and compare(ours["resourceVersion"], metadata["resourceVersion"]) == 1
        ):
            return written
        del self._written[key]
        return cached

    def _lag(self) -> float:
        oldest = min(self._due.values(), default=None)
        return max(0.0, (self._clock.utcnow() - oldest).total_seconds()) if oldest is not None else 0.0


def apply(status: CheckpointStatus, finding: Finding, *, generation: int | None, now: datetime) -> None:
    """Put what was found into a status."""
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


def _is_news(obj: Mapping[str, Any], finding: Finding) -> bool:
    """Whether the status does not say so yet."""
    status = obj["status"]
    known = find_condition(status.get("conditions"), "Verified") or {}
    told = (status.get("health"), known.get("reason"), known.get("message"))
    return told != (finding.health, finding.reason, finding.message)


def _try_of(name: str) -> int:
    number = name.partition("#")[2]
    return int(number) if number.isdecimal() else 0


def _candidate(obj: Mapping[str, Any]) -> Candidate:
    metadata, status = obj["metadata"], obj["status"]
    committed = _time(status.get("committedAt")) or _time(metadata.get("creationTimestamp"))
    read = status.get("lastVerified") if status.get("verified") == Verification.FULL else None
    size = status.get("bytes")
    return Candidate(
        name=metadata["name"],
        committed_at=committed or _LONG_AGO,
        read_at=_time(read),
        asked_at=_time((metadata.get("annotations") or {}).get(VERIFY_ANNOTATION)),
        corrupt=status.get("health") == CheckpointHealth.CORRUPT,
        bytes=size if isinstance(size, int) else 0,
    )


def _state(obj: Mapping[str, Any]) -> CheckpointState | None:
    found = (obj.get("status") or {}).get("state")
    return CheckpointState(found) if found in set(CheckpointState) else None


def _rests(trainer: Mapping[str, Any]) -> bool:
    """Whether no member of it will run by itself."""
    return (trainer.get("status") or {}).get("phase") in AT_REST


def _is_read_unasked(trainer: Mapping[str, Any]) -> bool:
    """Whether its checkpoints are read before a user asks for that: `checkpoint.verifyAtRest` may say no (PB1)."""
    policy = (trainer.get("spec") or {}).get("checkpoint") or {}
    return policy.get("verifyAtRest") is not False or not _rests(trainer)


def _is_looked_after(trainer: Mapping[str, Any]) -> bool:
    """Whether pods may be started for it unasked: it is ours, has a store, and is not being deleted."""
    spec = trainer.get("spec") or {}
    is_ours = spec.get("managedBy") in {None, "", MANAGER}
    return is_ours and bool(spec.get("checkpoint")) and not trainer["metadata"].get("deletionTimestamp")


def _is_kept(obj: Mapping[str, Any]) -> bool:
    """Whether it is committed, and not about to be deleted."""
    is_leaving = obj["metadata"].get("deletionTimestamp") or (obj.get("status") or {}).get("markedAt")
    return _state(obj) is CheckpointState.COMMITTED and not is_leaving


def _time(value: object) -> datetime | None:
    """Read a time; what is none, as a user may write, counts as absent."""
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return None
    try:
        return datetime.fromisoformat(value).replace(microsecond=0)  # as exact as what we write ourselves
    except ValueError:
        return None
