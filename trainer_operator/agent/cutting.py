"""How a copy is cut into chunks (CK3). No store, no hash of what is written.

    tensor of 1 MiB or more     cut into chunks of its own, the last one shorter
    smaller tensors             packed together, in order, into chunks that hold several
    no content                  no chunk

A chunk has 16 MiB, doubled up to 256 MiB until one copy has at most 6,400 of them. The size depends on the layout only,
so it stays the same from one checkpoint to the next, and all copies are cut alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from trainer_operator.agent.index import CHUNK_BYTES, MAX_CHUNK_BYTES, Part
from trainer_operator.agent.packed import Packed, Tensor, ends_early

MAX_CHUNKS = 6400
PACKED_BELOW = 1024 * 1024


@dataclass(frozen=True)
class Piece:
    """The content of one chunk, or where it lies in the file, and the tensors in it by number.

    A tensor that is not packed has no part. Its content is read by whoever writes it, so that several are read at a time.
    """

    tensors: Tuple[Tuple[int, Optional[Part]], ...]
    length: int
    start: int = 0
    """In the data of the file, unless there is `data`."""
    data: Optional[bytes] = None


def chunk_bytes(lengths: Sequence[int], *, packed_below: int = PACKED_BELOW) -> int:
    """Return the size of the chunks of a copy that has tensors of these lengths."""
    size = CHUNK_BYTES
    packed = sum(length for length in lengths if length < packed_below)
    while size < MAX_CHUNK_BYTES:
        count = sum(-(-length // size) for length in lengths if length >= packed_below)
        if count + -(-packed // size) <= MAX_CHUNKS:
            break
        size *= 2
    return size


class Cutter:
    """Cuts the content of a packed file.

    Guarantees: at most one chunk's worth of small tensors is in memory, and nothing of large ones. Of small tensors with
    the same content one is packed; `same` tells, after the last piece, which one the others are the same as.
    """

    def __init__(
        self, source: Packed, *, size: int, packed_below: int, is_known: Callable[[int, str], bool]
    ) -> None:
        """Take what to cut. A small tensor that `is_known`, by number and hash, is in no piece."""
        self._source, self._size, self._packed_below = source, size, packed_below
        self._is_known = is_known
        self.same: Dict[int, int] = {}
        """By number, the number of an earlier tensor with the same content."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces.

        Raises: Malformed when the file ends early.
        """
        pack: List[Tuple[int, str, bytes]] = []
        first: Dict[str, int] = {}
        filled = 0
        with open(self._source.path, "rb") as file:
            for number, tensor in enumerate(self._source.tensors):
                if tensor.length >= self._packed_below:
                    yield from self._large(number, tensor)
                    continue
                if not tensor.length:
                    continue
                file.seek(self._source.data_start + tensor.offset)
                data = file.read(tensor.length)
                if len(data) < tensor.length:
                    raise ends_early(self._source)
                sha256 = hashlib.sha256(data).hexdigest()
                if self._is_known(number, sha256):
                    continue
                if sha256 in first:
                    self.same[number] = first[sha256]
                    continue
                if filled + len(data) > self._size:
                    yield _packed(pack)
                    pack, filled = [], 0
                first[sha256] = number
                pack.append((number, sha256, data))
                filled += len(data)
        if pack:
            yield _packed(pack)

    def _large(self, number: int, tensor: Tensor) -> Iterator[Piece]:
        for start in range(0, tensor.length, self._size):
            length = min(self._size, tensor.length - start)
            yield Piece(((number, None),), length, tensor.offset + start)


def _packed(pack: Sequence[Tuple[int, str, bytes]]) -> Piece:
    if len(pack) == 1:
        number, _, data = pack[0]
        return Piece(((number, None),), len(data), data=data)
    tensors, start = [], 0
    for number, sha256, data in pack:
        tensors.append((number, Part(start, len(data), sha256)))
        start += len(data)
    return Piece(tuple(tensors), start, data=b"".join(data for _, _, data in pack))
