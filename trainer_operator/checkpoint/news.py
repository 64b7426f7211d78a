"""What people and metrics hear of a checkpoint's way."""

from collections.abc import Sequence
from typing import Literal, Protocol

from runtime.objects import JsonObject
from trainer_operator.api.checkpoint import Checkpoint, CheckpointState, CheckpointStatus
from trainer_operator.api.meta import API_VERSION, condition_of
from trainer_operator.api.trainer import Trainer
from trainer_operator.telemetry.metrics import Ending, TrainerMetrics

EventType = Literal["Normal", "Warning"]
_SHOWN = 5


class EventSink(Protocol):
    """The part of the event recorder that is used here."""

    def event(self, obj: JsonObject, *, type: EventType, reason: str, message: str) -> None:
        """Record an event; never blocks."""


def announce(
    before: CheckpointStatus, stored: Checkpoint, *, events: EventSink, metrics: TrainerMetrics
) -> None:
    """Tell of the state that a checkpoint reached with a write.

    On the checkpoint itself: on the Trainer these would crowd out, in the event budget, what people must see.
    """
    after, name, about = stored.status, stored.metadata.name, _about(stored)
    ending = _ending(before, after)
    if ending is not None:
        metrics.checkpoint_ended(stored.metadata.namespace or "", ending, size=after.bytes or 0)
    if ending == "committed":
        text = f"checkpoint {name} of step {after.step} is committed: {after.size}, {after.copies} durable copies"
        events.event(about, type="Normal", reason="CheckpointCommitted", message=text)
    elif ending == "aborted":
        told = condition_of(after.conditions, "Aborted")
        why = f"{told.reason}: {told.message}" if told is not None else "Aborted"
        text = f"checkpoint {name} was given up: {why}"[:1024]
        events.event(about, type="Warning", reason="CheckpointAborted", message=text)


def tell_differing(trainer: Trainer, stored: Checkpoint, names: Sequence[str], *, events: EventSink) -> None:
    """Say on the Trainer which tensors an audit found changed though they were taken for unchanged (FZ2)."""
    if not names:
        return
    text = (
        f"checkpoint {stored.metadata.name} found that {_shown(names)} had changed unnoticed, "
        "as a write through .data does: earlier checkpoints since the last full comparison hold an older value. This one is right, and from now on "
        f"{'they are' if len(names) > 1 else 'it is'} compared by content each time"
    )
    about: JsonObject = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
    events.event(about, type="Warning", reason="TensorChangedUnnoticed", message=text[:1024])


def tell_unknown(stored: Checkpoint, names: Sequence[str], *, events: EventSink) -> None:
    """Say on the checkpoint that was collected what lies in the store that is not ours (GC7)."""
    if names:
        text = f"{_shown(names)} in the Trainer's folder of the store is not the operator's, so it stays"
        events.event(_about(stored), type="Warning", reason="UnknownInStore", message=text[:1024])


def _about(checkpoint: Checkpoint) -> JsonObject:
    return {"apiVersion": API_VERSION, "kind": "Checkpoint", "metadata": checkpoint.metadata.dump()}


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _ending(before: CheckpointStatus, after: CheckpointStatus) -> Ending | None:
    """Name the end that a checkpoint reached with this write, if it did."""
    if after.state is CheckpointState.COMMITTED:
        return "committed"
    if after.state is CheckpointState.GARBAGE_COLLECTED:
        return "collected" if before.state is CheckpointState.COMMITTED else "aborted"
    return None
