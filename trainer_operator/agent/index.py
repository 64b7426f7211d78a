"""The index of one copy of one shard: which chunks make which tensor, and where they lie; reading a copy (CK3, CK5).

    line 1   {"v": 3, "ckpt", "step", "epoch", "shard", "copy", "chunk", "layout", "meta"}
    then     {"name", "dtype", "shape", "refs": [["<owner>/<sha256>", length], ...]
             [, "part": [start, length, sha256]]}   one line per tensor
    last     {"end": number of tensors}   so that an index cut at a line's end is seen to be torn

The owner is the id of the checkpoint that wrote the chunk: this one, or an earlier one whose content did not change
since. The chunk's key is that checkpoint's `c<copy>/<aa>/<sha256>`, with the copy number of this index, so copies share
nothing (CK4). A small tensor shares its one chunk with others: its part says where it begins there, and has the hash
of its own content. `chunk` is the size that the copy was cut by (module cutting). The layout is a hash of the
tensors' names, types and shapes, the same in all copies of a shard (QR4).

Older versions are still read: 2 has no layout and no parts, and 1 has `"chunks": [{"sha256", "length"}, ...]`, all of
its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from trainer_operator.agent import copies, store
from trainer_operator.agent import packed as packed_files
from trainer_operator.agent.backends import Passing, StoreChanged, StoreError, every_entry
from trainer_operator.agent.layout import digest, layout_of
from trainer_operator.agent.parallel import each
from trainer_operator.agent.records import Malformed, dump_record, parse_record
from trainer_operator.agent.store import CheckpointDir

INDEX_VERSION = 3
CHUNK_BYTES = 16 * 1024 * 1024
MAX_CHUNK_BYTES = 256 * 1024 * 1024
MAX_INDEX_BYTES = store.MAX_INDEX_BYTES


class NotRestorable(StoreError):
    """A checkpoint cannot be used for a restore; the message says why."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a tensor, and the checkpoint that wrote it."""

    sha256: str
    length: int
    owner: str


@dataclass(frozen=True)
class Part:
    """Where a small tensor lies in a chunk that holds several, and the hash of its own content."""

    start: int
    length: int
    sha256: str


@dataclass(frozen=True)
class IndexedTensor:
    """A tensor and its pieces in order; or the one piece that it is a part of."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    chunks: Tuple[Chunk, ...]
    part: Optional[Part] = None

    @property
    def length(self) -> int:
        """Bytes of its content."""
        return self.part.length if self.part is not None else sum(chunk.length for chunk in self.chunks)

    @property
    def content(self) -> Tuple[str, ...]:
        """Hashes of its content, which do not tell what else a chunk holds."""
        return (self.part.sha256,) if self.part is not None else tuple(c.sha256 for c in self.chunks)


@dataclass(frozen=True)
class Index:
    """One parsed index."""

    ckpt: str
    step: int
    epoch: int
    shard: int
    copy: int
    meta: Mapping[str, Any]
    tensors: Tuple[IndexedTensor, ...]
    chunk_bytes: int = CHUNK_BYTES
    """What it was cut by."""

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks, each once, in the order of the tensors."""
        return iter(dict.fromkeys(chunk for tensor in self.tensors for chunk in tensor.chunks))


def parse(raw: bytes) -> Index:
    """Parse an index.

    Raises: Malformed when it is torn, unsafe, too large or of another version.
    """
    if len(raw) > MAX_INDEX_BYTES:
        raise Malformed("index of %d bytes; at most 64 MiB are read" % len(raw))
    if not raw.endswith(b"\n"):
        raise Malformed("index is torn: its last line has no end")
    lines = raw[:-1].split(b"\n")
    header = parse_record(lines[0], "index", newest=INDEX_VERSION)
    ckpt = str(header.get("ckpt"))
    store.step_of(ckpt)
    tensors: List[IndexedTensor] = []
    end: Optional[int] = None
    try:
        for line in lines[1:]:
            if end is not None:
                raise Malformed("index goes on after its end")
            entry: Dict[str, Any] = json.loads(line)
            if "end" in entry:
                end = int(entry["end"])
            else:
                tensors.append(_parse_tensor(entry, ckpt))
        meta = dict(header["meta"])
        step, epoch, shard, copy = (int(header[name]) for name in ("step", "epoch", "shard", "copy"))
        chunk_bytes = int(header.get("chunk", CHUNK_BYTES))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Malformed("index has a line that cannot be read: %s" % error) from error
    if end != len(tensors):
        raise Malformed("index is torn: %s tensors announced, %d found" % (end, len(tensors)))
    _check_layout(tensors, header.get("layout"))
    return Index(ckpt, step, epoch, shard, copy, meta, tuple(tensors), chunk_bytes)


def check_restorable(where: CheckpointDir, shard: Optional[int]) -> store.Decision:
    """Check that a checkpoint exists (CK1) and that one copy of the shard is there with the right sizes.

    Raises: NotRestorable; StoreChanged, NoRights, Passing: the store is at fault, which says nothing of the checkpoint.
    """
    decision = require_committed(where)
    if shard is not None:
        problems = []
        for copy, sha256 in _copies(where, decision, shard):
            try:
                index = read_index(where, shard, copy, sha256=sha256)
                check_stored(where, copy, index.chunks())
            except Passing:
                raise
            except StoreError as error:
                problems.append("copy %d: %s" % (copy, error))
            else:
                return decision
        raise NotRestorable(
            "shard %d of %s has no usable copy (%s)"
            % (shard, where.ckpt, "; ".join(problems) or "none committed")
        )
    return decision


def read_shard(where: CheckpointDir, shard: int) -> Tuple[Index, Dict[str, bytearray]]:
    """Read one shard from the first copy whose every chunk matches its hash.

    Raises: NotRestorable when no copy does; StoreChanged, NoRights, Passing when the store is at fault.
    """
    decision = require_committed(where)
    problems = []
    for copy, sha256 in _copies(where, decision, shard):
        try:
            index = read_index(where, shard, copy, sha256=sha256)
            return index, _read_tensors(where, index)
        except Passing:
            raise
        except StoreError as error:
            problems.append("copy %d: %s" % (copy, error))
    raise NotRestorable(
        "shard %d of %s has no good copy (%s)" % (shard, where.ckpt, "; ".join(problems) or "none committed")
    )


def verify(where: CheckpointDir) -> Tuple[int, List[str]]:
    """Read and hash every committed copy; return the bytes checked and what is bad, by name (PB1)."""
    decision = require_committed(where)
    checked, bad = 0, []
    for shard, named in sorted(decision.shards.items()):
        for copy, sha256 in sorted(named.items()):
            try:
                index = read_index(where, shard, copy, sha256=sha256)
                checked += sum(map(len, _read_tensors(where, index).values()))
            except StoreError as error:
                bad.append("shard %d copy %d: %s" % (shard, copy, error))
    return checked, bad


def shard_for(shards: Iterable[int], *, role: str, rank: int) -> int:
    """Return the shard that a member reads: a server its own, a trainer any, since its state is replicated."""
    known = sorted(shards)
    if role == "ps" or not known:
        return rank
    return rank if rank in known else known[rank % len(known)]


def require_committed(where: CheckpointDir) -> store.Decision:
    """Return the decision of a checkpoint that exists (CK1).

    Raises: NotRestorable; StoreChanged when the store has no id, so that it is another one (PB4, CK7); NoRights, Passing.
    """
    try:
        decision = store.read_decision(where)
    except Malformed as error:
        raise NotRestorable("the DECISION of %s cannot be read: %s" % (where.ckpt, error)) from error
    if decision is None:
        if not store.store_id(where.home):
            raise StoreChanged(
                "%s has no DECISION, and %s no STORE record: is it the store that was used before?"
                % (where.ckpt, where.store.address)
            )
        raise NotRestorable("%s has no DECISION" % where.ckpt)
    if not decision.committed:
        raise NotRestorable("%s was aborted: %s" % (where.ckpt, decision.reason or "no reason given"))
    if store.is_collected(where):
        raise NotRestorable("%s has a tombstone; its content is being deleted" % where.ckpt)
    return decision


def _copies(where: CheckpointDir, decision: store.Decision, shard: int) -> Iterator[Tuple[int, str]]:
    """Yield the copies of a shard: first those that DECISION names, then those completed later (PB3)."""
    named = decision.shards.get(shard, {})
    yield from sorted(named.items())
    for copy, sha256 in sorted(copies.known(where, decision).get(shard, {}).items()):
        if copy not in named:
            yield copy, sha256


def read_index(where: CheckpointDir, shard: int, copy: int, *, sha256: str) -> Index:
    """Read the index that DECISION names by its hash.

    Raises: Malformed, NotFound.
    """
    raw = where.store.get(where.index(shard, copy), limit=MAX_INDEX_BYTES)
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise Malformed("its index does not match the hash in DECISION")
    index = parse(raw)
    if (index.ckpt, index.shard, index.copy) != (where.ckpt, shard, copy):
        raise Malformed("its index belongs to %s shard %d copy %d" % (index.ckpt, index.shard, index.copy))
    return index


def dump(header: Mapping[str, Any], tensors: Iterable[IndexedTensor]) -> bytes:
    """Write an index."""
    lines = [dump_record({**header, "v": INDEX_VERSION})]
    for tensor in tensors:
        refs = [["%s/%s" % (chunk.owner, chunk.sha256), chunk.length] for chunk in tensor.chunks]
        entry = {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape), "refs": refs}
        if tensor.part is not None:
            entry["part"] = [tensor.part.start, tensor.part.length, tensor.part.sha256]
        lines.append(dump_record(entry))
    lines.append(dump_record({"end": len(lines) - 1}))
    return b"".join(lines)


def check_stored(where: CheckpointDir, copy: int, chunks: Iterable[Chunk]) -> None:
    """Compare chunks with a listing of where they lie; what it does not show in full is read: it may be stale.

    Raises: Malformed, NotFound.
    """
    by_owner: Dict[str, List[Chunk]] = {}
    for chunk in chunks:
        by_owner.setdefault(chunk.owner, []).append(chunk)
    for owner, owned in by_owner.items():
        place = where.sibling(owner)
        sizes = {entry.key: entry.size for entry in every_entry(where.store, place.chunks(copy))}
        for chunk in owned:
            if sizes.get(place.chunk(copy, chunk.sha256)) != chunk.length:
                read_chunk(where, copy, chunk)


def read_chunk(where: CheckpointDir, copy: int, chunk: Chunk) -> bytes:
    """Read a chunk from where it lies.

    Raises: Malformed when it does not match its hash; NotFound.
    """
    piece = where.store.get(where.sibling(chunk.owner).chunk(copy, chunk.sha256), limit=chunk.length)
    if len(piece) != chunk.length or hashlib.sha256(piece).hexdigest() != chunk.sha256:
        raise Malformed("chunk %s is damaged" % chunk.sha256[:12])
    return piece


def _read_tensors(where: CheckpointDir, index: Index) -> Dict[str, bytearray]:
    """Read a copy, several chunks at a time and each to where it belongs, so that all is in memory once."""
    found: Dict[str, bytearray] = {}
    places: Dict[Chunk, List[Tuple[memoryview, int]]] = {}
    for tensor in index.tensors:
        data = found[tensor.name] = bytearray(tensor.length)
        view, start = memoryview(data), 0
        if tensor.part is not None:
            places.setdefault(tensor.chunks[0], []).append((view, tensor.part.start))
            continue
        for chunk in tensor.chunks:
            places.setdefault(chunk, []).append((view[start : start + chunk.length], 0))
            start += chunk.length

    def fill(chunk: Chunk) -> None:
        content = memoryview(read_chunk(where, index.copy, chunk))
        for view, start in places[chunk]:
            view[:] = content[start : start + len(view)]

    each(fill, places)
    return found


def _check_layout(tensors: List[IndexedTensor], expected: Any) -> None:
    layout = layout_of(tensors)
    if len(layout) != len(tensors):
        raise Malformed("index names a tensor twice")
    if expected is not None and expected != digest(layout):
        raise Malformed("index lists other tensors than its first line says")


def _parse_tensor(entry: Mapping[str, Any], ckpt: str) -> IndexedTensor:
    name = str(entry["name"])
    packed_files.check_name(name)
    shape = tuple(int(size) for size in entry["shape"])
    if "refs" in entry:
        named = [(*str(ref).partition("/")[::2], int(length)) for ref, length in entry["refs"]]
    else:
        named = [(ckpt, str(old["sha256"]), int(old["length"])) for old in entry["chunks"]]
    chunks = tuple(_parse_chunk(ckpt, *parts) for parts in named)
    return IndexedTensor(name, str(entry["dtype"]), shape, chunks, _parse_part(entry.get("part"), chunks))


def _parse_part(entry: Any, chunks: Tuple[Chunk, ...]) -> Optional[Part]:
    if entry is None:
        return None
    start, length, sha256 = entry
    part = Part(int(start), int(length), str(sha256))
    if len(chunks) != 1 or not 0 <= part.start < part.start + part.length <= chunks[0].length:
        raise Malformed("a part of a chunk lies outside of it")
    if not store.is_sha256(part.sha256):
        raise Malformed("part %r has no usable hash" % part.sha256[:80])
    return part


def _parse_chunk(ckpt: str, owner: str, sha256: str, length: int) -> Chunk:
    if owner != ckpt and store.step_of(owner) >= store.step_of(ckpt):
        raise Malformed("chunk %s is of %s, which is not older than %s" % (sha256[:12], owner, ckpt))
    if not store.is_sha256(sha256) or not 0 < length <= MAX_CHUNK_BYTES:
        raise Malformed("chunk %r has no usable hash or length" % sha256[:80])
    return Chunk(sha256, length, owner)
