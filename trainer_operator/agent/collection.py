"""Collection: delete what a checkpoint needs and no other one does (GC4 to GC7), or what an aborted one left (CS4).

    tombstone -> who lives -> what they refer to -> delete the rest -> delete indexes, acks and INTENT

Who lives is read from the store and not from the objects: package `census`. One that was counted may be deleted before
we read its index, and whoever builds on it was not counted: we look again. The package `models` has all of this in one
model, with what breaks without each part.

DECISION and tombstone stay, so that a decider that was held up finds them, until they are purged (DE4; `leftovers`). A
crash at any point is made good by the same call with a fresh look (GC6). Chunks that others refer to stay in the folder
of the one that wrote them, and go with the last one that does.
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from trainer_operator.agent import census, index, store
from trainer_operator.agent.backends import Home, Passing, StoreError, every_entry
from trainer_operator.agent.census import Census, Living
from trainer_operator.agent.store import CheckpointDir, Decision

_CHUNK = re.compile(r"^c\d+/[0-9a-f]{2}/[0-9a-f]{64}\Z")
_RECORD = re.compile(r"^(INTENT|PROBE|shards/\d+/r\d+\.idx|(acks|extra)/\d+\.r\d+)\Z")
_INDEX = re.compile(r"^(\d{1,6})/r(\d{1,3})\.idx\Z")
_DELETED_AT_ONCE = 1000


class Collected(NamedTuple):
    """What a collection did."""

    objects: int
    """Objects that were deleted."""
    known: Optional[Census] = None
    """Who was found in the store, if that was looked at."""


def collect(where: CheckpointDir, *, known: Optional[Census] = None, at: int = 0) -> Collected:
    """Delete what only this checkpoint needs; one whose records are purged is no more work.

    `known`: who lives, if it was found out after this and all others that go were buried, and nobody saves any more.
    `at`: when that was ordered, see `store.bury`.

    Guarantees: repeatable from any point; the tombstone of a committed one is durable before anybody looks who lives (GC4,
    GC6), that of an aborted one comes last; no chunk that a checkpoint refers to is deleted (IV3); names that are not
    ours stay (GC7).
    Assumptions: a checkpoint refers only to what a base lists that is pinned until it is decided (GC2, GC3).
    Raises: NotDecided; Malformed when a DECISION cannot be read, since it might refer to anything; StoreError when the
    store does not answer.
    """
    decision = store.read_decision(where)
    if decision is None:
        if all(entry.key == where.record("GC") for entry in every_entry(where.store, where.prefix)):
            return Collected(0)
        raise store.NotDecided("checkpoint %s has no DECISION, so nothing of it is deleted" % where.ckpt)
    if decision.committed:
        store.bury(where, at=at)
    owners = [where, *(where.sibling(ckpt) for ckpt in decision.owners)]
    buried = [owner for owner in owners if owner is where or store.is_collected(owner)]
    doomed = {key for owner in buried for key in _named(owner, _CHUNK)}
    while decision.committed and doomed:  # nobody refers to what was never committed
        known = census.take(where.home) if known is None else known
        if _spare(where.home, {owner.ckpt for owner in buried}, doomed, known.alive):
            break
        known = None
    deleted = _delete(where, sorted(doomed))
    deleted += _delete(where, _named(where, _RECORD))
    if not decision.committed:  # who has no tombstone was not swept to the end
        store.bury(where, at=at)
    for owner in buried:
        where.store.sweep(owner.prefix)
    return Collected(deleted, known)


def is_ours(where: CheckpointDir, key: str) -> bool:
    """Whether a key of a checkpoint's folder has a name that collections delete (GC7)."""
    name = key[len(where.prefix) :]
    return bool(_CHUNK.match(name) or _RECORD.match(name))


def _spare(home: Home, buried: Set[str], doomed: Set[str], alive: Living) -> bool:
    """Take from the doomed what a living checkpoint refers to, one index after the other (GC5).

    In every copy: the prober may be about to complete one that has no index yet, and it looked at its chunks already.
    False when one of them is being deleted by now: somebody may build on it who was undecided when we looked.
    """
    numbers = {int(key.split("/")[-3][1:]) for key in doomed}  # …/c<copy>/<2 digits>/<sha256>
    for ckpt, owners in sorted(alive.items()):
        shared = buried.intersection(owners)
        if not shared:
            continue
        where = CheckpointDir(home, ckpt)
        decision = store.read_decision(where)
        if decision is None:
            raise StoreError("the DECISION of %s, which was there a moment ago, is gone" % ckpt)
        for shard, copy in _copies(where, decision):
            try:
                found = index.parse(where.store.get(where.index(shard, copy), limit=index.MAX_INDEX_BYTES))
            except Passing:
                raise
            except StoreError:
                if store.is_collected(where):
                    return False
                # Its index is damaged. What it may refer to stays: a repair from another copy needs it.
                prefixes = tuple(where.sibling(owner).prefix for owner in shared)
                doomed.difference_update([key for key in doomed if key.startswith(prefixes)])
                continue
            doomed.difference_update(
                where.sibling(chunk.owner).chunk(number, chunk.sha256)
                for chunk in found.chunks()
                if chunk.owner in shared
                for number in numbers
            )
    return True


def _copies(where: CheckpointDir, decision: Decision) -> List[Tuple[int, int]]:
    """Return the copies that DECISION names, and those that were completed later (PB3)."""
    prefix = where.record("shards/")
    listed = [_INDEX.match(entry.key[len(prefix) :]) for entry in every_entry(where.store, prefix)]
    named = {(shard, copy) for shard, copies in decision.shards.items() for copy in copies}
    return sorted(named | {(int(match.group(1)), int(match.group(2))) for match in listed if match})


def _named(where: CheckpointDir, pattern: "re.Pattern[str]") -> Iterator[str]:
    """Yield the keys of a checkpoint whose names have this form."""
    for entry in every_entry(where.store, where.prefix):
        if pattern.match(entry.key[len(where.prefix) :]):
            yield entry.key


def _delete(where: CheckpointDir, keys: Iterable[str]) -> int:
    deleted = 0
    batch: List[str] = []
    for key in keys:
        batch.append(key)
        if len(batch) == _DELETED_AT_ONCE:
            deleted += where.store.delete_many(batch)
            batch = []
    return deleted + (where.store.delete_many(batch) if batch else 0)
