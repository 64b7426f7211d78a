"""Who is in a store: which checkpoints exist, and what became of the others (GC4).

The store is asked and not the objects: whoever has a DECISION "commit" and no tombstone exists. The store has no
snapshots, and while we look a checkpoint may be committed and its base be marked. Seen in the wrong order, we would
count neither, though both share a chunk. So we look until a whole look finds nothing new: whoever was undecided in the
last one and was committed later still had its base pinned, and that base was counted before. An attempt that is
undecided though its base does not live has lost its object, and with it the pin: it is aborted, and we look again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Mapping, Optional, Set, Tuple

from trainer_operator.agent import store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.parallel import RECORD_WIDTH, each
from trainer_operator.agent.store import CheckpointDir

Living = Mapping[str, Tuple[str, ...]]
"""By checkpoint that exists, those whose data it refers to."""
_UNDECIDED = object()


@dataclass(frozen=True)
class Buried:
    """A checkpoint or attempt with a tombstone."""

    at: int
    """When that was ordered, in seconds since 1970; 0 if it does not say so."""
    owners: Tuple[str, ...] = ()
    """Those whose data it referred to."""


@dataclass(frozen=True)
class Aborted:
    """An attempt that was aborted and has no tombstone, so its data may be there."""

    begun: int
    """When it began, in seconds since 1970; 0 if that is not known."""


@dataclass(frozen=True)
class Census:
    """Everybody with a folder of ours. What is not undecided never becomes anything else, but for being buried."""

    alive: Living
    buried: Mapping[str, Buried]
    aborted: Mapping[str, Aborted]
    undecided: FrozenSet[str]


def take(home: Home) -> Census:
    """Look until nothing is new, such that nobody who is relied on is missed.

    No more of 10,000 decisions is kept in memory (KT7).

    Raises: Malformed when a DECISION cannot be read, since it might refer to anything; StoreError when the store does
    not answer.
    """
    alive: Dict[str, Tuple[str, ...]] = {}
    buried: Dict[str, Buried] = {}
    aborted: Dict[str, Aborted] = {}
    undecided: Optional[Set[str]] = None
    while True:
        settled = alive.keys() | buried.keys() | aborted.keys()
        names = [name for name in store.ids(home) if name not in settled]
        seen: Set[str] = set()
        for name, found in zip(names, each(lambda name: _look(home, name), names, width=RECORD_WIDTH)):
            if isinstance(found, Buried):
                buried[name] = found
            elif isinstance(found, Aborted):
                aborted[name] = found
            elif isinstance(found, tuple):
                alive[name] = found
            else:
                seen.add(name)
        if seen == undecided and len(seen) == len(names):
            if not [name for name in sorted(seen) if _abort_orphan(CheckpointDir(home, name), alive)]:
                return Census(alive, buried, aborted, frozenset(seen))
            seen = set()
        undecided = seen


def _look(home: Home, ckpt: str) -> object:
    where = CheckpointDir(home, ckpt)
    decision = store.read_decision(where)
    at = store.buried_at(where)
    if at is not None:
        # Without a DECISION it is being purged, unless both came between our two calls.
        decision = decision or store.read_decision(where)
        return Buried(at, decision.owners if decision is not None else ())
    if decision is None:
        return _UNDECIDED
    return decision.owners if decision.committed else Aborted(decision.begun)


def _abort_orphan(where: CheckpointDir, alive: Living) -> bool:
    """Abort an attempt whose base does not live, unless it was committed first; whether there was anything to decide."""
    intent = store.read_intent(where)
    base = intent.get("base") if intent is not None else None
    if not base or base in alive:
        return False
    store.abandon(where, reason="BaseLost", begun=begun(intent))
    return True


def begun(intent: Optional[Mapping[str, object]]) -> int:
    """Return when an attempt began, in seconds since 1970 by the leader's clock; 0 if INTENT does not say so."""
    at = intent.get("at") if intent is not None else None
    return at if isinstance(at, int) and not isinstance(at, bool) and 0 < at < 2**53 else 0
