"""The end of all checkpoints of a deleted Trainer (CS12).

All are buried before the first chunk goes, so that no chunk is spared for one that goes next. DECISION and tombstone
of each stay, as after any collection: a decider that was held up must find them (DE4).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from trainer_operator.agent import collection, store
from trainer_operator.agent.backends import Home, NotFound
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import CheckpointDir


def purge(home: Home) -> Dict[str, Any]:
    """Abort what is undecided, delete the data of all, and return how many objects went and which ids were left.

    Guarantees: repeatable from any point; left are ids that have no INTENT or a DECISION that cannot be read, since
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
    alive = _living(home)
    for where in mine:
        try:
            deleted += collection.collect(where, alive=alive)
        except Malformed:
            left.append(where.ckpt)
    return {"deleted": deleted, "left": sorted(left)[:64]}


def _living(home: Home) -> Optional[collection.Living]:
    """Look once for all of them, since no one is committed any more; None where a collection has to look and refuse."""
    try:
        return collection.living(home)
    except Malformed:
        return None


def _is_decided(where: CheckpointDir) -> bool:
    """Whether it has a DECISION, which an attempt that was begun gets now (PB5)."""
    try:
        if store.read_decision(where) is not None:
            return True
        where.store.get_range(where.record("INTENT"), start=0, length=1)
    except (Malformed, NotFound):
        return False
    step, epoch = store.step_of(where.ckpt), int(where.ckpt.split("-")[1][1:])
    store.decide_abort(where, step=step, epoch=epoch, reason="TrainerDeleted", nonce="%s-purge" % where.ckpt)
    return True
