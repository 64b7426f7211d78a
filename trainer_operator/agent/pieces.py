"""The content of pieces on its way from the spool into the store, in memory that is used again and again.

A fresh piece of memory costs the kernel a fault and a cleared page for every 4 KiB of it, and it is gone after each
piece; so each thread that writes gets one buffer for the whole copy. Read, hashed and written by the same thread, pieces
overlap each other: while one waits for its sync, another is hashed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from typing import Iterator, List

from trainer_operator.agent.backends import Content
from trainer_operator.agent.cutting import Piece
from trainer_operator.agent.packed import Packed, read_data


class PieceReader:
    """Reads pieces of one packed file, from several threads.

    Guarantees: as many buffers as pieces were open at the same time, each as long as the longest piece may be.
    """

    def __init__(self, source: Packed, *, longest: int) -> None:
        self._source, self._longest = source, longest
        self._descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._free: List[mmap.mmap] = []

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def content(self, piece: Piece) -> Iterator[Content]:
        """Yield the content of a piece, which is gone afterwards.

        Raises: Malformed when the file ends early.
        """
        if piece.data is not None:
            yield piece.data
            return
        with self._lock:
            buffer = self._free.pop() if self._free else None
        if buffer is None:
            buffer = mmap.mmap(-1, self._longest)
        with memoryview(buffer) as whole, whole[: piece.length] as view:
            read_data(self._source, self._descriptor, view, start=piece.start)
            yield view
        with self._lock:
            self._free.append(buffer)
