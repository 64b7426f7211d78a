"""An API server in memory, for reflectors in simulated time: no sockets, every fault on command.

It is a `runtime.cache.reflector.Source`. Its lists and watches follow an :class:`ObjectLog`; planned failures are
consumed one by one before it answers in earnest, and open watches are ended, fed or silenced from outside.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.client.errors import Gone
from runtime.client.stream import LineSplitter
from runtime.errors import RuntimeFault
from runtime.objects import Resource
from runtime.testing.objectlog import Change, Compacted, ObjectLog

__all__ = ["EXPIRED", "MemoryApi", "MemoryRequest", "MemoryStream", "status_object"]


def status_object(code: int, reason: str, message: str = "") -> dict[str, Any]:
    """Return a failed Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
    }


EXPIRED = status_object(410, "Expired", "too old resource version")


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """One list or watch as it was asked for, and when."""

    verb: str
    resource: Resource
    namespace: str | None
    params: Mapping[str, str]
    at: float


class MemoryStream:
    """An open watch."""

    def __init__(self, *, max_line: int) -> None:
        self._splitter = LineSplitter(limit=max_line)
        self._chunks: asyncio.Queue[bytes | RuntimeFault | None] = asyncio.Queue()
        self.guards_silence = False
        self.is_closed = False

    @property
    def remainder(self) -> bytes:
        """Return the bytes after the last complete line."""
        return self._splitter.remainder

    def send(self, chunk: bytes) -> None:
        """Let bytes arrive."""
        self._chunks.put_nowait(chunk)

    def send_event(self, type: str, obj: Mapping[str, Any]) -> None:
        """Let an event arrive."""
        self.send(orjson.dumps({"type": type, "object": obj}) + b"\n")

    def end(self, failure: RuntimeFault | None = None) -> None:
        """End the stream, in order or with a failure."""
        self._chunks.put_nowait(failure)

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield the complete lines of each chunk."""
        while (chunk := await self._chunks.get()) is not None:
            if isinstance(chunk, RuntimeFault):
                raise chunk
            if lines := self._splitter.feed(chunk):
                yield lines

    def guard_silence(self) -> None:
        """Remember that a bookmark was seen."""
        self.guards_silence = True

    def close(self) -> None:
        """Remember that the reader has left."""
        self.is_closed = True


class MemoryApi:
    """Lists and watches over a log.

    `plan` takes failures for the requests to come: a RuntimeFault is raised, bytes are the whole answer (of a watch:
    the whole stream, then an orderly end), None answers in earnest.
    """

    def __init__(self, log: ObjectLog | None = None, *, page_size: int = 0, max_line: int = 1 << 20) -> None:
        self.log = log or ObjectLog()
        self.requests: list[MemoryRequest] = []
        self.refreshed = 0
        self.streams: list[MemoryStream] = []
        self.ends_initial_events = True
        """Whether a streaming list gets the bookmark that ends it; a proxy may lose it (RT13)."""
        self._page_size = page_size
        self._max_line = max_line
        self._planned: dict[str, deque[RuntimeFault | bytes | None]] = {"LIST": deque(), "WATCH": deque()}
        self._lagging: deque[bytes] = deque()
        self._lists: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    def plan(self, verb: str, *outcomes: RuntimeFault | bytes | None) -> None:
        """Add outcomes for the next requests of a verb (LIST, WATCH)."""
        self._planned[verb].extend(outcomes)

    def lag(self, body: bytes) -> None:
        """Answer the next list that accepts an old version from a cache that has fallen behind; a quorum list never."""
        self._lagging.append(body)

    def forget_plans(self) -> None:
        """Answer in earnest from now on."""
        for planned in self._planned.values():
            planned.clear()
        self._lagging.clear()

    def asked(self, verb: str) -> list[MemoryRequest]:
        """Return the requests of a verb so far."""
        return [request for request in self.requests if request.verb == verb]

    def open_streams(self) -> list[MemoryStream]:
        """Return the watches that are being read."""
        return [stream for stream in self.streams if not stream.is_closed]

    def end_watches(self, failure: RuntimeFault | None = None) -> None:
        """End every open watch."""
        for stream in self.open_streams():
            stream.end(failure)

    def bookmark(self, resource: Resource) -> None:
        """Send every open watch a bookmark at the newest version, with no more than the API guarantees (W5)."""
        mark = {"kind": resource.kind, "metadata": {"resourceVersion": str(self.log.version)}}
        for stream in self.open_streams():
            stream.send_event("BOOKMARK", mark)

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        accept: str,
        retry: bool,
    ) -> bytes:
        """Answer a list, in pages if the server was made to page."""
        del accept, retry
        if (planned := self._next("LIST", resource, namespace, params=params)) is not None:
            return planned
        await asyncio.sleep(0)
        if self._lagging and "resourceVersion" in params:
            return self._lagging.popleft()
        if "continue" in params:
            token = params["continue"]
            version, rest = self._lists.pop(token, (0, []))
            if not version:
                raise Gone("continue token expired", status=410, reason="Expired")
        else:
            version, rest = self.log.version, self.log.objects(resource, namespace)
        metadata = {"resourceVersion": str(version)}
        if self._page_size and "limit" in params and len(rest) > self._page_size:
            rest, remaining = rest[: self._page_size], rest[self._page_size :]
            token = f"token-{len(self.requests)}"
            self._lists[token] = (version, remaining)
            metadata["continue"] = token
        body = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": rest,
        }
        return orjson.dumps(body)

    async def open_watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        timeout_seconds: int,
        accept: str,
    ) -> MemoryStream:
        """Start a watch that replays the history after its version and then follows the log."""
        del timeout_seconds, accept
        stream = MemoryStream(max_line=self._max_line)
        if (planned := self._next("WATCH", resource, namespace, params=params)) is not None:
            stream.send(planned)
            stream.end()
            return stream
        await asyncio.sleep(0)
        initial = params.get("sendInitialEvents") == "true"
        try:
            missed = [] if initial else self.log.since(resource, int(params["resourceVersion"]))
        except Compacted as error:
            raise Gone(str(error), status=410, reason="Expired") from error
        if initial:
            self._send_initial(stream, resource, namespace)

        def follow(change: Change) -> None:
            inside = namespace in (None, change.obj["metadata"].get("namespace"))
            if change.collection == str(resource) and inside and not stream.is_closed:
                stream.send_event(change.type, change.obj)

        for change in missed:
            follow(change)
        self.log.listen(follow)
        self.streams.append(stream)
        return stream

    def _send_initial(self, stream: MemoryStream, resource: Resource, namespace: str | None) -> None:
        for obj in self.log.objects(resource, namespace):
            stream.send_event("ADDED", obj)
        if self.ends_initial_events:
            metadata = {
                "resourceVersion": str(self.log.version),
                "annotations": {"k8s.io/initial-events-end": "true"},
            }
            stream.send_event("BOOKMARK", {"kind": resource.kind, "metadata": metadata})

    def refresh_credentials(self, *, sent_at: float) -> None:
        """Count that credentials were dropped."""
        del sent_at
        self.refreshed += 1

    def forget_continue_tokens(self) -> None:
        """Let every continue token expire."""
        self._lists.clear()

    def _next(
        self, verb: str, resource: Resource, namespace: str | None, *, params: Mapping[str, str]
    ) -> bytes | None:
        now = asyncio.get_running_loop().time()
        self.requests.append(MemoryRequest(verb, resource, namespace, dict(params), now))
        planned = self._planned[verb].popleft() if self._planned[verb] else None
        if isinstance(planned, RuntimeFault):
            raise planned
        return planned
