"""A watch's bytes as complete lines (W11, W12).

`readline` of aiohttp fails on lines beyond twice its buffer (PY7), so lines are cut here from raw chunks. A line
above the limit ends the stream with an error; a partial last line is kept apart and never mistaken for an event.
Deadlines cost one timer a stream, not one a line: the time of each chunk is noted, the timer looks at it (PY6).
"""

import asyncio
from collections.abc import AsyncIterator
from enum import Enum

import aiohttp

from runtime.client.errors import TransportError, TransportFault
from runtime.errors import RuntimeFault

__all__ = ["LineSplitter", "LineTooLong", "WatchSilent", "WatchStream"]


class LineTooLong(RuntimeFault):
    """A watch event is larger than the limit."""


class WatchSilent(RuntimeFault):
    """A watch outlived its deadline, or said nothing for too long."""


class LineSplitter:
    """Cuts chunks into lines; pure."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take a chunk and return the lines it completes, without their ends and without empty ones.

        Raises: LineTooLong as soon as a line, complete or not, exceeds the limit. Lines before it are lost too:
            the stream is to be dropped, and its events come again.
        """
        head, *rest = chunk.split(b"\n")
        self._grow(head)
        if not rest:
            return []
        lines = [b"".join(self._parts)]
        *whole, tail = rest
        self._parts, self._size = [], 0
        for line in whole:
            self._check(len(line))
            lines.append(line)
        self._grow(tail)
        return [line for line in lines if line.strip()]

    @property
    def remainder(self) -> bytes:
        """Return the partial last line."""
        return b"".join(self._parts)

    def _grow(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            self._check(self._size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise LineTooLong(f"watch event of more than {self._limit} bytes, dropping the stream")


class _End(Enum):
    NONE = 0
    OVERDUE = 1
    SILENT = 2


class WatchStream:
    """The open answer to one watch request.

    Guarantees: ends within its lifetime, and after a guarded silence; only complete lines are yielded.
    Assumptions: `close` is called, whatever happened.
    """

    def __init__(
        self, response: aiohttp.ClientResponse, *, max_line: int, lifetime: float, silence: float
    ) -> None:
        self._response = response
        self._splitter = LineSplitter(limit=max_line)
        self._loop = asyncio.get_running_loop()
        self._silence = silence
        self._guards_silence = False
        self._heard_at = self._loop.time()
        self._ends_at = self._heard_at + lifetime
        self._end = _End.NONE
        self._timer = self._loop.call_at(self._ends_at, self._look)

    @property
    def remainder(self) -> bytes:
        """Return the bytes after the last complete line."""
        return self._splitter.remainder

    def guard_silence(self) -> None:
        """Treat silence as failure from now on; called once a bookmark has shown that the server sends them."""
        if not self._guards_silence:
            self._guards_silence = True
            self._heard_at = self._loop.time()
            self._timer.cancel()
            self._look()

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield the complete lines of each chunk until the server ends the stream.

        Raises: TransportError when the connection breaks; WatchSilent past a deadline; LineTooLong.
        """
        try:
            async for chunk in self._response.content.iter_any():
                self._heard_at = self._loop.time()
                if lines := self._splitter.feed(chunk):
                    yield lines
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if self._end is _End.SILENT:
                raise WatchSilent(f"watch said nothing for {self._silence:g} s, reconnecting") from error
            if self._end is _End.OVERDUE:
                raise WatchSilent("watch outlived the time it was asked for, reconnecting") from error
            raise TransportError(f"watch was cut off: {error}", fault=TransportFault.RESET) from error

    def close(self) -> None:
        """Drop the connection; idempotent. A watch's connection is never reused, for the server may still send."""
        self._timer.cancel()
        self._response.close()

    def _look(self) -> None:
        """Close the answer when a deadline has passed, which wakes the reader; else look again at the next one."""
        now = self._loop.time()
        silent_at = self._heard_at + self._silence if self._guards_silence else float("inf")
        if now >= self._ends_at:
            self._end = _End.OVERDUE
        elif now >= silent_at:
            self._end = _End.SILENT
        else:
            self._timer = self._loop.call_at(min(self._ends_at, silent_at), self._look)
            return
        self._response.close()
