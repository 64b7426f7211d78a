"""A store as far away as one likes: a directory whose bytes and requests take the time that a network takes."""

from __future__ import annotations

import threading
import time

from trainer_operator.agent.backends import Content, Page
from trainer_operator.agent.backends.file import FileStore

__all__ = ["ThrottledStore"]


class ThrottledStore(FileStore):
    """All readers share one line of so many bytes a second; each request takes its latency besides."""

    def __init__(self, root: str, *, bytes_per_second: float, latency: float) -> None:
        super().__init__(root)
        self._rate, self._latency = bytes_per_second, latency
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.fetched = 0
        """Bytes that were read so far."""

    def create(self, key: str, data: Content) -> None:
        """Create an object, after the latency of a request."""
        time.sleep(self._latency)
        super().create(key, data)

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """List a page, after the latency of a request."""
        time.sleep(self._latency)
        return super().list(prefix, cursor=cursor, shallow=shallow)

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Read a part, as fast as the line allows."""
        data = super().get_range(key, start=start, length=length)
        with self._lock:
            self.fetched += len(data)
            self._free_at = max(self._free_at, time.monotonic()) + len(data) / self._rate
            until = self._free_at + self._latency
        time.sleep(max(0.0, until - time.monotonic()))
        return data
