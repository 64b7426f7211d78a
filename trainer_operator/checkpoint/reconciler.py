"""The Checkpoint reconciler: drives one Checkpoint object from Pending to its end.

It reads the Trainer, the agents' acks and results, takes one step of the state machine, writes the object if that is
news, and only then tells the agents. At most five writes in the life of an object (IV13).
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Protocol

import structlog
from pydantic import ValidationError

from runtime.cache.index import OWNER_UID
from runtime.client.errors import NotFound
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.conditions import set_condition
from runtime.controller.reconciler import Request, Result
from runtime.objects import JsonObject, ObjectKey
from runtime.resourceversion import compare
from trainer_operator.api.checkpoint import (
    Checkpoint,
    CheckpointHealth,
    CheckpointState,
    CheckpointStatus,
    Verification,
)
from trainer_operator.api.meta import API_VERSION, INT64_MAX, Condition
from trainer_operator.api.resources import CHECKPOINTS
from trainer_operator.api.status import AT_REST, TERMINAL, MembershipPhase, ServerPhase
from trainer_operator.api.trainer import Trainer
from trainer_operator.checkpoint import orders
from trainer_operator.checkpoint.pins import choose_base, is_pinned, still_pinned
from trainer_operator.checkpoint.quorum import (
    Holder,
    durable_copies,
    has_quorum,
    holders_of,
    is_impossible,
    shard_count,
    store_problem,
)
from trainer_operator.checkpoint.retention import Kept, read_kept, to_forget, to_retire
from trainer_operator.checkpoint.state import Facts, Move, Order, Outcome, step
from trainer_operator.checkpoint.target import choose_target
from trainer_operator.telemetry.metrics import Ending, TrainerMetrics
from trainer_operator.topology.beat import Ack, DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, AgentView, Directive, MemberId, Members

OPEN = frozenset({None, CheckpointState.PENDING, CheckpointState.STAGING})
RECHECK = 1.0
COMMIT_TRIES = 3
"""Times that an agent may fail to write a commit before the attempt is aborted."""
EventType = Literal["Normal", "Warning"]
FRESH = 15.0
"""Seconds within which an agent must have been heard to be given store work."""
_log = structlog.get_logger("checkpoint")


class Objects(Protocol):
    """The part of an informer that is used here."""

    def get(self, key: ObjectKey) -> Mapping[str, Any] | None:
        """Return the object or None."""

    def by_index(self, index: str, value: str) -> "list[Mapping[str, Any]]":
        """Return the objects under an index value."""


class EventSink(Protocol):
    """The part of the event recorder that is used here."""

    def event(self, obj: JsonObject, *, type: EventType, reason: str, message: str) -> None:
        """Record an event; never blocks."""


class CheckpointReconciler:
    """Brings each checkpoint to its end.

    Guarantees: Committed is written only after an agent read a DECISION "commit" back from the store (CS3); what
    agents are told follows from what is written.
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
        look_again: Callable[[ObjectKey], None],
        members_of: Callable[[Trainer], frozenset[MemberId]],
        call_janitor: Callable[[ObjectKey], None],
        metrics: TrainerMetrics,
    ) -> None:
        self._client = client
        self._checkpoints = checkpoints
        self._trainers = trainers
        self._members = members
        self._events = events
        self._clock = clock
        self._look_again = look_again
        self.members_of = members_of
        self._call_janitor = call_janitor
        self._metrics = metrics
        self._written: dict[ObjectKey, Checkpoint] = {}
        self._janitors: dict[ObjectKey, str] = {}
        """Checkpoints that a janitor has orders for, with the key that it is booked under."""

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one checkpoint."""
        checkpoint = self._read(request.key)
        if checkpoint is None or checkpoint.metadata.deletion_timestamp is not None:
            return None
        if checkpoint.spec.id is not None and checkpoint.status.state is None:
            return None  # an import makes it, and its status follows (RS6)
        trainer = self._trainer_of(checkpoint)
        if trainer is None:
            return None
        view = _View(self, checkpoint, trainer)
        move = step(view.facts())
        if move.new_target and not checkpoint.status.base:
            view.base = await self._pin_base(view)
        checkpoint = await self._take(view, move)
        self._tell(view, checkpoint, move)
        if checkpoint.status.state is CheckpointState.GARBAGE_COLLECTED:
            await self._forget_old(trainer)
        at_work = move.order is not Order.NOTHING and (view.rests or view.executor() is not None)
        working = checkpoint.status.state in OPEN or at_work
        return Result(requeue_after=RECHECK) if working else None

    def _read(self, key: ObjectKey) -> Checkpoint | None:
        cached = self._checkpoints.get(key)
        if cached is None:
            self._written.pop(key, None)
            if key in self._janitors:
                self._members.declare(self._janitors.pop(key), f"checkpoint/{key.name}", {})
            return None
        try:
            checkpoint = Checkpoint.read(cached)
        except ValidationError as error:
            _log.error("checkpoint is not readable", checkpoint=str(key), problem=str(error))
            return None
        written = self._written.get(key)
        if (
            written is not None
            and written.metadata.uid == checkpoint.metadata.uid
            and compare(written.metadata.resource_version or "", checkpoint.metadata.resource_version or "")
            == 1
        ):
            return written
        self._written.pop(key, None)
        return checkpoint

    def _trainer_of(self, checkpoint: Checkpoint) -> Trainer | None:
        reference = checkpoint.spec.trainer_ref
        found = self._trainers.get(ObjectKey(checkpoint.metadata.namespace or "", reference.name))
        if found is None:
            return None
        try:
            trainer = Trainer.read(found)
        except ValidationError:
            return None  # its own reconciler says so
        return trainer if reference.uid in (None, trainer.metadata.uid) else None

    async def _take(self, view: "_View", move: Move) -> Checkpoint:
        """Write what the move changes; the same move twice writes nothing."""
        checkpoint = view.checkpoint
        status = checkpoint.status.model_copy(deep=True)
        view.apply(status, move, self._clock.utcnow())
        if status.dump() == checkpoint.status.dump():
            return checkpoint
        stored = await self._write(checkpoint, status)
        self._announce(view.trainer, checkpoint.status, stored)
        return stored

    async def _write(self, checkpoint: Checkpoint, status: CheckpointStatus) -> Checkpoint:
        """Replace the status of the object as it was read.

        Raises: Conflict when it changed meanwhile.
        """
        body = {
            "apiVersion": API_VERSION,
            "kind": "Checkpoint",
            "metadata": {
                "name": checkpoint.metadata.name,
                "namespace": checkpoint.metadata.namespace,
                "uid": checkpoint.metadata.uid,
                "resourceVersion": checkpoint.metadata.resource_version,
            },
            "spec": checkpoint.spec.dump(),
            "status": status.dump(),
        }
        stored = Checkpoint.read(await self._client.replace(CHECKPOINTS, body, subresource="status"))
        self._written[ObjectKey(checkpoint.metadata.namespace or "", checkpoint.metadata.name)] = stored
        return stored

    async def _pin_base(self, view: "_View") -> str | None:
        """Choose what the checkpoint builds on and pin it; return its id, or None for a full write (CS1, GC2).

        A pin that is left behind by a crash is dropped once its holder has an outcome (GC3).
        """
        chosen = view.choose_base()
        if chosen is None:
            return None
        base = self._read(ObjectKey(view.checkpoint.metadata.namespace or "", chosen.name))
        if base is None or base.status.state is not CheckpointState.COMMITTED or base.status.marked_at:
            return None
        holder = view.checkpoint.metadata.name
        if holder not in base.status.pins:
            status = base.status.model_copy(deep=True)
            status.pins = [*status.pins, holder]
            base = await self._write(base, status)
        return base.status.id

    def _announce(self, trainer: Trainer, before: CheckpointStatus, stored: Checkpoint) -> None:
        after = stored.status
        if before.state == after.state:
            return
        if after.state not in OPEN:  # others may go now, and its base need not wait for it any more
            for other in self._checkpoints.by_index(OWNER_UID, trainer.metadata.uid):
                self._look_again(ObjectKey(other["metadata"]["namespace"], other["metadata"]["name"]))
        ending = _ending(before, after)
        if ending is not None:
            self._metrics.checkpoint_ended(trainer.metadata.namespace or "", ending, size=after.bytes or 0)
        # On the checkpoint itself: on the Trainer they would crowd out, in the event budget, what people must see.
        reference = {"apiVersion": API_VERSION, "kind": "Checkpoint", "metadata": stored.metadata.dump()}
        name = stored.metadata.name
        if after.state is CheckpointState.COMMITTED:
            text = f"checkpoint {name} of step {after.step} is committed: {after.size}, {after.copies} durable copies"
            self._events.event(reference, type="Normal", reason="CheckpointCommitted", message=text)
        elif (
            after.state is CheckpointState.GARBAGE_COLLECTED and before.state is not CheckpointState.COMMITTED
        ):
            reason = next((c.reason for c in after.conditions if c.type == "Aborted"), "Aborted")
            text = f"checkpoint {name} was given up: {reason}"
            self._events.event(reference, type="Warning", reason="CheckpointAborted", message=text)

    def _tell(self, view: "_View", checkpoint: Checkpoint, move: Move) -> None:
        uid = view.trainer.metadata.uid
        status = checkpoint.status
        wanted = view.orders(status, move)
        self._tell_janitor(view.trainer, checkpoint.metadata.name, wanted.pop(JANITOR, ()))
        self._members.declare(uid, f"checkpoint/{checkpoint.metadata.name}", wanted)
        for missed in status.missed:
            self._members.decide(uid, missed, Outcome.ABORT)
        if status.id and status.state is CheckpointState.COMMITTED:
            self._members.decide(uid, status.id, Outcome.COMMIT)
        elif status.id and status.state is CheckpointState.GARBAGE_COLLECTED and status.committed_at is None:
            self._members.decide(uid, status.id, Outcome.ABORT)

    def _tell_janitor(self, trainer: Trainer, name: str, wanted: tuple[Directive, ...]) -> None:
        key = ObjectKey(trainer.metadata.namespace or "", name)
        if not wanted and key not in self._janitors:
            return
        janitor = janitor_of(trainer.metadata.uid)
        self._members.declare(janitor, f"checkpoint/{name}", {JANITOR: wanted})
        if wanted:
            self._janitors[key] = janitor
        else:
            del self._janitors[key]
        self._call_janitor(ObjectKey(key.namespace, trainer.metadata.name))

    def siblings(self, trainer: Trainer) -> list[Kept]:
        """Return all checkpoints of a Trainer as retention sees them."""
        restored = trainer.status.membership.restore_from if trainer.status.phase not in AT_REST else ""
        objects = self._checkpoints.by_index(OWNER_UID, trainer.metadata.uid)
        return [read_kept(obj, self._newest_status(obj), restored=restored) for obj in objects]

    def _newest_status(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what was last written where the cache lags behind; a pin of our own must not be missed (CS3)."""
        metadata = obj["metadata"]
        written = self._written.get(ObjectKey(metadata["namespace"], metadata["name"]))
        if (
            written is not None
            and written.metadata.uid == metadata.get("uid")
            and compare(written.metadata.resource_version or "", metadata.get("resourceVersion") or "") == 1
        ):
            return written.status.dump()
        return obj.get("status") or {}

    async def _forget_old(self, trainer: Trainer) -> None:
        for name in to_forget(self.siblings(trainer)):
            try:
                await self._client.delete(CHECKPOINTS, name, trainer.metadata.namespace)
            except NotFound:
                continue

    @property
    def members(self) -> Members:
        """Return the members' table."""
        return self._members

    def now(self) -> datetime:
        """Return the wall clock's time."""
        return self._clock.utcnow()


class _View:
    """One checkpoint with all that its next step depends on."""

    def __init__(self, reconciler: CheckpointReconciler, checkpoint: Checkpoint, trainer: Trainer) -> None:
        self.checkpoint = checkpoint
        self.trainer = trainer
        self.base: str | None = None
        """Id of the checkpoint that was pinned for this one."""
        self.replication = trainer.spec.topology.replication_factor
        self._reconciler = reconciler
        self._agents = reconciler.members.view(trainer.metadata.uid)
        self._janitor = reconciler.members.view(janitor_of(trainer.metadata.uid))
        self._in_epoch = reconciler.members_of(trainer)
        self.holders = holders_of(self._in_epoch, self.replication) if self._in_epoch else ()

    def facts(self) -> Facts:
        """Return what the state machine wants to know."""
        status, membership = self.checkpoint.status, self.trainer.status.membership
        now = self._reconciler.now()
        acks, shards = self._acks(), status.shards or 1
        problem = store_problem(acks)
        created, staged = self.checkpoint.metadata.creation_timestamp, status.staging_started_at
        policy = self.trainer.spec.checkpoint
        name = self.checkpoint.metadata.name
        return Facts(
            state=status.state,
            epoch=status.epoch or 0,
            current_epoch=membership.epoch,
            trains=self._trains(),
            ended=self.trainer.status.phase in TERMINAL,
            tries=len(status.missed),
            passed=self._passed(),
            quorum=has_quorum(acks, shards=shards, step=status.step or 0, replication=self.replication),
            impossible=is_impossible(acks, shards=shards, replication=self.replication),
            commit_failed=self._failed_tries(orders.store_id(Outcome.COMMIT, status.id or "-"))
            >= COMMIT_TRIES,
            abort_failed=self._failed_tries(orders.store_id(Outcome.ABORT, status.id or "-")) >= COMMIT_TRIES,
            failure=problem[0] if problem is not None else "CopiesFailed",
            age=(now - created).total_seconds() if created is not None else 0.0,
            staged_for=(now - staged).total_seconds() if staged is not None else 0.0,
            staging_timeout=float(policy.staging_timeout_seconds) if policy is not None else 600.0,
            outcome=self._outcome(),
            unpinned=bool(status.base) and not is_pinned(self._siblings, base=status.base or "", holder=name),
            retire=policy is not None
            and not self._pins()
            and name in to_retire(self._siblings, policy.max_retention),
            marked=status.marked_at is not None,
            collected=self._result(orders.store_id("collect", status.id or "-")) is not None,
        )

    def apply(self, status: CheckpointStatus, move: Move, now: datetime) -> None:
        """Change the status as the move says."""
        previous = status.state
        status.state = move.state
        status.pins = self._pins()
        if move.order is Order.COLLECT and status.marked_at is None:
            status.marked_at = now
        if move.new_target:
            self._aim(status, now)
        if move.state is CheckpointState.COMMITTED and previous is not CheckpointState.COMMITTED:
            self._committed(status, now)
        if move.state is CheckpointState.GARBAGE_COLLECTED and previous in OPEN:
            reason = self._abort_reason() or move.reason or "Aborted"
            current, _ = set_condition(
                [condition.dump() for condition in status.conditions],
                type="Aborted",
                status="True",
                reason=reason,
                message=self._why(reason),
                generation=self.checkpoint.metadata.generation,
                now=now,
            )
            status.conditions = tuple(Condition.read(entry) for entry in current)

    def orders(self, status: CheckpointStatus, move: Move) -> orders.Orders:
        """Return what the agents are told."""
        wanted: orders.Orders = {}
        store = self._store_id()
        if move.order is Order.SAVE:
            wanted = orders.save(
                status,
                self.holders,
                pause=self._pauses(),
                replication=self.replication,
                world=len(self._in_epoch),
                store=store,
            )
        executor = self.executor()
        if executor is None:
            return wanted
        told = []
        if move.order in {Order.COMMIT, Order.ABORT}:
            commit = move.order is Order.COMMIT
            reason = "Quorum" if commit else move.reason
            told.append(
                orders.decide(status, commit=commit, reason=reason, replication=self.replication, store=store)
            )
        elif move.order is Order.COLLECT:
            told.append(orders.collect(status.id or "", store=status.store_id or store))
        if status.state in OPEN:
            told += [
                orders.abort_missed(missed, epoch=status.epoch or 0, store=store) for missed in status.missed
            ]
        if told:
            wanted[executor] = (*wanted.get(executor, ()), *map(self._again, told))
        return wanted

    def _why(self, reason: str) -> str:
        """Say for people why it was given up; of a store's problem the agent's own sentence."""
        problem = store_problem(self._acks())
        if problem is not None and problem[0] == reason:
            return problem[1]
        return "no member restores from it; the next one is taken in time"

    def _pauses(self) -> bool:
        """Whether members wait at its step: only while the change that asked for it is under way.

        A change that a failure overtook leaves its checkpoint Pending; in the next epoch nobody would let the members
        go on. A Trainer that is older than the checkpoint in the cache does not know of the change yet.
        """
        name, status = self.checkpoint.metadata.name, self.trainer.status
        flight, change = status.checkpoint_in_flight, status.pending_change
        is_known = flight is not None and flight.name == name
        is_wanted = change is not None and change.checkpoint == name
        return self.checkpoint.spec.pause and (is_wanted or not is_known)

    def _trains(self) -> bool:
        membership = self.trainer.status.membership
        if membership.phase is not MembershipPhase.ACTIVE or not self.holders:
            return False
        if membership.ps_phase not in {None, ServerPhase.SERVING}:
            return False
        agents = [self._agents.get(holder.member) for holder in self.holders]
        return all(
            a is not None and a.running and a.beat.epoch == membership.epoch and a.age < FRESH for a in agents
        )

    def _passed(self) -> bool:
        result = orders.save_id(self.checkpoint.status.id or "-")
        found = [self._agents[h.member].results.get(result) for h in self.holders if h.member in self._agents]
        return any(answer is not None and not answer.ok and answer.error == "past" for answer in found)

    def _aim(self, status: CheckpointStatus, now: datetime) -> None:
        if status.id is not None:
            status.missed = [*status.missed, status.id]
        agents = [self._agents[holder.member] for holder in self.holders if holder.member in self._agents]
        everyone = [agent for agent in self._agents.values() if agent.running] or agents
        status.step = choose_target(everyone, tries=len(status.missed), at_least=(self._last_committed() + 1))
        status.epoch = self.trainer.status.membership.epoch
        status.base = status.base or self.base
        status.id = f"{status.step:012d}-e{status.epoch}-{secrets.token_hex(2)}"
        status.shards = shard_count(self.holders)
        status.holders = tuple(_holder_text(holder) for holder in self.holders)
        if status.staging_started_at is None:
            status.staging_started_at = now

    def choose_base(self) -> Kept | None:
        """Return what this checkpoint may build on."""
        return choose_base(
            self._siblings,
            name=self.checkpoint.metadata.name,
            shards=shard_count(self.holders),
            store_id=self._store_id(),
        )

    def _pins(self) -> list[str]:
        return still_pinned(self.checkpoint.status.pins, self._siblings)

    def _last_committed(self) -> int:
        counting = [c.step for c in self._siblings if c.state == "Committed" and not c.discard]
        return max(counting, default=0)

    def _store_id(self) -> str:
        """Return the id of the store that the Trainer's newest committed checkpoint lies in (CK7)."""
        committed = [c for c in self._siblings if c.state == "Committed"]
        newest = max(committed, key=lambda c: c.step, default=None)
        return newest.store_id if newest is not None else ""

    @cached_property
    def _siblings(self) -> list[Kept]:
        return self._reconciler.siblings(self.trainer)

    def _acks(self) -> list[Ack]:
        """Return what agents say of the copies of this checkpoint."""
        found = self._reconciler.members.acks(self.trainer.metadata.uid, self.checkpoint.status.id or "-")
        return [ack for _, ack in found]

    def _committed(self, status: CheckpointStatus, now: datetime) -> None:
        answer = self._decision()
        value = answer.value if answer is not None and isinstance(answer.value, dict) else {}
        copies = value.get("copies")
        counts = (
            [len(found) for found in copies.values() if isinstance(found, list | dict)]
            if isinstance(copies, dict)
            else []
        )
        counts = counts or durable_copies(self._acks(), shards=status.shards or 1, step=status.step or 0)
        status.copies = min(counts, default=0)
        size = value.get("bytes")
        status.bytes = size if isinstance(size, int) and 0 <= size <= INT64_MAX else 0
        status.size = human_size(status.bytes)
        reused = value.get("reused")
        status.reused_bytes = reused if isinstance(reused, int) and 0 <= reused <= status.bytes else None
        status.digest = str(value.get("digest") or "")[:128] or None
        status.store_id = str(value.get("storeId") or "")[:64] or None
        status.committed_at = now
        status.health = CheckpointHealth.HEALTHY
        # A copy is acknowledged only once a listing showed all of it (PB1).
        status.verified, status.last_verified = Verification.LISTED, now

    def _decision(self) -> DirectiveResult | None:
        """Return the result of a decide operation, whoever carried it out."""
        ckpt = self.checkpoint.status.id or "-"
        for outcome in (Outcome.COMMIT, Outcome.ABORT):
            found = self._result(orders.store_id(outcome, ckpt))
            if found is not None:
                return found
        return None

    def _outcome(self) -> Outcome | None:
        answer = self._decision()
        if answer is None or not isinstance(answer.value, dict):
            return None
        value = answer.value.get("outcome")
        return Outcome(value) if isinstance(value, str) and value in {"commit", "abort"} else None

    def _abort_reason(self) -> str | None:
        answer = self._decision()
        value = answer.value if answer is not None else None
        reason = value.get("reason") if isinstance(value, dict) else None
        return str(reason)[:64] if reason else None

    def _result(self, directive: str) -> DirectiveResult | None:
        """Return a store operation's successful result."""
        for agent in self._everyone():
            answer = agent.results.get(directive)
            if answer is not None and answer.ok:
                return answer
            for name, later in agent.results.items():
                if later.ok and name.startswith(f"{directive}#"):
                    return later
        return None

    def _failed_tries(self, directive: str) -> int:
        """Return how often agents failed at a store operation."""
        return sum(
            not answer.ok and name.partition("#")[0] == directive
            for agent in self._everyone()
            for name, answer in agent.results.items()
        )

    def _everyone(self) -> list[AgentView]:
        return [*self._agents.values(), *self._janitor.values()]

    def _again(self, directive: Directive) -> Directive:
        """Give a store operation that failed another id, so that it is tried again (MG1)."""
        failed = self._failed_tries(directive.id)
        return replace(directive, id=f"{directive.id}#{failed}") if failed else directive

    @property
    def rests(self) -> bool:
        """Whether no member will come by itself."""
        return self.trainer.status.phase in AT_REST

    def executor(self) -> MemberId | None:
        """Return whose agent touches the store: the first live member's, in rank order; at rest a janitor's."""
        alive = [member for member, agent in self._agents.items() if agent.age < FRESH]
        ranked = sorted(alive, key=lambda m: ({"master": 0, "worker": 1}.get(m.role, 2), m.index))
        if not ranked and self.rests and self._reconciler.members.led_for >= FRESH:
            return JANITOR
        return next(iter(ranked), None)


def _ending(before: CheckpointStatus, after: CheckpointStatus) -> Ending | None:
    """Name the end that a checkpoint reached with this write, if it did."""
    if after.state is CheckpointState.COMMITTED:
        return "committed"
    if after.state is CheckpointState.GARBAGE_COLLECTED:
        return "collected" if before.state is CheckpointState.COMMITTED else "aborted"
    return None


def _holder_text(holder: Holder) -> str:
    return f"{holder.member}:{','.join(map(str, holder.copies))}"


def human_size(count: int) -> str:
    """Write bytes for people, for example 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
