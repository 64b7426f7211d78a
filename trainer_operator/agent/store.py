"""The checkpoints in a store: layout, records, acks and the one record that decides (CK, QR, DE).

    STORE                          random store id, beside the folders of all Trainers of a namespace
    <trainer>-<uid8>/ckpt/<id>/
      INTENT                       what is being attempted
      c<k>/<aa>/<sha256>           chunks of copy k (module index)
      shards/<s>/r<k>.idx          index of copy k of shard s (module index)
      acks/<s>.r<k>                this copy is durable; names the hash of its index
      DECISION                     commit or abort; the first one wins, for ever
      GC                           tombstone: when it was ordered

Every record is created once and never changed, so a crash between any two calls leaves a record that is whole or
absent, and two deciders get one outcome (DE1). How a store creates: package `backends`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from trainer_operator.agent.backends import (
    Exists,
    Home,
    NotFound,
    Passing,
    Store,
    StoreChanged,
    StoreError,
    TooLarge,
    every_entry,
    every_folder,
)
from trainer_operator.agent.layout import LayoutChanged, difference, layout_in
from trainer_operator.agent.parallel import RECORD_WIDTH, each
from trainer_operator.agent.records import VERSION, Malformed, dump_record, parse_record, whole

COMMIT = "commit"
ABORT = "abort"
STORE_ID = "STORE"
MAX_RECORD_BYTES = 4 * 1024 * 1024
MAX_INDEX_BYTES = 64 * 1024 * 1024
_DIFFERING_TOLD = 16
_BLOCK = 4 * 1024 * 1024
_TOMBSTONE_BYTES = 4096
_ID = re.compile(r"^(\d{12})-e(\d{1,10})-[0-9a-f]{4}\Z")
_ACK_NAME = re.compile(r"^(\d{1,6})\.r(\d{1,3})\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


class BadId(StoreError):
    """A checkpoint id, shard or copy number has not the form it must have."""


class QuorumNotReached(StoreError):
    """A shard has fewer durable copies than a commit needs (QR2)."""

    def __init__(self, acks: Mapping[str, int], needed: int) -> None:
        super().__init__("a shard has fewer than %d durable copies: %s" % (needed, dict(acks)))
        self.acks = dict(acks)
        self.needed = needed


class NotDecided(StoreError):
    """The checkpoint has no DECISION, so nothing of it may be deleted."""


@dataclass(frozen=True)
class Ack:
    """One durable copy of one shard (QR3)."""

    idx_sha256: str
    bytes: int
    holder: str
    node: str
    step: int
    epoch: int
    reused: int = 0
    """Of the bytes, those that were in the store before."""
    owners: Tuple[str, ...] = ()
    """Other checkpoints whose chunks it refers to."""
    differing: Tuple[str, ...] = ()
    """Tensors that an audit found changed though they were taken for unchanged (FZ2)."""


@dataclass(frozen=True)
class Decision:
    """The outcome of a checkpoint. `shards` maps shard to copy to hash of its index; empty for an abort."""

    outcome: str
    reason: str
    step: int
    epoch: int
    nonce: str
    shards: Mapping[int, Mapping[int, str]]
    bytes: int
    digest: str
    owners: Tuple[str, ...] = ()
    """Other checkpoints whose chunks its copies refer to; which indexes a collection has to read (GC5)."""
    reused: int = 0
    differing: Tuple[str, ...] = ()
    timeline: int = 0
    """Timeline that it belongs to (CK6)."""
    begun: int = 0
    """Of an abort, when the attempt began, in seconds since 1970 by the leader's clock; 0 if that is not known."""

    @property
    def committed(self) -> bool:
        """Whether the checkpoint exists, but for a tombstone."""
        return self.outcome == COMMIT


def checkpoint_id(step: int, epoch: int, *, suffix: Optional[str] = None) -> str:
    """Make an id that was never used before (CK2)."""
    return "%012d-e%d-%s" % (step, epoch, suffix or secrets.token_hex(2))


def step_of(ckpt: str) -> int:
    """Return the step that an id names.

    Raises: BadId.
    """
    found = _ID.match(ckpt)
    if found is None:
        raise BadId("checkpoint id %r is not <step:012d>-e<epoch>-<4 hex>" % ckpt[:80])
    return int(found.group(1))


def epoch_of(ckpt: str) -> int:
    """Return the membership epoch that an id names.

    Raises: BadId.
    """
    step_of(ckpt)
    return int(ckpt.split("-")[1][1:])


def is_sha256(text: str) -> bool:
    """Whether a text is the name of a chunk."""
    return _SHA256.match(text) is not None


class CheckpointDir:
    """One checkpoint's keys in a Trainer's part of a store.

    Assumptions: only this Trainer's agents write below `home`.
    """

    def __init__(self, home: Home, ckpt: str) -> None:
        step_of(ckpt)
        self.home = home
        self.ckpt = ckpt
        self.prefix = "%s/ckpt/%s/" % (home.folder, ckpt)

    @property
    def store(self) -> Store:
        """The store that it lies in."""
        return self.home.store

    def sibling(self, ckpt: str) -> CheckpointDir:
        """Return another checkpoint of the same Trainer."""
        return self if ckpt == self.ckpt else CheckpointDir(self.home, ckpt)

    def record(self, name: str) -> str:
        """Return the key of INTENT, DECISION or GC."""
        return self.prefix + name

    def chunks(self, copy: int) -> str:
        """Return the prefix of a copy's chunks; copies share nothing (CK4)."""
        return "%sc%d/" % (self.prefix, _number(copy, "copy"))

    def chunk(self, copy: int, sha256: str) -> str:
        """Return the key of a chunk."""
        if not _SHA256.match(sha256):
            raise Malformed("chunk name %r is not a sha256" % str(sha256)[:80])
        return "%s%s/%s" % (self.chunks(copy), sha256[:2], sha256)

    def index(self, shard: int, copy: int) -> str:
        """Return the key of the index of one copy of a shard."""
        return "%sshards/%d/r%d.idx" % (self.prefix, _number(shard, "shard"), _number(copy, "copy"))

    def ack(self, shard: int, copy: int) -> str:
        """Return the key of the ack of one copy of a shard."""
        return "%sacks/%d.r%d" % (self.prefix, _number(shard, "shard"), _number(copy, "copy"))


# -- the store's identity


def identify(home: Home, *, expected: str = "") -> str:
    """Return the id of the store, which gets one when none is expected (CK7).

    Raises: StoreChanged when another one is expected; then nothing was written.
    """
    found = store_id(home)
    if expected and found != expected:
        what = "holds store %s instead of %s" % (found[:8], expected[:8]) if found else "has no STORE record"
        raise StoreChanged(
            "%s %s: another, an older or an empty store answers there; mount the one that was used before"
            % (home.store.address, what)
        )
    if found:
        return found
    _create(home.store, STORE_ID, {"v": VERSION, "id": secrets.token_hex(16)})
    return store_id(home)


def store_id(home: Home) -> str:
    """Return the id of the store; empty when it has none."""
    try:
        return str(_load(home.store, STORE_ID).get("id", ""))
    except NotFound:
        return ""


# -- records


def write_intent(where: CheckpointDir, intent: Mapping[str, Any]) -> bool:
    """Create INTENT; false when there is another one."""
    return _create(where.store, where.record("INTENT"), {**intent, "v": VERSION})


def read_intent(where: CheckpointDir) -> Optional[Dict[str, Any]]:
    """Return what is being attempted; None when that is not ours, or of a newer version (GC7).

    Raises: StoreError when the store does not answer.
    """
    try:
        return _load(where.store, where.record("INTENT"))
    except (Malformed, NotFound, TooLarge):
        return None


def write_ack(where: CheckpointDir, shard: int, copy: int, *, ack: Ack) -> bool:
    """Create the ack of a copy. Call it only after the chunks and the index are durable (QR3, IV11)."""
    return _create(where.store, where.ack(shard, copy), {"v": VERSION, **ack.__dict__})


def read_acks(where: CheckpointDir) -> Dict[int, Dict[int, Ack]]:
    """Return the acks by shard and copy; names and records that are not ours are passed over (GC7).

    Raises: StoreError when the store does not answer.
    """
    prefix = where.record("acks/")
    found = [_ACK_NAME.match(entry.key[len(prefix) :]) for entry in every_entry(where.store, prefix)]
    names = [(int(match.group(1)), int(match.group(2))) for match in found if match is not None]
    acks: Dict[int, Dict[int, Ack]] = {}
    read = each(lambda name: _read_ack(where, *name), names, width=RECORD_WIDTH)
    for (shard, copy), ack in zip(names, read):
        if ack is not None:
            acks.setdefault(shard, {})[copy] = ack
    return acks


def read_decision(where: CheckpointDir) -> Optional[Decision]:
    """Return the decision, or None when there is none yet.

    Raises: Malformed when there is one that this version cannot read; StoreError when the store does not answer.
    """
    try:
        raw = where.store.get(where.record("DECISION"), limit=MAX_RECORD_BYTES)
    except NotFound:
        return None
    except TooLarge as error:
        raise Malformed(str(error)) from error
    return _parse_decision(raw)


def is_collected(where: CheckpointDir) -> bool:
    """Whether the tombstone is there."""
    return buried_at(where) is not None


def buried_at(where: CheckpointDir) -> Optional[int]:
    """Return when the tombstone was ordered, 0 if it does not say so; None when there is none."""
    try:
        raw = where.store.get_range(where.record("GC"), start=0, length=_TOMBSTONE_BYTES)
    except NotFound:
        return None
    try:
        return whole(parse_record(raw, "GC"), "at", default=0)
    except Malformed:  # whoever wrote it, the checkpoint does not exist any more
        return 0


def bury(where: CheckpointDir, *, at: int = 0) -> None:
    """Write the tombstone; from then on the checkpoint does not exist (CK1).

    `at`: when that was ordered, in seconds since 1970 by the leader's clock; the records may go some time after (DE4).
    """
    _create(where.store, where.record("GC"), {"v": VERSION, **({"at": at} if at else {})})


def ids(home: Home) -> List[str]:
    """Return the ids of all checkpoints and attempts, oldest first; names that are not ours are passed over (GC7)."""
    return sorted(name for name in every_folder(home.store, home.folder + "/ckpt/") if _ID.match(name))


def committed(home: Home, *, step: Optional[int] = None) -> List[str]:
    """Return the ids that exist by CK1, of one step or all, newest first; unreadable decisions count for nothing."""
    found = []
    for name in reversed(ids(home)):
        if step is not None and step_of(name) != step:
            continue
        where = CheckpointDir(home, name)
        try:
            decision = read_decision(where)
        except Malformed:
            continue
        if decision is not None and decision.committed and not is_collected(where):
            found.append(name)
    return found


# -- the decision


def majority(copies: int) -> int:
    """Return how many durable copies of each shard a commit needs (QR2)."""
    return copies // 2 + 1


def decide_commit(
    where: CheckpointDir,
    *,
    shards: int,
    copies: int,
    step: int,
    epoch: int,
    reason: str,
    nonce: str,
    timeline: int = 0,
) -> Decision:
    """Commit if every shard has its majority, unless another decision came first; return the one that holds.

    Guarantees: the evidence is read from the store in this call (DE3); a decision that exists is never changed.
    Raises: QuorumNotReached or LayoutChanged, with nothing written; StoreError when the store does not answer.
    """
    existing = read_decision(where)
    if existing is not None:
        return existing
    good = _durable(where, shards=shards, copies=copies, step=step, epoch=epoch)
    by_shard = {shard: good.get(shard, {}) for shard in range(shards)}
    needed = majority(copies)
    if shards < 1 or any(len(found) < needed for found in by_shard.values()):
        raise QuorumNotReached({str(shard): len(found) for shard, found in by_shard.items()}, needed)
    counted = [ack for found in by_shard.values() for ack in found.values()]
    record = {
        "v": VERSION,
        "outcome": COMMIT,
        "reason": reason,
        "step": step,
        "epoch": epoch,
        "nonce": nonce,
        "timeline": timeline,
        "shards": {
            str(shard): {"copies": {str(copy): ack.idx_sha256 for copy, ack in sorted(found.items())}}
            for shard, found in by_shard.items()
        },
        "bytes": sum(ack.bytes for ack in counted),
        "reused": sum(ack.reused for ack in counted),
        "owners": sorted({owner for ack in counted for owner in ack.owners}),
        "differing": sorted({name for ack in counted for name in ack.differing})[:_DIFFERING_TOLD],
    }
    return _decide(where, record)


def decide_abort(
    where: CheckpointDir, *, step: int, epoch: int, reason: str, nonce: str, begun: int = 0
) -> Decision:
    """Abort, unless another decision came first; return the one that holds."""
    record = {"v": VERSION, "outcome": ABORT, "reason": reason, "step": step, "epoch": epoch, "nonce": nonce}
    told = {"begun": begun} if begun else {}
    return _decide(where, {**record, **told, "shards": {}, "bytes": 0})


def abandon(where: CheckpointDir, *, reason: str, begun: int = 0) -> Decision:
    """Abort an attempt that no leader decides, unless another decision came first; return the one that holds."""
    step, epoch = step_of(where.ckpt), epoch_of(where.ckpt)
    nonce = "%s-%s" % (where.ckpt, reason)
    return decide_abort(where, step=step, epoch=epoch, reason=reason, nonce=nonce, begun=begun)


def _decide(where: CheckpointDir, record: Mapping[str, Any]) -> Decision:
    unanswered: Optional[Passing] = None
    try:
        _create(where.store, where.record("DECISION"), record)
    except Passing as error:  # it may have been done all the same
        unanswered = error
    decision = read_decision(where)  # read back: another decider may have been first (DE2)
    if decision is not None:
        return decision
    raise unanswered or StoreError(
        "DECISION of %s vanished after it was written; is the store mounted?" % where.ckpt
    )


def _durable(
    where: CheckpointDir, *, shards: int, copies: int, step: int, epoch: int
) -> Dict[int, Dict[int, Ack]]:
    """Return the acks of this attempt whose index is in the store with the content that they name (IV1).

    Raises: LayoutChanged when the copies of a shard have not the same tensors (QR4).
    """
    acks = [
        (shard, copy, ack)
        for shard, found in sorted(read_acks(where).items())
        for copy, ack in sorted(found.items())
        if shard < shards and copy < copies and (ack.step, ack.epoch) == (step, epoch)
    ]
    good: Dict[int, Dict[int, Ack]] = {}
    layouts: Dict[int, Tuple[int, str]] = {}
    for (shard, copy, ack), first in zip(
        acks, each(lambda named: _first_line(where, *named), acks, width=RECORD_WIDTH)
    ):
        named = tuple(first.get(name) for name in ("ckpt", "step", "epoch", "shard", "copy"))
        if named != (where.ckpt, step, epoch, shard, copy):
            continue
        good.setdefault(shard, {})[copy] = ack
        digest = str(first.get("layout", ""))  # indexes before version 3 have none
        other, expected = layouts.setdefault(shard, (copy, digest))
        if digest and expected and digest != expected:
            _refuse_layout(where, shard, copy, other)
    return good


def _first_line(where: CheckpointDir, shard: int, copy: int, ack: Ack) -> Dict[str, Any]:
    """Return the first line of an index if all of it is as the ack says; nothing if it is not."""
    digest, start, first = hashlib.sha256(), 0, b""
    try:
        while True:
            block = where.store.get_range(where.index(shard, copy), start=start, length=_BLOCK)
            first = first if b"\n" in first else first + block
            digest.update(block)
            start += len(block)
            if len(block) < _BLOCK:
                break
        line: Any = json.loads(first.partition(b"\n")[0])
    except Passing:
        raise
    except (StoreError, ValueError, RecursionError):
        return {}
    return line if digest.hexdigest() == ack.idx_sha256 and isinstance(line, dict) else {}


def _refuse_layout(where: CheckpointDir, shard: int, copy: int, other: int) -> None:
    found, expected = (
        layout_in(where.store.get(where.index(shard, number), limit=MAX_INDEX_BYTES))
        for number in (copy, other)
    )
    problem = difference(found, expected)
    raise LayoutChanged(
        "shard %d: copy %d is not the same state as copy %d: %s" % (shard, copy, other, problem)
    )


# -- parsing


def _read_ack(where: CheckpointDir, shard: int, copy: int) -> Optional[Ack]:
    try:
        return _parse_ack(_load(where.store, where.ack(shard, copy)))
    except Passing:
        raise
    except StoreError:
        return None


def _parse_ack(record: Mapping[str, Any]) -> Ack:
    sha256 = record.get("idx_sha256")
    if not isinstance(sha256, str) or not _SHA256.match(sha256):
        raise Malformed("ack without the hash of its index")
    return Ack(
        sha256,
        whole(record, "bytes"),
        str(record.get("holder", ""))[:128],
        str(record.get("node", ""))[:256],
        whole(record, "step"),
        whole(record, "epoch"),
        whole(record, "reused", default=0),
        _ids(record),
        tuple(str(name)[:1024] for name in _listed(record, "differing")),
    )


def _parse_decision(raw: bytes) -> Decision:
    record = parse_record(raw, "DECISION")
    outcome = record.get("outcome")
    if outcome not in (COMMIT, ABORT):
        raise Malformed("DECISION has outcome %r; known are commit and abort" % str(outcome)[:32])
    shards: Dict[int, Dict[int, str]] = {}
    try:
        for shard, entry in record["shards"].items():
            copies = entry["copies"].items()
            shards[_number(int(shard), "shard")] = {
                _number(int(copy), "copy"): str(sha256) for copy, sha256 in copies
            }
    except (KeyError, TypeError, ValueError, AttributeError, BadId) as error:
        raise Malformed("DECISION has no readable shards") from error
    if not all(_SHA256.match(sha256) for entry in shards.values() for sha256 in entry.values()):
        raise Malformed("DECISION names an index by something that is not a sha256")
    return Decision(
        outcome,
        str(record.get("reason", "")),
        whole(record, "step"),
        whole(record, "epoch"),
        str(record.get("nonce", "")),
        shards,
        whole(record, "bytes"),
        hashlib.sha256(raw).hexdigest(),
        _ids(record),
        whole(record, "reused", default=0),
        tuple(str(name)[:1024] for name in _listed(record, "differing")),
        whole(record, "timeline", default=0),
        whole(record, "begun", default=0),
    )


def _ids(record: Mapping[str, Any]) -> Tuple[str, ...]:
    owners = tuple(str(owner) for owner in _listed(record, "owners"))
    try:
        for owner in owners:
            step_of(owner)
    except BadId as error:
        raise Malformed("DECISION names an owner that cannot be one: %s" % error) from error
    return owners


def _listed(record: Mapping[str, Any], name: str) -> List[Any]:
    found = record.get(name, [])
    if not isinstance(found, list):
        raise Malformed("%s is no list" % name)
    return found


def _create(store: Store, key: str, record: Mapping[str, Any]) -> bool:
    """Create a record; false when another one is there."""
    try:
        store.create(key, dump_record(record))
    except Exists:
        return False
    return True


def _load(store: Store, key: str) -> Dict[str, Any]:
    return parse_record(store.get(key, limit=MAX_RECORD_BYTES), key.rpartition("/")[2])


def _number(value: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1_000_000:
        raise BadId("%s is %r; it must be a whole number, 0 or more" % (name, str(value)[:32]))
    return value
