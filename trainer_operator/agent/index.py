"""The index of one copy of one shard: which chunks make which tensor; writing, checking and reading a copy (CK3, CK5).

    line 1   {"v": 1, "ckpt", "step", "epoch", "shard", "copy", "meta"}
    then     {"name", "dtype", "shape", "chunks": [{"sha256", "length"}, ...]}   one line per tensor
    last     {"end": number of tensors}   so that an index cut at a line's end is seen to be torn

Chunks are at most 16 MiB, belong to one tensor and one copy, and carry their hash as name.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from itertools import islice
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from trainer_operator.agent import packed as packed_files
from trainer_operator.agent import store
from trainer_operator.agent.backends import Exists, StoreError, every_entry
from trainer_operator.agent.parallel import WIDTH, each
from trainer_operator.agent.records import VERSION, Malformed, dump_record, parse_record
from trainer_operator.agent.store import CheckpointDir

CHUNK_BYTES = 16 * 1024 * 1024
MAX_INDEX_BYTES = 64 * 1024 * 1024


class NotRestorable(StoreError):
    """A checkpoint cannot be used for a restore; the message says why."""


@dataclass(frozen=True)
class Chunk:
    """A piece of a tensor."""

    sha256: str
    length: int


@dataclass(frozen=True)
class IndexedTensor:
    """A tensor and its pieces in order."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    chunks: Tuple[Chunk, ...]


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


def write_copy(
    where: CheckpointDir, source: packed_files.Packed, *, shard: int, copy: int, epoch: int
) -> Tuple[str, int]:
    """Write the chunks of a copy, then its index; return the hash of the index and the bytes of the tensors.

    Guarantees: on return everything is durable, so that the ack may be written (QR3), and the store shows every chunk
    in full. A copy that was written before with the same content is left as it is; one with other content is refused.
    Raises: StoreError; OSError when the source cannot be read.
    """
    chunks: List[List[Chunk]] = [[] for _ in source.tensors]
    written: Set[str] = set()

    def write(piece: Tuple[int, bytes]) -> Tuple[int, Chunk]:
        number, data = piece
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 not in written:  # the same content twice is one object
            where.store.create(where.chunk(copy, sha256), data)
            written.add(sha256)
        return number, Chunk(sha256, len(data))

    pieces = _pieces(source)
    batch = list(islice(pieces, WIDTH))
    while batch:  # so that WIDTH pieces are in memory, whatever the size of the whole
        for number, chunk in each(write, batch):
            chunks[number].append(chunk)
        batch = list(islice(pieces, WIDTH))
    header = {"ckpt": where.ckpt, "step": source.step, "epoch": epoch, "shard": shard, "copy": copy}
    raw = _dump({"v": VERSION, **header, "meta": dict(source.meta)}, source.tensors, chunks)
    if len(raw) > MAX_INDEX_BYTES:
        raise Malformed(
            "the index of shard %d would have %d bytes; at most 64 MiB are read" % (shard, len(raw))
        )
    _check_stored(where, copy, (chunk for found in chunks for chunk in found))
    try:
        where.store.create(where.index(shard, copy), raw)
    except Exists as error:
        raise StoreError(
            "shard %d copy %d of %s exists with other content" % (shard, copy, where.ckpt)
        ) from error
    return hashlib.sha256(raw).hexdigest(), sum(tensor.length for tensor in source.tensors)


def parse(raw: bytes) -> Index:
    """Parse an index.

    Raises: Malformed when it is torn, unsafe, too large or of another version.
    """
    if len(raw) > MAX_INDEX_BYTES:
        raise Malformed("index of %d bytes; at most 64 MiB are read" % len(raw))
    if not raw.endswith(b"\n"):
        raise Malformed("index is torn: its last line has no end")
    lines = raw[:-1].split(b"\n")
    header = parse_record(lines[0], "index")
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
                tensors.append(_parse_tensor(entry))
        ckpt, meta = str(header["ckpt"]), dict(header["meta"])
        step, epoch, shard, copy = (int(header[name]) for name in ("step", "epoch", "shard", "copy"))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Malformed("index has a line that cannot be read: %s" % error) from error
    store.step_of(ckpt)
    if end != len(tensors):
        raise Malformed("index is torn: %s tensors announced, %d found" % (end, len(tensors)))
    return Index(ckpt, step, epoch, shard, copy, meta, tuple(tensors))


def check_restorable(where: CheckpointDir, shard: Optional[int]) -> store.Decision:
    """Check that a checkpoint exists (CK1) and that one copy of the shard is there with the right sizes.

    Raises: NotRestorable.
    """
    decision = _committed(where)
    if shard is not None:
        problems = []
        for copy, sha256 in sorted(decision.shards.get(shard, {}).items()):
            try:
                index = _read_index(where, shard, copy, sha256=sha256)
                _check_stored(where, copy, (chunk for tensor in index.tensors for chunk in tensor.chunks))
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

    Raises: NotRestorable when no copy does.
    """
    decision = _committed(where)
    problems = []
    for copy, sha256 in sorted(decision.shards.get(shard, {}).items()):
        try:
            index = _read_index(where, shard, copy, sha256=sha256)
            return index, {tensor.name: _read_tensor(where, copy, tensor.chunks) for tensor in index.tensors}
        except StoreError as error:
            problems.append("copy %d: %s" % (copy, error))
    raise NotRestorable(
        "shard %d of %s has no good copy (%s)" % (shard, where.ckpt, "; ".join(problems) or "none committed")
    )


def verify(where: CheckpointDir) -> Tuple[int, List[str]]:
    """Read and hash every committed copy; return the bytes checked and what is bad, by name (PB1)."""
    decision = _committed(where)
    checked, bad = 0, []
    for shard, copies in sorted(decision.shards.items()):
        for copy, sha256 in sorted(copies.items()):
            try:
                index = _read_index(where, shard, copy, sha256=sha256)
                for tensor in index.tensors:
                    checked += len(_read_tensor(where, copy, tensor.chunks))
            except StoreError as error:
                bad.append("shard %d copy %d: %s" % (shard, copy, error))
    return checked, bad


def shard_for(shards: Iterable[int], *, role: str, rank: int) -> int:
    """Return the shard that a member reads: a server its own, a trainer any, since its state is replicated."""
    known = sorted(shards)
    if role == "ps" or not known:
        return rank
    return rank if rank in known else known[rank % len(known)]


def _committed(where: CheckpointDir) -> store.Decision:
    try:
        decision = store.read_decision(where)
    except StoreError as error:
        raise NotRestorable("the DECISION of %s cannot be read: %s" % (where.ckpt, error)) from error
    if decision is None:
        raise NotRestorable("%s has no DECISION%s" % (where.ckpt, _doubt(where)))
    if not decision.committed:
        raise NotRestorable("%s was aborted: %s" % (where.ckpt, decision.reason or "no reason given"))
    if store.is_collected(where):
        raise NotRestorable("%s has a tombstone; its content is being deleted" % where.ckpt)
    return decision


def _doubt(where: CheckpointDir) -> str:
    """Say that the store may be the wrong one, if it looks like that (PB4, CK7)."""
    try:
        known = store.store_id(where.home)
    except StoreError:
        known = ""
    return (
        ""
        if known
        else "; %s has no STORE record: is it the store that was used before?" % where.store.address
    )


def _read_index(where: CheckpointDir, shard: int, copy: int, *, sha256: str) -> Index:
    raw = where.store.get(where.index(shard, copy), limit=MAX_INDEX_BYTES)
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise Malformed("its index does not match the hash in DECISION")
    index = parse(raw)
    if (index.ckpt, index.shard, index.copy) != (where.ckpt, shard, copy):
        raise Malformed("its index belongs to %s shard %d copy %d" % (index.ckpt, index.shard, index.copy))
    return index


def _pieces(source: packed_files.Packed) -> Iterator[Tuple[int, bytes]]:
    """Yield the data in pieces of at most CHUNK_BYTES, each with the number of its tensor."""
    with open(source.path, "rb") as file:
        file.seek(source.data_start)
        for number, tensor in enumerate(source.tensors):
            left = tensor.length
            while left:
                data = file.read(min(CHUNK_BYTES, left))
                if not data:
                    raise Malformed("%s ends inside tensor %s" % (os.path.basename(source.path), tensor.name))
                yield number, data
                left -= len(data)


def _dump(
    header: Mapping[str, Any], tensors: Iterable[packed_files.Tensor], chunks: Iterable[List[Chunk]]
) -> bytes:
    lines = [dump_record(header)]
    for tensor, found in zip(tensors, chunks):
        entry = {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}
        lines.append(dump_record({**entry, "chunks": [chunk.__dict__ for chunk in found]}))
    lines.append(dump_record({"end": len(lines) - 1}))
    return b"".join(lines)


def _check_stored(where: CheckpointDir, copy: int, chunks: Iterable[Chunk]) -> None:
    """Compare chunks with a listing of the copy; what it does not show in full is read, since a listing may be stale.

    Raises: Malformed, NotFound.
    """
    prefix = where.chunks(copy)
    sizes = {entry.key: entry.size for entry in every_entry(where.store, prefix)}
    for chunk in chunks:
        if sizes.get(where.chunk(copy, chunk.sha256)) != chunk.length:
            _read_chunk(where, copy, chunk)


def _read_tensor(where: CheckpointDir, copy: int, chunks: Iterable[Chunk]) -> bytearray:
    return bytearray().join(each(lambda chunk: _read_chunk(where, copy, chunk), chunks))


def _read_chunk(where: CheckpointDir, copy: int, chunk: Chunk) -> bytes:
    piece = where.store.get(where.chunk(copy, chunk.sha256), limit=chunk.length)
    if len(piece) != chunk.length or hashlib.sha256(piece).hexdigest() != chunk.sha256:
        raise Malformed("chunk %s is damaged" % chunk.sha256[:12])
    return piece


def _parse_tensor(entry: Mapping[str, Any]) -> IndexedTensor:
    name = str(entry["name"])
    packed_files.check_name(name)
    chunks = []
    for chunk in entry["chunks"]:
        sha256, length = str(chunk["sha256"]), int(chunk["length"])
        if len(sha256) != 64 or not 0 < length <= 256 * 1024 * 1024:
            raise Malformed("tensor %s has a chunk without a usable hash or length" % name)
        chunks.append(Chunk(sha256, length))
    return IndexedTensor(
        name, str(entry["dtype"]), tuple(int(size) for size in entry["shape"]), tuple(chunks)
    )
