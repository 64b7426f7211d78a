"""Which checkpoint a new one builds on, and how long one is kept for its readers (CS1, GC2, GC3, RS4, FZ4). Pure.

A pin is in the status of what is read; pins and the mark for collection are in one object, so the API server's
compare-and-swap lets only one of them in. It is there before any agent hears of what it shall read.

    <name of a Checkpoint>     it is being saved with this one as base; until it shows an outcome
    restore/<epoch>            that epoch starts from this one; until all its members train
    restore/<epoch>.<ps>       the same with parameter servers; until the next one of them, since a worker that comes
                               back within it is started in the same way
"""

from collections.abc import Iterable

from trainer_operator.api.names import restoring_epoch
from trainer_operator.api.status import TERMINAL, MembershipPhase, Phase, TrainerStatus
from trainer_operator.checkpoint.retention import Kept

OVER = frozenset({"Committed", "GarbageCollected"})


def choose_base(siblings: Iterable[Kept], *, name: str, shards: int, store_id: str) -> Kept | None:
    """Return the checkpoint whose unchanged data the one of that name may reuse; None for a full write (FZ4).

    It is the newest one of the path, unless it is damaged, marked, in another store or cut in other shards, or copies
    of the last attempt failed with a base: what cannot be read of it would fail the next one as well.
    """
    others = [c for c in siblings if c.name != name]
    ended = max((c for c in others if c.state in OVER), key=lambda c: c.sequence, default=None)
    if ended is not None and ended.base and ended.aborted == "CopiesFailed":
        return None
    committed = [c for c in others if c.state == "Committed" and c.on_path and not c.marked and not c.discard]
    newest = max(committed, key=lambda c: (c.step, c.sequence), default=None)
    if newest is None or newest.health not in {"Healthy", "Unknown"}:
        return None
    return newest if newest.id and (newest.shards, newest.store_id) == (shards, store_id) else None


def still_pinned(pins: Iterable[str], siblings: Iterable[Kept], trainer: TrainerStatus) -> list[str]:
    """Return the pins whose holders are not over; an object that is gone will never be committed (GC3)."""
    waiting = {c.name for c in siblings if c.state not in OVER}
    return [pin for pin in pins if (is_restoring(pin, trainer) if restoring_epoch(pin) else pin in waiting)]


def is_restoring(pin: str, trainer: TrainerStatus) -> bool:
    """Whether the epoch that a pin names may still read.

    A Trainer that is older than the pin, as a cache may show it, has a lower epoch, so nothing is dropped too early.
    """
    membership, named = trainer.membership, restoring_epoch(pin)
    current = (membership.epoch, membership.ps_epoch)
    if named is None or trainer.phase in TERMINAL or named < current:
        return False
    has_started = membership.phase is MembershipPhase.ACTIVE and trainer.phase is Phase.RUNNING
    return named > current or bool(membership.ps_epoch) or not has_started


def is_pinned(siblings: Iterable[Kept], *, base: str, holder: str) -> bool:
    """Whether a base still waits for this holder; without that nothing may be committed on it (CS3)."""
    return any(c.id == base and holder in c.pins and not c.marked for c in siblings)
