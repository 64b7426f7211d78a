"""The rim of list and watch: carries out what `listwatch.step` decides (W1).

One reflector serves one collection, all of it or one namespace. It feeds a :class:`Sink` and never ends on its own,
except when the server refuses the very first list (S8). Errors go to a metric and a callback (W16); a defect in this
code, by contrast, is raised and takes the process down.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec
import orjson

from runtime.backoff import Backoff, Rng
from runtime.cache.errors import WatchRejected
from runtime.cache.listwatch import (
    AbandonStreaming,
    Action,
    BackOff,
    Cause,
    Closed,
    Empty,
    Failed,
    GiveUp,
    InitialEnd,
    InitialWatch,
    Input,
    List,
    Listed,
    Listing,
    Progress,
    Publish,
    RefreshCredentials,
    Report,
    Started,
    State,
    Watch,
    Watching,
    WatchInitial,
    cause_of,
    step,
)
from runtime.cache.streaming import StreamingLists
from runtime.cache.telemetry import CacheMetrics
from runtime.cache.transform import Codec, Undecodable
from runtime.client.errors import error_of_status
from runtime.client.pager import PAGE_SIZE, Page, list_all
from runtime.client.rest import selection_params
from runtime.clock import Clock
from runtime.errors import RuntimeFault
from runtime.objects import ObjectKey, Resource

__all__ = ["Reflector", "Selection", "Sink", "Source", "Stream"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_WATCH_TIMEOUTS = (300, 600)  # W4: spread, so that watches do not all end at once
_INITIAL_SILENCE = 30.0  # W13: without an event before the initial events have ended
_INITIAL_END = "k8s.io/initial-events-end"
_INITIAL_PARAMS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


@dataclass(frozen=True, slots=True)
class Selection:
    """A collection, or the part of it that is watched."""

    resource: Resource
    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None

    def __str__(self) -> str:
        narrowed = [
            f"{name} {value!r}" for name, value in (("labels", self.labels), ("fields", self.fields)) if value
        ]
        where = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"{self.resource}{where}" + (f" with {' and '.join(narrowed)}" if narrowed else "")


class Stream(Protocol):
    """An open watch."""

    @property
    def remainder(self) -> bytes:
        """Return the bytes after the last complete line."""
        ...

    def batches(self) -> AsyncIterator[list[bytes]]:
        """Yield complete lines until the server ends the stream."""
        ...

    def guard_silence(self) -> None:
        """Treat silence as failure from now on."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Source(Protocol):
    """Where lists and watches come from: the client, as far as a reflector uses it."""

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        accept: str,
        retry: bool,
    ) -> bytes:
        """Read one page of a collection, undecoded."""
        ...

    async def open_watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        timeout_seconds: int,
        accept: str,
    ) -> Stream:
        """Start a watch."""
        ...

    def refresh_credentials(self, *, sent_at: float) -> None:
        """Drop the credentials if they are those of a request sent then."""
        ...


class Sink(Protocol[T_contra]):
    """Where the objects go; all methods are synchronous and do not fail."""

    def replace(self, objects: Iterable[T_contra], *, namespace: str | None) -> None:
        """Make the content of the namespace, or everything, these objects."""
        ...

    def put(self, obj: T_contra) -> None:
        """Take an object that appeared or changed."""
        ...

    def remove(self, obj: T_contra) -> None:
        """Drop an object that was deleted."""
        ...


class _Event(msgspec.Struct, gc=False):
    """One line of a watch; a line that is a bare Status has a kind instead of a type (W7)."""

    type: str | None = None
    object: msgspec.Raw = msgspec.Raw(b"null")
    kind: str | None = None


class _BookmarkMetadata(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str | None = None
    annotations: dict[str, str | None] | None = None


class _Bookmark(msgspec.Struct, gc=False):
    """All that may be assumed of a bookmark (W5), and what marks the one after the initial events (W13)."""

    metadata: _BookmarkMetadata | None = None


_FRAMES = tuple(
    (kind, b'{"type":"%s","object":' % kind.encode()) for kind in ("MODIFIED", "ADDED", "DELETED")
)
"""How the server's encoder begins an event; whatever looks otherwise is decoded in full."""

_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode


class _Gathering(Generic[T]):
    """The temporary store of a streaming list: what has arrived of a collection that is not complete yet."""

    def __init__(self, codec: Codec[T]) -> None:
        self._codec = codec
        self._objects: dict[ObjectKey, T] = {}

    def put(self, obj: T) -> None:
        """Take an object; of two states the later in the stream counts."""
        self._objects[self._codec.identity(obj).key] = obj

    def remove(self, obj: T) -> None:
        """Drop an object that was deleted while the collection was still arriving."""
        self._objects.pop(self._codec.identity(obj).key, None)

    def take(self) -> list[T]:
        """Hand over what was gathered and be empty."""
        gathered = list(self._objects.values())
        self._objects = {}
        return gathered


class Reflector(Generic[T]):
    """Keeps a sink equal to a collection on the server.

    Guarantees: the sink is never set back to an older version than it has shown (W2); `seen` moves only after
    everything up to it has reached the sink (R2).
    Cancellation: safe at any await; the connection is dropped.
    """

    def __init__(
        self,
        source: Source,
        selection: Selection,
        *,
        codec: Codec[T],
        sink: Sink[T],
        clock: Clock,
        metrics: CacheMetrics,
        rng: Rng | None = None,
        on_error: Callable[[Selection, RuntimeFault | None, Cause], None] | None = None,
        streaming: StreamingLists | None = None,
    ) -> None:
        self.selection = selection
        self._source = source
        self._codec = codec
        self._sink = sink
        self._clock = clock
        self._metrics = metrics
        self._rng = rng or random.Random()
        self._on_error = on_error
        self._backoff = Backoff(rng=self._rng)
        self._kind = selection.resource.kind
        self._params = selection_params(labels=selection.labels, fields=selection.fields)
        self._state: State = Empty()
        self._streaming = streaming or StreamingLists(allowed=False)
        self._listed: list[T] = []
        self._gathering: _Gathering[T] = _Gathering(codec)
        self._error: RuntimeFault | None = None
        self._sent_at = 0.0
        self._confirmed_at: float | None = None

    @property
    def seen(self) -> str:
        """Return the version up to which the sink is complete, "" before the first list."""
        return self._state.known.seen if isinstance(self._state, Listing | Watching) else ""

    @property
    def lag(self) -> float:
        """Return for how many seconds no list, event or bookmark has confirmed the sink, 0 before the start."""
        return 0.0 if self._confirmed_at is None else self._clock.monotonic() - self._confirmed_at

    async def run(self) -> None:
        """List and watch until cancelled.

        Raises: WatchRejected when the server refuses the selection at the first list.
        """
        self._confirmed_at = self._clock.monotonic()
        event: Input = Started(self._streaming.allowed)
        while True:
            self._state, actions = step(self._state, event, self._clock.monotonic())
            outcome: Input | None = None
            for action in actions:
                outcome = await self._carry_out(action)
            assert outcome is not None, f"the last of {actions} has no outcome"
            event = outcome

    async def _carry_out(self, action: Action) -> Input | None:
        match action:
            case List(version, paged):
                return await self._list(version, paged=paged)
            case Watch(version):
                return await self._watch({"resourceVersion": version})
            case WatchInitial():
                # Another cache may have found out meanwhile.
                if not self._streaming.allowed:
                    return Failed(Cause.UNSUPPORTED)
                self._gathering.take()
                return await self._watch(_INITIAL_PARAMS)
            case AbandonStreaming(cause):
                self._gathering.take()
                self._streaming.abandon(self.selection, reason=cause.value)
            case Publish():
                self._publish()
            case BackOff(at_least):
                await self._clock.sleep(max(at_least, self._backoff.next(self._clock.monotonic())))
            case RefreshCredentials():
                self._source.refresh_credentials(sent_at=self._sent_at)
            case Report(cause, relist):
                count = self._metrics.relisted if relist else self._metrics.watch_restarted
                count(kind=self._kind, reason=cause.value)
                if self._on_error is not None and cause is not Cause.CLOSED:
                    self._on_error(self.selection, self._error, cause)
                self._error = None
            case GiveUp():
                raise WatchRejected(
                    f"the API server refuses to list {self.selection}: {self._error}"
                ) from self._error
        return None

    async def _list(self, version: str, *, paged: bool) -> Input:
        self._sent_at = self._clock.monotonic()

        async def fetch(params: Mapping[str, str]) -> bytes:
            return await self._source.fetch_page(
                self.selection.resource,
                self.selection.namespace,
                params={**self._params, **params},
                accept=self._codec.accept_list,
                retry=False,
            )

        try:
            listing = await list_all(
                fetch, self._decode_listed, version=version, limit=PAGE_SIZE if paged else 0
            )
        except RuntimeFault as error:
            return self._failed(error)
        self._listed = listing.items
        return Listed(listing.resource_version, listing.paged)

    def _publish(self) -> None:
        listed, self._listed = self._listed, []
        self._confirmed_at = self._clock.monotonic()
        self._sink.replace(listed, namespace=self.selection.namespace)

    async def _watch(self, params: Mapping[str, str]) -> Input:
        started = self._sent_at = self._clock.monotonic()
        shortest, longest = _WATCH_TIMEOUTS
        try:
            stream = await self._source.open_watch(
                self.selection.resource,
                self.selection.namespace,
                params={**self._params, **params},
                timeout_seconds=shortest + int(self._rng.random() * (longest - shortest + 1)),
                accept=self._codec.accept_watch,
            )
        except RuntimeFault as error:
            return self._failed(error)
        heard = False
        try:
            async with asyncio.timeout(None) as patience:
                self._extend(patience)
                async for lines in stream.batches():
                    heard = True
                    if (failure := self._apply(lines, stream)) is not None:
                        return failure
                    self._extend(patience)
        except TimeoutError:
            return Failed(Cause.STALLED)
        except RuntimeFault as error:
            return self._failed(error)
        finally:
            stream.close()
        # A Status that is the whole answer may lack the end of its line; any other rest is half an event (W7, W12).
        if not heard and (failure := self._status(stream.remainder)) is not None:
            return failure
        return Closed(lasted=self._clock.monotonic() - started, heard=heard)

    def _extend(self, patience: asyncio.Timeout) -> None:
        """Move the deadline of a stream of initial events; one that has brought them all has none here (W13)."""
        if isinstance(self._state, InitialWatch):
            patience.reschedule(asyncio.get_running_loop().time() + _INITIAL_SILENCE)
        elif patience.when() is not None:
            patience.reschedule(None)

    def _apply(self, lines: list[bytes], stream: Stream) -> Failed | None:
        """Apply complete lines, then move the version once for all of them."""
        version, only_added, failure = "", True, None
        for line in lines:
            if (framed := self._apply_framed(line)) is not None:
                kind, version = framed[0], framed[1] or version
                only_added = only_added and kind == "ADDED"
                continue
            try:
                event = _decode_event(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._skip("malformed")
                continue
            match event.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    version = self._apply_object(event) or version
                    only_added = only_added and event.type == "ADDED"
                case "BOOKMARK":
                    bookmark = _bookmark(event.object)
                    version, only_added = bookmark.resource_version or version, False
                    stream.guard_silence()
                    if isinstance(self._state, InitialWatch) and _ends_initial(bookmark):
                        self._end_initial(bookmark.resource_version or "")
                        version, only_added = "", True
                case "ERROR":
                    failure = self._status(bytes(event.object)) or Failed(Cause.UNKNOWN)
                    break
                case None if event.kind == "Status":
                    failure = self._status(line)
                    break
                case _:
                    self._skip("unknown_event")
        if isinstance(self._state, Watching) and (version or not only_added):
            self._confirmed_at = now = self._clock.monotonic()
            self._state, _ = step(self._state, Progress(version, only_added), now)
        return failure

    def _apply_framed(self, line: bytes) -> tuple[str, str] | None:
        """Apply an event of the usual form and return its type and version; None when it has another one.

        A scan of the object for its end is a fifth of what an event costs (measured), and is not needed where the
        object takes the rest of the line.
        """
        for kind, frame in _FRAMES:
            if line.startswith(frame) and line.endswith(b"}"):
                try:
                    obj = self._codec.decode(memoryview(line)[len(frame) : -1])
                except Undecodable:
                    return None
                return kind, self._hand_over(kind, obj)
        return None

    def _apply_object(self, event: _Event) -> str:
        """Hand an event's object to the sink and return its version, also when the object cannot be used."""
        try:
            obj = self._codec.decode(event.object)
        except Undecodable:
            self._skip("undecodable")
            return _version_in(event.object)
        return self._hand_over(event.type or "", obj)

    def _hand_over(self, kind: str, obj: T) -> str:
        target = self._gathering if isinstance(self._state, InitialWatch) else self._sink
        if kind == "DELETED":
            target.remove(obj)
        else:
            target.put(obj)
        return self._codec.version(obj)

    def _end_initial(self, version: str) -> None:
        """Show the gathered collection; what follows in the stream goes to the sink itself."""
        self._state, _ = step(self._state, InitialEnd(version), self._clock.monotonic())
        self._listed = self._gathering.take()
        self._publish()

    def _decode_listed(self, _page: Page, raw: msgspec.Raw) -> T | None:
        try:
            return self._codec.decode(raw)
        except Undecodable:
            self._skip("undecodable")
            return None

    def _status(self, body: bytes) -> Failed | None:
        """Read a Status out of a stream; None when the bytes are not one."""
        try:
            status = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(status, dict) or status.get("kind") != "Status":
            return None
        return self._failed(error_of_status(status))

    def _failed(self, error: RuntimeFault) -> Failed:
        self._error = error
        return cause_of(error)

    def _skip(self, reason: str) -> None:
        self._metrics.object_skipped(kind=self._kind, reason=reason)


def _bookmark(raw: msgspec.Raw) -> _BookmarkMetadata:
    try:
        return _decode_bookmark(raw).metadata or _BookmarkMetadata()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _BookmarkMetadata()


def _version_in(raw: msgspec.Raw) -> str:
    return _bookmark(raw).resource_version or ""


def _ends_initial(bookmark: _BookmarkMetadata) -> bool:
    return bool(bookmark.resource_version) and (bookmark.annotations or {}).get(_INITIAL_END) == "true"
