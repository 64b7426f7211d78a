"""A copy of a shard on its way into the store: what its base holds already is referred to, the rest is written (FZ).

    tensor                                what is done
    taken for unchanged, without data     the base's references are copied: nothing is read, hashed or written (FZ1)
    taken for unchanged, with data        hashed, and compared with the base: the audit (FZ2)
    any other                             hashed; chunks that the base lists are referred to, the others written

The base is a committed checkpoint that is pinned until this one is decided, so nothing of it is deleted meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from itertools import islice
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from trainer_operator.agent import index, layout
from trainer_operator.agent.backends import Exists, Passing, StoreError
from trainer_operator.agent.index import Chunk, IndexedTensor
from trainer_operator.agent.packed import Packed, Tensor
from trainer_operator.agent.parallel import WIDTH, each
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import Ack, CheckpointDir

CHUNK_BYTES = 16 * 1024 * 1024


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
) -> Written:
    """Write what the base lacks of a copy, then its index.

    Guarantees: on return everything is durable, so that the ack may be written (QR3), and the store shows every chunk
    in full. A copy that was written before with the same content is left as it is; one with other content is refused.
    Raises: BaseUnusable; StoreError; OSError when the source cannot be read.
    """
    kept = _Kept(base, shard, copy)
    chunks: List[List[Chunk]] = [[] for _ in source.tensors]
    own: Dict[str, Chunk] = {}

    def write(data: bytes) -> Chunk:
        sha256 = hashlib.sha256(data).hexdigest()
        known = kept.by_hash.get(sha256) or own.get(sha256)  # the same content twice is one object
        if known is not None:
            return known
        where.store.create(where.chunk(copy, sha256), data)
        own[sha256] = Chunk(sha256, len(data), where.ckpt)
        return own[sha256]

    for number, tensor in enumerate(source.tensors):
        if tensor.unchanged and not tensor.length:
            chunks[number].extend(kept.chunks_of(tensor, write))
    pieces = _pieces(source)
    batch = list(islice(pieces, WIDTH))
    while batch:  # so that WIDTH pieces are in memory, whatever the size of the whole
        for (number, _), chunk in zip(batch, each(lambda piece: write(piece[1]), batch)):
            chunks[number].append(chunk)
        batch = list(islice(pieces, WIDTH))
    tensors = [
        IndexedTensor(tensor.name, tensor.dtype, tensor.shape, tuple(found))
        for tensor, found in zip(source.tensors, chunks)
    ]
    listed = [chunk for found in chunks for chunk in found]
    header = {"ckpt": where.ckpt, "step": source.step, "epoch": epoch, "shard": shard, "copy": copy}
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
    total = sum(chunk.length for chunk in listed)
    return Written(
        hashlib.sha256(raw).hexdigest(),
        total,
        total - sum(chunk.length for chunk in own.values()),
        tuple(sorted({chunk.owner for chunk in listed} - {where.ckpt})),
        tuple(t.name for t, found in zip(source.tensors, tensors) if t.unchanged and kept.differs(found)),
    )


class _Kept:
    """What the base holds of a shard: chunks of this copy by hash, and tensors by name."""

    def __init__(self, base: Optional[CheckpointDir], shard: int, copy: int) -> None:
        self._base, self._shard, self._copy = base, shard, copy
        self._tensors: Mapping[str, IndexedTensor] = {}
        self._found_in = copy
        self.by_hash: Mapping[str, Chunk] = {}
        self._problem = "no base was named"
        if base is not None:
            self._open(base)

    def chunks_of(self, tensor: Tensor, write: Callable[[bytes], Chunk]) -> List[Chunk]:
        """Return the chunks of a tensor that did not change since.

        Raises: BaseUnusable.
        """
        found = self._tensors.get(tensor.name)
        if self._base is None or found is None or (found.dtype, found.shape) != (tensor.dtype, tensor.shape):
            reason = self._problem or "it has no such tensor of that type and shape"
            raise BaseUnusable(
                "tensor %s is unchanged, but its base cannot be used: %s" % (tensor.name, reason)
            )
        if self._found_in == self._copy:
            return list(found.chunks)
        # This copy failed then. Copies share nothing (CK4), so the content is written once more from another one.
        base, copy = self._base, self._found_in
        return [write(index.read_chunk(base, copy, chunk)) for chunk in found.chunks]

    def differs(self, tensor: IndexedTensor) -> bool:
        """Whether the base holds another content under that name."""
        found = self._tensors.get(tensor.name)
        return found is not None and [c.sha256 for c in found.chunks] != [c.sha256 for c in tensor.chunks]

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
            self._tensors = {tensor.name: tensor for tensor in found.tensors}
            if copy == self._copy:
                self.by_hash = {chunk.sha256: chunk for chunk in found.chunks()}
            return


def _pieces(source: Packed) -> Iterator[Tuple[int, bytes]]:
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
