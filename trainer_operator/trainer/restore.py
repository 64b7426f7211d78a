"""What an epoch starts from, and the pin that keeps it there while it is read (RS1, RS4, CK1, CK6). Pure.

It is the newest sound checkpoint of the current path, or once what a user asks for. The pin is seen on the Checkpoint
before the epoch becomes Active, so before any agent hears what to read: what is marked for collection refuses it, and
then another one is chosen. Who drops it: `checkpoint.pins`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from trainer_operator.api.names import RESTORE_ANNOTATION, restore_pin
from trainer_operator.trainer.draft import Draft, PinCheckpoint
from trainer_operator.trainer.views import CheckpointView

PIN_AGAIN = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """What an epoch starts from."""

    source: CheckpointView | None
    """None: memory serves, or the beginning."""
    step: int
    """The global step that training goes on from."""
    left: tuple[CheckpointView, ...] = ()
    """Checkpoints of the path that are above it, damaged ones and such that wait for deletion included."""
    request: str = ""
    """The request that it honours."""

    @property
    def branches(self) -> bool:
        """Whether another course of training begins: then it is a timeline of its own (CK6)."""
        return bool(self.left) or (self.source is not None and not self.source.on_path)


def newest_committed(checkpoints: Iterable[CheckpointView]) -> CheckpointView | None:
    """Return the newest checkpoint of the path that is not known to be damaged (CK1, CK6, RS1)."""
    good = [c for c in checkpoints if is_sound(c) and c.on_path]
    return max(good, key=lambda c: (c.step, c.sequence), default=None)


def is_sound(checkpoint: CheckpointView) -> bool:
    """Whether training can go on from a checkpoint."""
    is_there = checkpoint.state == "Committed" and not checkpoint.discard and not checkpoint.marked
    return is_there and checkpoint.health != "Corrupt"


def choose(draft: Draft) -> Start:
    """Return what the epoch that is prepared starts from; a request that cannot be honoured is refused once."""
    checkpoints = draft.observed.checkpoints
    asked = (draft.observed.trainer.metadata.annotations or {}).get(RESTORE_ANNOTATION, "")[:1024]
    source, request = newest_committed(checkpoints), ""
    if asked and asked != draft.status.restore_request:
        name = asked.partition("@")[0]
        found = next((c for c in checkpoints if c.name == name and is_sound(c)), None)
        if found is not None:
            source, request = found, asked
        else:
            draft.status.restore_request = asked
            draft.event(
                "RestoreRefused",
                f"there is no committed and sound checkpoint {name[:253]}: training goes on from the newest one",
                warning=True,
            )
    return start_at(draft, source.step if source is not None else 0, source, request=request)


def start_at(draft: Draft, step: int, source: CheckpointView | None, *, request: str = "") -> Start:
    """Return a start from a step, with what it leaves behind."""
    committed = [c for c in draft.observed.checkpoints if c.state == "Committed" and c.on_path]
    return Start(source, step, tuple(c for c in committed if c.step > step), request)


def has_pinned(draft: Draft, source: CheckpointView | None, *, ps_epoch: int) -> bool:
    """Whether an epoch may start from this one: it is pinned for it, which is asked for if not (RS4)."""
    pin = restore_pin(draft.status.membership.epoch, ps_epoch)
    if source is None or pin in source.pins:
        return True
    draft.actions.append(PinCheckpoint(source.name, pin))
    draft.look_again(PIN_AGAIN)
    return False
