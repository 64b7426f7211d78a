"""What a store holds of a Trainer, for Checkpoint objects that are to be rebuilt (RS6)."""

from __future__ import annotations

from typing import Any, Dict, List

from trainer_operator.agent import store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import CheckpointDir
from trainer_operator.agent.timelines import timelines

PAGE = 50
"""Entries of one answer: a beat is bounded."""


def inventory(home: Home, *, after: str) -> Dict[str, Any]:
    """Return the checkpoints that exist by CK1 among the next ids, the last of these ids, and all timelines (CK6).

    The last id is empty at the end.

    Raises: StoreError when the store does not answer.
    """
    ids = [ckpt for ckpt in store.ids(home) if ckpt > after][:PAGE]
    found = [_entry(CheckpointDir(home, ckpt)) for ckpt in ids]
    return {
        "storeId": store.store_id(home),
        "found": [entry for entry in found if entry],
        "timelines": timelines(home),
        "last": ids[-1] if len(ids) == PAGE else "",
    }


def _entry(where: CheckpointDir) -> Dict[str, Any]:
    try:
        decision = store.read_decision(where)
    except Malformed:
        return {}  # of a newer version, or not ours
    if decision is None or not decision.committed or store.is_collected(where):
        return {}
    copies: List[int] = [len(found) for found in decision.shards.values()]
    return {
        "id": where.ckpt,
        "step": decision.step,
        "epoch": decision.epoch,
        "timeline": decision.timeline,
        "bytes": decision.bytes,
        "digest": decision.digest,
        "shards": len(copies),
        "copies": min(copies) if copies else 0,
    }
