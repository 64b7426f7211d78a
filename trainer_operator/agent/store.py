"""The checkpoint store: layout, create-if-absent, acks and the one record that decides (CK, QR, DE).

    STORE                          random store id, beside the directories of all Trainers of a namespace
    <trainer>-<uid8>/ckpt/<id>/
      INTENT                       what is being attempted
      c<k>/<aa>/<sha256>           chunks of copy k (module index)
      shards/<s>/r<k>.idx          index of copy k of shard s (module index)
      acks/<s>.r<k>                this copy is durable; names the hash of its index
      DECISION                     commit or abort; the first one wins, for ever
      GC                           tombstone

Every record is created once and never changed: a temporary file, fsync, `link` (which fails when the name exists),
fsync of the directory. `rename` overwrites silently and is never used. So a crash between any two calls leaves a
record that is whole or absent, and two deciders get one outcome (DE1).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

VERSION = 1
COMMIT = "commit"
ABORT = "abort"
MAX_RECORD_BYTES = 4 * 1024 * 1024
_ID = re.compile(r"^(\d{12})-e(\d{1,10})-[0-9a-f]{4}\Z")
_ACK_NAME = re.compile(r"^(\d{1,6})\.r(\d{1,3})\Z")
_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")


class StoreError(Exception):
    """Base of everything that the store refuses; the message is one sentence."""


class BadId(StoreError):
    """A checkpoint id, shard or copy number has not the form it must have."""


class Malformed(StoreError):
    """A record or index is torn, too large, of another version, or names something unsafe (CK5)."""


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


class CheckpointDir:
    """One checkpoint's directory below a Trainer's store.

    Assumptions: `store` is an absolute directory whose content only this Trainer's agents and the operator write.
    """

    def __init__(self, store: str, ckpt: str) -> None:
        step_of(ckpt)
        if not os.path.isabs(store):
            raise BadId("the store must be an absolute directory, not %r" % store[:80])
        self.store = os.path.normpath(store)
        self.ckpt = ckpt
        self.path = os.path.join(self.store, "ckpt", ckpt)

    def record(self, name: str) -> str:
        """Return the path of INTENT, DECISION or GC."""
        return os.path.join(self.path, name)

    def chunk(self, copy: int, sha256: str) -> str:
        """Return the path of a chunk; copies share nothing (CK4)."""
        if not _SHA256.match(sha256):
            raise Malformed("chunk name %r is not a sha256" % str(sha256)[:80])
        return os.path.join(self.path, "c%d" % _number(copy, "copy"), sha256[:2], sha256)

    def index(self, shard: int, copy: int) -> str:
        """Return the path of the index of one copy of a shard."""
        return os.path.join(
            self.path, "shards", str(_number(shard, "shard")), "r%d.idx" % _number(copy, "copy")
        )

    def ack(self, shard: int, copy: int) -> str:
        """Return the path of the ack of one copy of a shard."""
        return os.path.join(self.path, "acks", "%d.r%d" % (_number(shard, "shard"), _number(copy, "copy")))


def create_if_absent(path: str, data: bytes) -> bool:
    """Create a file with this content, or leave what is there; true when this call created it.

    Guarantees: whoever sees the name sees the whole content; on return the name survives a power loss, also when
    another writer was first.
    Raises: OSError when the store cannot be written.
    """
    directory = os.path.dirname(path)
    make_directories(directory)
    temporary = os.path.join(directory, ".tmp-%s-%s" % (os.path.basename(path)[:32], secrets.token_hex(8)))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    try:
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            os.link(temporary, path)
            created = True
        except FileExistsError:
            created = False
    finally:
        _unlink_if_there(temporary)
    sync_directory(directory)
    return created


def make_directories(path: str) -> None:
    """Create a directory and its parents so that they survive a power loss."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_directories(parent)
    try:
        os.mkdir(path, 0o770)
    except FileExistsError:
        return
    sync_directory(parent)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable; stores that cannot do this for directories are left alone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (
            errno.EINVAL,
            errno.ENOTSUP,
        ):  # some network file systems sync names by themselves
            raise
    finally:
        os.close(descriptor)


def read_bounded(path: str, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Raises: Malformed when it is larger or no regular file; OSError, FileNotFoundError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Malformed("%s has more than %d bytes" % (os.path.basename(path), limit))
    return data


# -- records


def write_store_id(store: str) -> str:
    """Create the id of the store if it has none, and return it (CK7)."""
    path = os.path.join(os.path.dirname(os.path.normpath(store)), "STORE")
    create_if_absent(path, _dump({"v": VERSION, "id": secrets.token_hex(16)}))
    return str(_load(path).get("id", ""))


def write_intent(where: CheckpointDir, intent: Mapping[str, Any]) -> bool:
    """Create INTENT; false when it was there."""
    return create_if_absent(where.record("INTENT"), _dump({**intent, "v": VERSION}))


def write_ack(where: CheckpointDir, shard: int, copy: int, *, ack: Ack) -> bool:
    """Create the ack of a copy. Call it only after the chunks and the index are durable (QR3, IV11)."""
    return create_if_absent(where.ack(shard, copy), _dump({"v": VERSION, **ack.__dict__}))


def read_acks(where: CheckpointDir) -> Dict[int, Dict[int, Ack]]:
    """Return the acks by shard and copy; names and records that are not ours are passed over (GC7)."""
    acks: Dict[int, Dict[int, Ack]] = {}
    directory = os.path.join(where.path, "acks")
    for name in _list(directory):
        found = _ACK_NAME.match(name)
        if found is None:
            continue
        try:
            ack = _parse_ack(_load(os.path.join(directory, name)))
        except (Malformed, OSError):
            continue
        acks.setdefault(int(found.group(1)), {})[int(found.group(2))] = ack
    return acks


def read_decision(where: CheckpointDir) -> Optional[Decision]:
    """Return the decision, or None when there is none yet.

    Raises: Malformed when there is one that this version cannot read.
    """
    try:
        raw = read_bounded(where.record("DECISION"), MAX_RECORD_BYTES)
    except FileNotFoundError:
        return None
    return _parse_decision(raw)


def is_collected(where: CheckpointDir) -> bool:
    """Whether the tombstone is there."""
    return os.path.lexists(where.record("GC"))


def committed(store: str) -> List[str]:
    """Return the ids that exist by CK1, newest step first."""
    found = []
    for name in _list(os.path.join(store, "ckpt")):
        if _ID.match(name) is None:
            continue
        where = CheckpointDir(store, name)
        try:
            decision = read_decision(where)
        except (Malformed, OSError):
            continue
        if decision is not None and decision.committed and not is_collected(where):
            found.append(name)
    return sorted(found, reverse=True)


# -- the decision


def majority(copies: int) -> int:
    """Return how many durable copies of each shard a commit needs (QR2)."""
    return copies // 2 + 1


def decide_commit(
    where: CheckpointDir, *, shards: int, copies: int, step: int, epoch: int, reason: str, nonce: str
) -> Decision:
    """Commit if every shard has its majority, unless another decision came first; return the one that holds.

    Guarantees: the evidence is read from the store in this call (DE3); a decision that exists is never changed.
    Raises: QuorumNotReached, with nothing written.
    """
    existing = read_decision(where)
    if existing is not None:
        return existing
    acks = read_acks(where)
    good: Dict[int, Dict[int, Ack]] = {
        shard: {
            copy: ack
            for copy, ack in acks.get(shard, {}).items()
            if copy < copies
            and (ack.step, ack.epoch) == (step, epoch)
            and _index_is(where, shard, copy, ack.idx_sha256)
        }
        for shard in range(shards)
    }
    needed = majority(copies)
    if shards < 1 or any(len(found) < needed for found in good.values()):
        raise QuorumNotReached({str(shard): len(found) for shard, found in good.items()}, needed)
    record = {
        "v": VERSION,
        "outcome": COMMIT,
        "reason": reason,
        "step": step,
        "epoch": epoch,
        "nonce": nonce,
        "shards": {
            str(shard): {"copies": {str(copy): ack.idx_sha256 for copy, ack in sorted(found.items())}}
            for shard, found in good.items()
        },
        "bytes": sum(ack.bytes for found in good.values() for ack in found.values()),
    }
    return _decide(where, record)


def decide_abort(where: CheckpointDir, *, step: int, epoch: int, reason: str, nonce: str) -> Decision:
    """Abort, unless another decision came first; return the one that holds."""
    record = {"v": VERSION, "outcome": ABORT, "reason": reason, "step": step, "epoch": epoch, "nonce": nonce}
    return _decide(where, {**record, "shards": {}, "bytes": 0})


def collect(where: CheckpointDir) -> int:
    """Delete everything but DECISION and the tombstone; return how many files went.

    Guarantees: repeatable from any point; the tombstone is durable before the first deletion (GC4, GC6).
    Raises: NotDecided.
    """
    if not os.path.lexists(where.record("DECISION")):
        raise NotDecided("checkpoint %s has no DECISION, so nothing of it is deleted" % where.ckpt)
    create_if_absent(where.record("GC"), _dump({"v": VERSION}))
    deleted = 0
    for path in list(_files_below(where.path)):
        if os.path.dirname(path) == where.path and os.path.basename(path) in ("DECISION", "GC"):
            continue
        deleted += _unlink_if_there(path)
    for directory, _, _ in sorted(os.walk(where.path), key=lambda entry: -len(entry[0])):
        if directory != where.path:
            try:
                os.rmdir(directory)
            except OSError:  # a late writer is at work; the next pass takes it
                continue
    return deleted


def _decide(where: CheckpointDir, record: Mapping[str, Any]) -> Decision:
    create_if_absent(where.record("DECISION"), _dump(record))
    decision = read_decision(where)  # read back: another decider may have been first (DE2)
    if decision is None:
        raise StoreError("DECISION of %s vanished after it was written; is the store mounted?" % where.ckpt)
    return decision


def _index_is(where: CheckpointDir, shard: int, copy: int, sha256: str) -> bool:
    """Whether the index that an ack names is there with that content (IV1)."""
    try:
        with open(where.index(shard, copy), "rb") as file:
            digest = hashlib.sha256()
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return False
    return digest.hexdigest() == sha256


# -- parsing


def _parse_ack(record: Mapping[str, Any]) -> Ack:
    sha256 = record.get("idx_sha256")
    if not isinstance(sha256, str) or not _SHA256.match(sha256):
        raise Malformed("ack without the hash of its index")
    return Ack(
        sha256,
        _whole(record, "bytes"),
        str(record.get("holder", ""))[:128],
        str(record.get("node", ""))[:256],
        _whole(record, "step"),
        _whole(record, "epoch"),
    )


def _parse_decision(raw: bytes) -> Decision:
    record = parse_record(raw, "DECISION")
    outcome = record.get("outcome")
    if outcome not in (COMMIT, ABORT):
        raise Malformed("DECISION has outcome %r; known are commit and abort" % str(outcome)[:32])
    shards: Dict[int, Dict[int, str]] = {}
    try:
        for shard, entry in record["shards"].items():
            shards[int(shard)] = {int(copy): str(sha256) for copy, sha256 in entry["copies"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed("DECISION has no readable shards") from error
    if not all(_SHA256.match(sha256) for entry in shards.values() for sha256 in entry.values()):
        raise Malformed("DECISION names an index by something that is not a sha256")
    return Decision(
        outcome,
        str(record.get("reason", "")),
        _whole(record, "step"),
        _whole(record, "epoch"),
        str(record.get("nonce", "")),
        shards,
        _whole(record, "bytes"),
        hashlib.sha256(raw).hexdigest(),
    )


def parse_record(raw: bytes, name: str) -> Dict[str, Any]:
    """Parse one JSON object of this version.

    Raises: Malformed.
    """
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed("%s is not JSON; it is torn or foreign" % name) from error
    if not isinstance(record, dict):
        raise Malformed("%s is not a JSON object" % name)
    if record.get("v") != VERSION:
        raise Malformed("%s has version %r; this agent reads %d" % (name, str(record.get("v"))[:16], VERSION))
    return record


def _load(path: str) -> Dict[str, Any]:
    return parse_record(read_bounded(path, MAX_RECORD_BYTES), os.path.basename(path))


def _dump(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _whole(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise Malformed("%s is %r; it must be a whole number, 0 or more" % (name, str(value)[:32]))
    return value


def _number(value: int, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1_000_000:
        raise BadId("%s is %r; it must be a whole number, 0 or more" % (name, str(value)[:32]))
    return value


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _unlink_if_there(path: str) -> int:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return 0
    return 1


def _list(directory: str) -> Tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(directory)))
    except FileNotFoundError:
        return ()


def _files_below(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        for name in names:
            yield os.path.join(folder, name)
