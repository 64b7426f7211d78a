"""The Checkpoint reconciler: drives one Checkpoint object from Pending to its end.

It reads the Trainer, the agents' acks and results, takes one step of the state machine, writes the object if that is
news, and only then tells the agents. At most five writes in the life of an object (IV13).
"""

from collections.abc import Callable

from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.controller.reconciler import Request, Result
from runtime.objects import ObjectKey
from trainer_operator.api.checkpoint import Checkpoint, CheckpointState
from trainer_operator.api.trainer import Trainer, readable
from trainer_operator.checkpoint.news import EventSink, announce, tell_differing, tell_unknown
from trainer_operator.checkpoint.objects import CheckpointObjects, Objects
from trainer_operator.checkpoint.state import Move, Order, Outcome, step
from trainer_operator.checkpoint.view import OPEN, View
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import janitor_of
from trainer_operator.topology.members import JANITOR, Directive, MemberId, Members

RECHECK = 1.0
WHILE_PINNED = 10.0
"""Seconds until we look whether a restore is over; nothing else would tell us of it."""
WHILE_UNSWEPT = 60.0
"""The least until we look whether an agent is there to sweep what was given up."""


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
        self._objects = CheckpointObjects(client, checkpoints)
        self._trainers = trainers
        self._members = members
        self._events = events
        self._clock = clock
        self._look_again = look_again
        self._members_of = members_of
        self._call_janitor = call_janitor
        self._metrics = metrics
        self._janitors: dict[ObjectKey, str] = {}
        """Checkpoints that a janitor has orders for, with the key that it is booked under."""

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one checkpoint."""
        if self._objects.is_gone(request.key):
            if request.key in self._janitors:
                self._members.declare(self._janitors.pop(request.key), f"checkpoint/{request.key.name}", {})
            return None
        checkpoint = self._objects.get(request.key)
        if checkpoint is None or checkpoint.metadata.deletion_timestamp is not None:
            return None
        if checkpoint.spec.id is not None and checkpoint.status.state is None:
            return None  # an import makes it, and its status follows (RS6)
        trainer = self._trainer_of(checkpoint)
        if trainer is None:
            return None
        view = View(
            checkpoint,
            trainer,
            siblings=self._objects.siblings(trainer),
            members=self._members,
            in_epoch=self._members_of(trainer),
        )
        move = step(view.facts(self._clock.utcnow()))
        if move.new_target and not checkpoint.status.base:
            view.base = await self._pin_base(view)
        checkpoint = await self._take(view, move)
        self._tell(view, checkpoint, move)
        if checkpoint.status.state is CheckpointState.GARBAGE_COLLECTED:
            await self._objects.forget_old(trainer)
        at_work = move.order is not Order.NOTHING and (view.rests or view.executor() is not None)
        working = checkpoint.status.state in OPEN or at_work
        if working:
            return Result(requeue_after=RECHECK)
        if view.is_starting(checkpoint.status):
            return Result(requeue_after=WHILE_PINNED)
        unswept = view.sweep_in(checkpoint.status, self._clock.utcnow())
        return Result(requeue_after=max(WHILE_UNSWEPT, unswept)) if unswept is not None else None

    def _trainer_of(self, checkpoint: Checkpoint) -> Trainer | None:
        reference = checkpoint.spec.trainer_ref
        found = self._trainers.get(ObjectKey(checkpoint.metadata.namespace or "", reference.name))
        trainer = readable(found) if found is not None else None
        return trainer if trainer is not None and reference.uid in (None, trainer.metadata.uid) else None

    async def _take(self, view: View, move: Move) -> Checkpoint:
        """Write what the move changes; the same move twice writes nothing."""
        checkpoint = view.checkpoint
        status = checkpoint.status.model_copy(deep=True)
        view.apply(status, move, self._clock.utcnow())
        if status.dump() == checkpoint.status.dump():
            return checkpoint
        stored = await self._objects.write(checkpoint, status)
        tell_unknown(stored, view.unknown(), events=self._events)
        if checkpoint.status.state != stored.status.state:
            if (
                stored.status.state not in OPEN
            ):  # others may go now, and its base need not wait for it any more
                for other in self._objects.keys(view.trainer):
                    self._look_again(other)
            announce(checkpoint.status, stored, events=self._events, metrics=self._metrics)
            if stored.status.state is CheckpointState.COMMITTED:
                tell_differing(view.trainer, stored, view.differing(), events=self._events)
        return stored

    async def _pin_base(self, view: View) -> str | None:
        """Choose what the checkpoint builds on and pin it; return its id, or None for a full write (CS1, GC2).

        A pin that is left behind by a crash is dropped once its holder has an outcome (GC3).
        """
        chosen = view.choose_base()
        if chosen is None:
            return None
        base = self._objects.get(ObjectKey(view.checkpoint.metadata.namespace or "", chosen.name))
        if base is None or base.status.state is not CheckpointState.COMMITTED or base.status.marked_at:
            return None
        holder = view.checkpoint.metadata.name
        if holder not in base.status.pins:
            status = base.status.model_copy(deep=True)
            status.pins = [*status.pins, holder]
            base = await self._objects.write(base, status)
        return base.status.id

    def _tell(self, view: View, checkpoint: Checkpoint, move: Move) -> None:
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
