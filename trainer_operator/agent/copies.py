"""The copies of a checkpoint: those that its DECISION names, and those that were completed later (QR5, PB3).

    extra/<s>.r<k>   {"v", "idx_sha256"}   create-if-absent, after the chunks and the index of that copy

Nothing else is a copy, whatever lies in the store: a late ack changes nothing.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping

from trainer_operator.agent.backends import Exists, Passing, StoreError, every_entry
from trainer_operator.agent.records import VERSION, dump_record, parse_record
from trainer_operator.agent.store import MAX_RECORD_BYTES, CheckpointDir, Decision

Copies = Dict[int, Dict[int, str]]
"""By shard and copy, the hash of its index."""
_NAME = re.compile(r"^(\d{1,6})\.r(\d{1,3})\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


def known(where: CheckpointDir, decision: Decision) -> Copies:
    """Return the copies that exist; records that are not ours are passed over (GC7).

    Raises: Passing, NoRights when the store does not answer.
    """
    found: Copies = {shard: dict(copies) for shard, copies in decision.shards.items()}
    prefix = where.record("extra/")
    for entry in every_entry(where.store, prefix):
        match = _NAME.match(entry.key[len(prefix) :])
        if match is None:
            continue
        shard, copy = int(match.group(1)), int(match.group(2))
        sha256 = _read(where, entry.key)
        if sha256 and shard in found:
            found[shard].setdefault(copy, sha256)
    return found


def register(where: CheckpointDir, shard: int, copy: int, *, sha256: str) -> bool:
    """Make a copy count. Call it only after its chunks and its index are durable; false when one is registered."""
    record: Mapping[str, object] = {"v": VERSION, "idx_sha256": sha256}
    try:
        where.store.create(where.record("extra/%d.r%d" % (shard, copy)), dump_record(record))
    except Exists:
        return False
    return True


def _read(where: CheckpointDir, key: str) -> str:
    try:
        record = parse_record(where.store.get(key, limit=MAX_RECORD_BYTES), key.rpartition("/")[2])
    except Passing:
        raise
    except StoreError:
        return ""
    sha256 = record.get("idx_sha256")
    return sha256 if isinstance(sha256, str) and _SHA256.match(sha256) else ""
