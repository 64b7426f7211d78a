"""An API server that knows nothing but pods and is never the bottleneck; run as a process of its own.

It answers LIST, in pages where they are asked for, then every WATCH with a stream of updates prepared beforehand: as
fast as the client reads, or so many a second. WatchList is refused, so that all clients begin alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
from urllib.parse import parse_qs, urlsplit

import uvloop

from benchmarks.child import python
from benchmarks.runtime.pods import NAMESPACE, PodTemplate

__all__ = ["command"]

_FIRST_VERSION = 1_000_000_000  # as long as all that follow, so that versions compare by text too
_HEAD_START = 1.5  # seconds between a watch's start and its first update, for the client to come to rest
_CHUNK = 64 * 1024
_TICK = 0.005  # seconds that a limited stream may run ahead of its rate
_REFUSAL = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Invalid",'
    b'"message":"sendInitialEvents is forbidden for watch","code":422}'
)


def command(*, pods: int, events: int = 0, rate: int = 0, pages: bool = False) -> list[str]:
    """Return the command that serves this; it prints its address."""
    arguments = [f"--pods={pods}", f"--events={events}", f"--rate={rate}"]
    return python("benchmarks.runtime.podserver", *arguments, *(["--pages"] if pages else []))


class PodServer:
    """The collection and its updates."""

    def __init__(self, *, pods: int, events: int, rate: int, pages: bool) -> None:
        template = PodTemplate()
        self._pods = [template.body(number, version=_FIRST_VERSION - pods + number) for number in range(pods)]
        # Enough pods to make updates differ, few enough to prepare quickly.
        self._parts = [template.parts(number) for number in range(min(pods, 2000))]
        self._events, self._rate, self._pages = events, rate, pages

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                query = parse_qs(urlsplit(head.split(" ", 2)[1]).query)
                if query.get("watch", [""])[0] not in ("true", "1", "True"):
                    await self._list(writer, query)
                elif "sendInitialEvents" in query:
                    _answer(writer, _REFUSAL, status=b"422 Unprocessable Entity")
                else:
                    await self._watch(writer)
        writer.close()

    async def _list(self, writer: asyncio.StreamWriter, query: dict[str, list[str]]) -> None:
        limit = int(query.get("limit", ["0"])[0]) if self._pages else 0
        begin = int(query.get("continue", ["0"])[0])
        end = min(begin + limit, len(self._pods)) if limit else len(self._pods)
        more = f',"continue":"{end}"' if end < len(self._pods) else ""
        head = (
            f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{_FIRST_VERSION}"{more}}},'
        )
        _answer(writer, head.encode() + b'"items":[' + b",".join(self._pods[begin:end]) + b"]}\n")
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        await writer.drain()
        await asyncio.sleep(_HEAD_START)
        loop = asyncio.get_running_loop()
        begun, pending = loop.time(), bytearray()
        for number, (before, after) in enumerate(itertools.cycle(self._parts)):
            if number == self._events:
                break
            version = str(_FIRST_VERSION + 1 + number).encode()
            pending += b'{"type":"MODIFIED","object":' + before + version + after + b"}\n"
            early = begun + number / self._rate - loop.time() if self._rate else 0.0
            if early < _TICK and len(pending) < _CHUNK:
                continue
            _chunk(writer, pending)
            await writer.drain()
            if early >= _TICK:
                await asyncio.sleep(early)
        if pending:
            _chunk(writer, pending)
        await writer.drain()
        await asyncio.sleep(3600)


def _chunk(writer: asyncio.StreamWriter, pending: bytearray) -> None:
    writer.write(b"%x\r\n" % len(pending) + pending + b"\r\n")
    pending.clear()


def _answer(writer: asyncio.StreamWriter, body: bytes, *, status: bytes = b"200 OK") -> None:
    head = b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body))
    writer.write(body)


async def _serve(server: PodServer) -> None:
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, limit=1 << 20)
    host, port = listener.sockets[0].getsockname()
    print(f"http://{host}:{port}", flush=True)
    async with listener:
        await listener.serve_forever()


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=f"Serve pods of the namespace {NAMESPACE}.")
    for name in ("pods", "events", "rate"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--pages", action="store_true")
    chosen = parser.parse_args()
    server = PodServer(pods=chosen.pods, events=chosen.events, rate=chosen.rate, pages=chosen.pages)
    uvloop.run(_serve(server))


if __name__ == "__main__":
    main()
