"""Which checkpoint a new one builds on, and how long that one is kept for it (CS1, GC2, GC3, FZ4). Pure.

A pin is the name of the Checkpoint that is being saved, in the status of its base; pins and the mark for collection are
in one object, so the API server's compare-and-swap lets only one of them in. The pin is there before any agent hears
of the base, and goes once the object that it names shows an outcome: Committed, or given up.
"""

from collections.abc import Iterable

from trainer_operator.checkpoint.retention import Kept

OVER = frozenset({"Committed", "GarbageCollected"})


def choose_base(siblings: Iterable[Kept], *, name: str, shards: int, store_id: str) -> Kept | None:
    """Return the checkpoint whose unchanged data the one of that name may reuse; None for a full write (FZ4).

    It is the newest one that counts, unless it is damaged, marked, in another store or cut in other shards, or copies
    of the last attempt failed with a base: what cannot be read of it would fail the next one as well.
    """
    others = [c for c in siblings if c.name != name]
    ended = max((c for c in others if c.state in OVER), key=lambda c: c.sequence, default=None)
    if ended is not None and ended.base and ended.aborted == "CopiesFailed":
        return None
    committed = [c for c in others if c.state == "Committed" and not c.marked and not c.discard]
    newest = max(committed, key=lambda c: (c.step, c.sequence), default=None)
    if newest is None or newest.health not in {"Healthy", "Unknown"}:
        return None
    return newest if newest.id and (newest.shards, newest.store_id) == (shards, store_id) else None


def still_pinned(pins: Iterable[str], siblings: Iterable[Kept]) -> list[str]:
    """Return the pins whose holders have no outcome yet; one whose object is gone will never be committed (GC3)."""
    waiting = {c.name for c in siblings if c.state not in OVER}
    return [pin for pin in pins if pin in waiting]


def is_pinned(siblings: Iterable[Kept], *, base: str, holder: str) -> bool:
    """Whether a base still waits for this holder; without that nothing may be committed on it (CS3)."""
    return any(c.id == base and holder in c.pins and not c.marked for c in siblings)
