"""Collection: delete what a checkpoint needs and no other one does (GC4 to GC7).

    tombstone -> who lives -> what they refer to -> delete the rest -> delete indexes, acks and INTENT

Who lives is read from the store and not from the objects: whoever has a DECISION "commit" and no tombstone. The store
has no snapshots, and while we look a checkpoint may be committed and its base be marked. Seen in the wrong order, we
would count neither, though both share a chunk. So we look until a whole look finds nothing new: whoever was undecided
in the last one and was committed later still had its base pinned, and that base was counted before. An attempt that is
undecided though its base does not live has lost its object, and with it the pin: it is aborted before anything goes.
One that was counted may be deleted before we read its index, and whoever builds on it was not counted: we look again.
The package `models` has all of this in one model, with what breaks without each part.

DECISION and tombstone stay, so that a decider that was held up finds them (DE4). A crash at any point is made good by
the same call with a fresh look (GC6). Chunks that others refer to stay in the folder of the one that wrote them, and
go with the last one that does.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from trainer_operator.agent import index, store
from trainer_operator.agent.backends import Home, NotFound, Passing, StoreError, every_entry
from trainer_operator.agent.parallel import RECORD_WIDTH, each
from trainer_operator.agent.records import Malformed, parse_record
from trainer_operator.agent.store import CheckpointDir, Decision

_CHUNK = re.compile(r"^c\d+/[0-9a-f]{2}/[0-9a-f]{64}\Z")
_RECORD = re.compile(r"^(INTENT|PROBE|shards/\d+/r\d+\.idx|(acks|extra)/\d+\.r\d+)\Z")
_INDEX = re.compile(r"^(\d{1,6})/r(\d{1,3})\.idx\Z")
_DELETED_AT_ONCE = 1000
Living = Mapping[str, Tuple[str, ...]]
"""By checkpoint that exists, those whose data it refers to."""
_UNDECIDED, _GONE = object(), object()


def collect(where: CheckpointDir, *, alive: Optional[Living] = None) -> int:
    """Delete what only this checkpoint needs; return how many objects went.

    `alive`: who lives, if it was found out after this and all others that go were buried, and nobody saves any more.

    Guarantees: repeatable from any point; the tombstone is durable before anybody looks who lives (GC4, GC6); no chunk
    that a checkpoint refers to is deleted (IV3); names that are not ours stay (GC7).
    Assumptions: a checkpoint refers only to what a base lists that is pinned until it is decided (GC2, GC3).
    Raises: NotDecided; Malformed when a DECISION cannot be read, since it might refer to anything; StoreError when the
    store does not answer.
    """
    decision = store.read_decision(where)
    if decision is None:
        raise store.NotDecided("checkpoint %s has no DECISION, so nothing of it is deleted" % where.ckpt)
    store.bury(where)
    owners = [where, *(where.sibling(ckpt) for ckpt in decision.owners)]
    buried = [owner for owner in owners if owner is where or store.is_collected(owner)]
    doomed = {key for owner in buried for key in _named(owner, _CHUNK)}
    while decision.committed and doomed:  # nobody refers to what was never committed
        alive = living(where.home) if alive is None else alive
        if _spare(where.home, {owner.ckpt for owner in buried}, doomed, alive):
            break
        alive = None
    deleted = _delete(where, sorted(doomed))
    deleted += _delete(where, _named(where, _RECORD))
    for owner in buried:
        where.store.sweep(owner.prefix)
    return deleted


def living(home: Home) -> Living:
    """Return the checkpoints that exist and whom they rely on, such that nobody who is relied on is missed.

    No more of 10,000 decisions is kept in memory (KT7).

    Raises: Malformed when a DECISION cannot be read; StoreError when the store does not answer.
    """
    alive: Dict[str, Tuple[str, ...]] = {}
    gone: Set[str] = set()
    undecided: Optional[Set[str]] = None
    while True:
        names = [name for name in store.ids(home) if name not in alive and name not in gone]
        seen: Set[str] = set()
        for name, found in zip(names, each(lambda name: _look(home, name), names, width=RECORD_WIDTH)):
            if found is _UNDECIDED:
                seen.add(name)
            elif isinstance(found, tuple):
                alive[name] = found
            else:
                gone.add(name)
        if seen == undecided and len(seen) == len(names):
            if not [name for name in sorted(seen) if _abort_orphan(CheckpointDir(home, name), alive)]:
                return alive
            seen = set()
        undecided = seen


def _look(home: Home, ckpt: str) -> object:
    where = CheckpointDir(home, ckpt)
    decision = store.read_decision(where)
    if decision is None:
        return _UNDECIDED
    return decision.owners if decision.committed and not store.is_collected(where) else _GONE


def _abort_orphan(where: CheckpointDir, alive: Living) -> bool:
    """Abort an attempt whose base does not live, unless it was committed first; whether there was anything to decide."""
    try:
        intent = parse_record(where.store.get(where.record("INTENT"), limit=store.MAX_RECORD_BYTES), "INTENT")
    except (Malformed, NotFound):
        return False  # not ours, or of a newer version
    base = intent.get("base")
    if not base or base in alive:
        return False
    step, epoch = store.step_of(where.ckpt), int(where.ckpt.split("-")[1][1:])
    store.decide_abort(where, step=step, epoch=epoch, reason="BaseLost", nonce="%s-orphan" % where.ckpt)
    return True


def _spare(home: Home, buried: Set[str], doomed: Set[str], alive: Living) -> bool:
    """Take from the doomed what a living checkpoint refers to, one index after the other (GC5).

    False when one of them is being deleted by now: somebody may build on it who was undecided when we looked.
    """
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
                where.sibling(chunk.owner).chunk(copy, chunk.sha256) for chunk in found.chunks()
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
