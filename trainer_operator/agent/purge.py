"""The end of all checkpoints of a deleted Trainer (CS12).

All are buried before the first chunk goes, so that no chunk is spared for one that goes next. DECISION and tombstone
of each stay, as after any collection: a decider that was held up must find them (DE4).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from trainer_operator.agent import census, collection, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.census import Census
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import CheckpointDir


def purge(home: Home) -> Dict[str, Any]:
    """Abort what is undecided, delete the data of all, and return how many objects went and which ids were left.

    Guarantees: repeatable from any point; left are ids whose INTENT is absent or whose DECISION cannot be read, since
    they are not ours or of a newer version (GC7), and what such a one may refer to.
    Raises: StoreError when the store does not answer.
    """
    left: List[str] = []
    mine: List[CheckpointDir] = []
    for ckpt in store.ids(home):
        where = CheckpointDir(home, ckpt)
        if _is_decided(where):
            mine.append(where)
        else:
            left.append(ckpt)
    for where in mine:
        store.bury(where)
    deleted = 0
    known = _census(home)
    for where in mine:
        try:
            deleted += collection.collect(where, known=known).objects
        except Malformed:
            left.append(where.ckpt)
    return {"deleted": deleted, "left": sorted(left)[:64]}


def _census(home: Home) -> Optional[Census]:
    """Look once for all of them, since no one is committed any more; None where a collection has to look and refuse."""
    try:
        return census.take(home)
    except Malformed:
        return None


def _is_decided(where: CheckpointDir) -> bool:
    """Whether it has a DECISION, which an attempt that was begun gets now (PB5), or only its tombstone is left."""
    try:
        if store.read_decision(where) is not None or store.is_collected(where):
            return True
    except Malformed:
        return False
    intent = store.read_intent(where)
    if intent is None:
        return False
    store.abandon(where, reason="TrainerDeleted", begun=census.begun(intent))
    return True
