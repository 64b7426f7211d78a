"""A copy of a shard on its way into the store: what its base holds already is referred to, the rest is written (FZ).

    tensor                                what is done
    taken for unchanged, without data     the base's references are copied: nothing is read, hashed or written (FZ1)
    taken for unchanged, with data        hashed, and compared with the base: the audit (FZ2)
    any other                             hashed; what the base lists is referred to, chunks of large tensors and small
                                          tensors as a whole; the rest is written

The base is a committed checkpoint that is pinned until this one is decided, so nothing of it is deleted meanwhile.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Tuple

from trainer_operator.agent import index, layout
from trainer_operator.agent.backends import Content as Data
from trainer_operator.agent.backends import Exists, Passing, StoreError
from trainer_operator.agent.cutting import PACKED_BELOW, Cutter, Piece, chunk_bytes
from trainer_operator.agent.index import Chunk, Index, IndexedTensor, Part
from trainer_operator.agent.packed import Packed, Tensor
from trainer_operator.agent.parallel import each
from trainer_operator.agent.pieces import PieceReader
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import Ack, CheckpointDir

Content = Tuple[Tuple[Chunk, ...], Optional[Part]]
"""The chunks of a tensor, or the chunk that it is a part of."""


class BaseUnusable(StoreError):
    """Tensors were taken for unchanged, but the checkpoint that holds them cannot be read."""


@dataclass(frozen=True)
class Written:
    """A durable copy."""

    sha256: str
    """Hash of its index."""
    bytes: int
    """Of all its tensors."""
    reused: int
    """Of these, what was not written because it was there."""
    owners: Tuple[str, ...]
    """Other checkpoints whose chunks it refers to."""
    differing: Tuple[str, ...]
    """Tensors that were taken for unchanged and are not (FZ2)."""

    def ack(self, holder: str, node: str, *, step: int, epoch: int) -> Ack:
        """Return what a holder says of it."""
        return Ack(
            self.sha256, self.bytes, holder, node, step, epoch, self.reused, self.owners, self.differing
        )


def write_copy(
    where: CheckpointDir,
    source: Packed,
    *,
    shard: int,
    copy: int,
    epoch: int,
    base: Optional[CheckpointDir] = None,
    packed_below: int = PACKED_BELOW,
) -> Written:
    """Write what the base lacks of a copy, then its index.

    Guarantees: on return everything is durable, so that the ack may be written (QR3), and the store shows every chunk
    in full. A copy that was written before with the same content is left as it is; one with other content is refused.
    Raises: BaseUnusable; StoreError; OSError when the source cannot be read.
    """
    kept = _Kept(base, shard, copy)
    size = chunk_bytes([kept.length_of(tensor) for tensor in source.tensors], packed_below=packed_below)
    kept.require(size)
    chunks: List[List[Chunk]] = [[] for _ in source.tensors]
    parts: Dict[int, Part] = {}
    own: Dict[str, Chunk] = {}

    def write(data: Data) -> Chunk:
        sha256 = hashlib.sha256(data).hexdigest()
        known = kept.by_hash.get(sha256) or own.get(sha256)  # the same content twice is one object
        if known is not None:
            return known
        where.store.create(where.chunk(copy, sha256), data)
        own[sha256] = Chunk(sha256, len(data), where.ckpt)
        return own[sha256]

    def put(number: int, found: Tuple[Chunk, ...], part: Optional[Part]) -> None:
        chunks[number].extend(found)
        if part is not None:
            parts[number] = part

    def refer(number: int, sha256: str) -> bool:
        content = kept.small.get(sha256)
        if content is not None:
            put(number, *content)
        return content is not None

    for number, tensor in enumerate(source.tensors):
        if tensor.unchanged and not tensor.length:
            put(number, *kept.content_of(tensor, write))
    cutter = Cutter(source, size=size, packed_below=packed_below, is_known=refer)
    with contextlib.closing(PieceReader(source, longest=size)) as reader:

        def stored(piece: Piece) -> Tuple[Tuple[Tuple[int, Optional[Part]], ...], Chunk]:
            with reader.content(piece) as content:
                return piece.tensors, write(content)

        # WIDTH pieces are in memory, whatever the size of the whole.
        for held, chunk in each(stored, cutter.pieces()):
            for number, part in held:
                put(number, (chunk,), part)
    for number, other in cutter.same.items():
        put(number, tuple(chunks[other]), parts.get(other))
    tensors = [
        IndexedTensor(tensor.name, tensor.dtype, tensor.shape, tuple(chunks[number]), parts.get(number))
        for number, tensor in enumerate(source.tensors)
    ]
    listed = list(dict.fromkeys(chunk for found in chunks for chunk in found))
    header = {"ckpt": where.ckpt, "step": source.step, "epoch": epoch, "shard": shard, "copy": copy}
    header["chunk"] = size
    digest = layout.digest(layout.layout_of(tensors))
    raw = index.dump({**header, "layout": digest, "meta": dict(source.meta)}, tensors)
    if len(raw) > index.MAX_INDEX_BYTES:
        raise Malformed(
            "the index of shard %d would have %d bytes; at most 64 MiB are read" % (shard, len(raw))
        )
    index.check_stored(where, copy, listed)
    try:
        where.store.create(where.index(shard, copy), raw)
    except Exists as error:
        raise StoreError(
            "shard %d copy %d of %s exists with other content" % (shard, copy, where.ckpt)
        ) from error
    total = sum(tensor.length for tensor in tensors)
    return Written(
        hashlib.sha256(raw).hexdigest(),
        total,
        max(0, total - sum(chunk.length for chunk in own.values())),
        tuple(sorted({chunk.owner for chunk in listed} - {where.ckpt})),
        tuple(t.name for t, found in zip(source.tensors, tensors) if t.unchanged and kept.differs(found)),
    )


class _Kept:
    """What the base holds of a shard: tensors by name, and by hash the chunks and small tensors of this copy."""

    def __init__(self, base: Optional[CheckpointDir], shard: int, copy: int) -> None:
        self._base, self._shard, self._copy = base, shard, copy
        self._tensors: Mapping[str, IndexedTensor] = {}
        self._found_in = copy
        self.by_hash: Mapping[str, Chunk] = {}
        self.small: Mapping[str, Content] = {}
        self._size = 0
        self._problem = "no base was named"
        if base is not None:
            self._open(base)

    def length_of(self, tensor: Tensor) -> int:
        """Return the length of a tensor, of one without data from the base; 0 when that has none."""
        found = self._tensors.get(tensor.name) if tensor.unchanged and not tensor.length else None
        return found.length if found is not None else tensor.length

    def require(self, size: int) -> None:
        """Refer to nothing of a base that was cut by another size (FZ4)."""
        if self._size not in (0, size):
            self._problem = "it is cut into pieces of %d bytes, not %d" % (self._size, size)
            self._tensors, self.by_hash, self.small = {}, {}, {}

    def content_of(self, tensor: Tensor, write: Callable[[bytes], Chunk]) -> Content:
        """Return the content of a tensor that did not change since.

        Raises: BaseUnusable.
        """
        found = self._tensors.get(tensor.name)
        if self._base is None or found is None or (found.dtype, found.shape) != (tensor.dtype, tensor.shape):
            reason = self._problem or "it has no such tensor of that type and shape"
            raise BaseUnusable(
                "tensor %s is unchanged, but its base cannot be used: %s" % (tensor.name, reason)
            )
        if self._found_in == self._copy:
            return found.chunks, found.part
        # This copy failed then. Copies share nothing (CK4), so the content is written once more from another one.
        base, copy = self._base, self._found_in
        return tuple(write(index.read_chunk(base, copy, chunk)) for chunk in found.chunks), found.part

    def differs(self, tensor: IndexedTensor) -> bool:
        """Whether the base holds another content under that name."""
        found = self._tensors.get(tensor.name)
        return found is not None and found.content != tensor.content

    def _open(self, base: CheckpointDir) -> None:
        try:
            copies = index.require_committed(base).shards.get(self._shard, {})
        except index.NotRestorable as error:
            self._problem = str(error)
            return
        self._problem = "%s has no copy of shard %d" % (base.ckpt, self._shard)
        for copy in sorted(copies, key=lambda number: (number != self._copy, number)):
            try:
                found = index.read_index(base, self._shard, copy, sha256=copies[copy])
            except Passing:
                raise
            except StoreError as error:
                self._problem = "%s: %s" % (base.ckpt, error)
                continue
            self._found_in, self._problem = copy, ""
            self._tensors, self._size = {tensor.name: tensor for tensor in found.tensors}, found.chunk_bytes
            if copy == self._copy:
                self.by_hash = {chunk.sha256: chunk for chunk in found.chunks()}
                self.small = _small(found)
            return


def _small(found: Index) -> Dict[str, Content]:
    """Return the tensors that lie in one chunk, by the hash of their content."""
    return {t.content[0]: (t.chunks, t.part) for t in found.tensors if len(t.content) == 1}
