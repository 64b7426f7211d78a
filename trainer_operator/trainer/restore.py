"""What an epoch starts from, and the pin that keeps it there while it is read (RS1, RS4, CK1). Pure.

The pin is seen on the Checkpoint before the epoch becomes Active, so before any agent hears what to read: what is
marked for collection refuses it, and then another one is chosen. Who drops it: `checkpoint.pins`.
"""

from collections.abc import Iterable

from trainer_operator.api.names import restore_pin
from trainer_operator.trainer.draft import Draft, PinCheckpoint
from trainer_operator.trainer.views import CheckpointView

PIN_AGAIN = 1.0


def newest_committed(checkpoints: Iterable[CheckpointView]) -> CheckpointView | None:
    """Return the newest checkpoint that counts and is not known to be damaged (CK1, RS1)."""
    good = [
        c
        for c in checkpoints
        if c.state == "Committed" and c.health != "Corrupt" and not c.discard and not c.marked
    ]
    return max(good, key=lambda c: (c.step, c.sequence), default=None)


def has_pinned(draft: Draft, source: CheckpointView | None, *, ps_epoch: int) -> bool:
    """Whether an epoch may start from this one: it is pinned for it, which is asked for if not (RS4)."""
    pin = restore_pin(draft.status.membership.epoch, ps_epoch)
    if source is None or pin in source.pins:
        return True
    draft.actions.append(PinCheckpoint(source.name, pin))
    draft.look_again(PIN_AGAIN)
    return False
