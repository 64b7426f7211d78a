"""A proxy in front of an API server that fails on demand (P4).

It terminates TLS with a certificate of its own and speaks HTTP to both sides, so a test can say what is to go wrong in
Kubernetes' terms while sockets, TLS and the server behind are real. Two kinds of faults exist:

- rules befall requests as they come (:mod:`runtime.testing.faults`);
- watches that are open are ended, cut, silenced or held back, and the whole server is taken away, by a call.

Upstream it uses its own credentials; the User-Agent goes through, so that the server's audit log tells clients apart.
Bookmarks come once a minute from a real server. With `bookmark_period` the proxy adds some of its own, at the version
of the last event it has passed on, which is all that a bookmark says.
"""

import asyncio
import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
import orjson
import yaml
from aiohttp import web
from yarl import URL

from runtime.client.config import ClientConfig, Timeouts
from runtime.client.stream import LineSplitter
from runtime.client.transport import Transport
from runtime.testing.faults import (
    Asked,
    Cut,
    Delay,
    EndAtOnce,
    Expire,
    Expired,
    Fault,
    HideBookmarks,
    Refuse,
    Rewind,
    Rule,
    Stall,
    Twice,
)
from runtime.testing.memoryapi import EXPIRED, status_object
from runtime.testing.selfsigned import SelfSigned

__all__ = ["FaultProxy", "Hold"]

_HOST = "127.0.0.1"
_LONGEST_LINE = 64 << 20
_HANDSHAKE_TIMEOUT = 2.0  # a client that is cut off in one must not hold the end of a test up
_UNLIMITED = aiohttp.ClientTimeout(total=None, sock_connect=5.0)  # deadlines are what clients are tested for
_OWN_HEADERS = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding"}
)


class _Metadata(msgspec.Struct, gc=False):
    version: str = msgspec.field(name="resourceVersion", default="")


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    object: _Object = msgspec.field(default_factory=_Object)


_decode_event = msgspec.json.Decoder(_Event).decode


@dataclass(slots=True)
class Hold:
    """Watches of a path that say nothing until released; nothing is lost."""

    path: str
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let everything held back through, and all that follows. Idempotent."""
        self._released.set()

    async def passed(self) -> None:
        """Wait until released."""
        await self._released.wait()


@dataclass(slots=True)
class _Watch:
    """One open watch."""

    asked: Asked
    upstream: aiohttp.ClientResponse
    response: web.StreamResponse
    transport: asyncio.Transport | None
    hides_bookmarks: bool
    version: str
    """The version of the last thing passed on; "" while it means nothing (W6)."""
    has_bookmark: bool = False
    is_silent: bool = False
    is_ending: bool = False
    cuts_next: bool = False


class FaultProxy:
    """The proxy; use it as `async with FaultProxy(config_of_the_server) as proxy`.

    Guarantees: without rules and calls it passes everything on unchanged, in order, except compression.
    """

    def __init__(self, upstream: ClientConfig, *, bookmark_period: float | None = None) -> None:
        self.asked_all: list[Asked] = []
        self._server = upstream.server
        self._transport = Transport(upstream)
        self._bookmark_period = bookmark_period
        self._rules: list[Rule] = []
        self._holds: list[Hold] = []
        self._watches: list[_Watch] = []
        self._closed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._certificate = SelfSigned()
        self._context = self._certificate.server_context()
        self._port = 0

    async def __aenter__(self) -> Self:
        await self._transport.open()
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await self.come_back()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        await self.go_away()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._transport.close()

    # For clients

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        return f"https://{_HOST}:{self._port}"

    def config(self, *, timeouts: Timeouts | None = None, **changes: Any) -> ClientConfig:
        """Return the configuration of a client that goes through the proxy."""
        return ClientConfig(
            self.url, ca_data=self._certificate.certificate, timeouts=timeouts or Timeouts(), **changes
        )

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that leads through the proxy and return its path."""
        authority = base64.b64encode(self._certificate.certificate).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy"}}],
            "clusters": [{"name": "proxy", "cluster": cluster}],
        }
        path.write_text(yaml.safe_dump(document))
        return path

    # What was asked

    def asked(self, *verbs: str, path: str = "", agent: str = "") -> list[Asked]:
        """Return the requests so far of these verbs, this part of a path and this part of a User-Agent."""
        wanted = Rule(HideBookmarks(), frozenset(verbs), path, agent)
        return [asked for asked in self.asked_all if wanted.applies(asked)]

    def open_watches(self, path: str = "") -> list[Asked]:
        """Return the requests of the watches that are open."""
        return [watch.asked for watch in self._open(path)]

    # Faults of requests to come

    def inject(
        self,
        fault: Fault,
        *verbs: str,
        path: str = "",
        agent: str = "",
        times: int | None = None,
        spare: int = 0,
    ) -> Rule:
        """Let a fault befall requests from now on, after the first `spare`; see :class:`Rule`."""
        rule = Rule(fault, frozenset(verbs), path, agent, times, spare)
        self._rules.append(rule)
        return rule

    def heal(self) -> None:
        """Withdraw all rules and release all holds; what was cut or silenced stays so."""
        for rule in self._rules:
            rule.withdraw()
        for hold in self._holds:
            hold.release()
        self._rules.clear()
        self._holds.clear()

    # Faults of what is open

    def end_watches(self, path: str = "") -> int:
        """End open watches in order, as the server does when their time is over; return how many."""
        watches = self._open(path)
        for watch in watches:
            watch.is_ending = True
            watch.upstream.close()
        return len(watches)

    def cut_watches(self, path: str = "", *, within_line: bool = False) -> int:
        """Break open watches off: at once, or in the middle of their next event; return how many."""
        watches = self._open(path)
        for watch in watches:
            if within_line:
                watch.cuts_next = True
            else:
                _abort(watch.transport)
        return len(watches)

    def silence_watches(self, path: str = "", *, marked_only: bool = False) -> int:
        """Swallow all that open watches say from now on, their end included; return how many (RT1).

        The connections stay open and answer keepalive probes. Watches to come work. `marked_only` spares those that
        have passed no bookmark on: nobody can tell them from quiet ones before their time is over.
        """
        watches = [each for each in self._open(path) if not marked_only or each.has_bookmark]
        for watch in watches:
            watch.is_silent = True
        return len(watches)

    def hold_watches(self, path: str = "") -> Hold:
        """Hold back what watches say, those open and those to come, until released (RT25)."""
        hold = Hold(path)
        self._holds.append(hold)
        return hold

    def break_connections(self) -> None:
        """Break all connections off, idle ones included."""
        assert self._runner is not None
        if self._runner.server is not None:
            for connection in self._runner.server.connections:
                _abort(connection.transport)

    async def go_away(self) -> None:
        """Be a server that is down: break all connections off and refuse new ones. Idempotent."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            loop = asyncio.get_running_loop()
            # Closed while a connection is being taken, asyncio would lose that one's socket (CPython 3.11): first
            # take no more, then let those on their way arrive.
            for sock in listener.sockets:
                loop.remove_reader(sock.fileno())
            for _ in range(2):
                await asyncio.sleep(0)
            listener.close()
            self.break_connections()

    async def come_back(self) -> None:
        """Listen again, at the same address. Idempotent."""
        if self._listener is None:
            assert self._runner is not None
            assert self._runner.server is not None
            self._listener = await asyncio.get_running_loop().create_server(
                self._runner.server,
                _HOST,
                self._port,
                ssl=self._context,
                ssl_handshake_timeout=_HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=_HANDSHAKE_TIMEOUT,
            )
            self._port = self._listener.sockets[0].getsockname()[1]

    # Serving

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = _asked(request)
        self.asked_all.append(asked)
        body = await request.read()
        rule = next((rule for rule in self._rules if rule.applies(asked)), None)
        if rule is not None and rule.spare > 0:
            rule.spare -= 1
            rule = None
        if rule is not None:
            rule.hits += 1
        fault = rule.fault if rule is not None else None
        match fault:
            case Refuse():
                return _refusal(fault)
            case EndAtOnce():
                return web.Response(content_type="application/json")
            case Expire(shape):
                return _expired(shape)
            case Stall(reaches_server) | Cut(reaches_server):
                if reaches_server:
                    await self._forward(request, body)
                if isinstance(fault, Stall):
                    await self._closed.wait()
                return _broken(request)
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Twice():
                await self._forward(request, body)
        url = _upstream_url(request, fault.version if isinstance(fault, Rewind) else None)
        if asked.verb == "WATCH":
            return await self._watch(
                request, asked, url=url, hides_bookmarks=isinstance(fault, HideBookmarks)
            )
        return await self._forward(request, body, url=url) or _broken(request)

    async def _forward(
        self, request: web.Request, body: bytes, *, url: str | None = None
    ) -> web.Response | None:
        """Send a request to the server and return its answer; None when it did not give a whole one."""
        try:
            async with self._request(request, url or _upstream_url(request), body=body) as answer:
                if request.query.get("watch") == "true":
                    return None  # a watch that nobody reads is given up again
                content = await answer.read()
                return web.Response(
                    status=answer.status, body=content, headers=_passed(answer.headers.items())
                )
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def _watch(
        self, request: web.Request, asked: Asked, *, url: str, hides_bookmarks: bool
    ) -> web.StreamResponse:
        try:
            async with self._request(request, url) as answer:
                response = web.StreamResponse(status=answer.status, headers=_passed(answer.headers.items()))
                await response.prepare(request)
                watch = _Watch(
                    asked, answer, response, request.transport, hides_bookmarks, _settled_version(asked)
                )
                self._watches.append(watch)
                try:
                    if not await self._relay(watch):
                        return _broken(request)
                finally:
                    self._watches.remove(watch)
                return response
        except ConnectionError:  # the client has left
            return _broken(request)
        except (aiohttp.ClientError, TimeoutError):
            return _broken(request)

    async def _relay(self, watch: _Watch) -> bool:
        """Pass a watch on to its end; tell whether that is an orderly one."""
        splitter = LineSplitter(limit=_LONGEST_LINE)
        loop = asyncio.get_running_loop()
        due = None if self._bookmark_period is None else loop.time() + self._bookmark_period
        while True:
            try:
                async with asyncio.timeout_at(due):
                    chunk: bytes | None = await watch.upstream.content.readany()
            except TimeoutError:
                chunk = None
            except aiohttp.ClientError:
                if not watch.is_ending:
                    return False
                chunk = b""
            if chunk == b"":
                break
            for line in splitter.feed(chunk or b""):
                if not await self._pass(watch, line):
                    return False
            if self._bookmark_period is not None and due is not None and loop.time() >= due:
                due = loop.time() + self._bookmark_period
                if watch.version and not await self._pass(watch, _bookmark(watch.version)):
                    return False
        if watch.is_silent:
            await self._closed.wait()
        elif splitter.remainder and not watch.is_ending:
            await watch.response.write(splitter.remainder)
        return True

    async def _pass(self, watch: _Watch, line: bytes) -> bool:
        """Pass one line on; tell whether the watch lives."""
        for hold in [hold for hold in self._holds if hold.path in watch.asked.path]:
            await hold.passed()
        event = _event_in(line)
        if watch.is_silent or (watch.hides_bookmarks and event.type == "BOOKMARK"):
            return True
        if watch.cuts_next:
            await watch.response.write(line[: len(line) // 2])
            return False
        if event.type == "BOOKMARK":
            watch.has_bookmark = True
        if watch.version or event.type == "BOOKMARK":
            watch.version = event.object.metadata.version or watch.version
        await watch.response.write(line + b"\n")
        return True

    def _request(
        self, request: web.Request, url: str, *, body: bytes = b""
    ) -> aiohttp.client._RequestContextManager:
        return self._transport.watches.request(
            request.method,
            URL(self._server + url, encoded=True),
            data=body or None,
            headers={**_passed(request.headers.items()), "Accept-Encoding": "identity"},
            timeout=_UNLIMITED,
            allow_redirects=False,
        )

    def _open(self, path: str) -> list[_Watch]:
        return [watch for watch in self._watches if path in watch.asked.path]


def _asked(request: web.Request) -> Asked:
    parts = request.path.strip("/").split("/")
    verb = request.method
    if verb == "GET" and request.query.get("watch") == "true":
        verb = "WATCH"
    elif verb == "GET" and _is_collection(parts):
        verb = "LIST"
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return Asked(
        verb,
        request.path,
        dict(request.query),
        request.headers.get("User-Agent", ""),
        asyncio.get_running_loop().time(),
        peer[1] if peer else 0,
    )


def _is_collection(parts: list[str]) -> bool:
    """Tell `api/v1[/namespaces/x]/plural` and `apis/group/v1[/namespaces/x]/plural` from everything else."""
    match parts:
        case ["api", _, *rest] | ["apis", _, _, *rest]:
            return len(rest) == 1 or (len(rest) == 3 and rest[0] == "namespaces")
        case _:
            return False


def _upstream_url(request: web.Request, version: str | None = None) -> str:
    url = request.rel_url if version is None else request.rel_url.update_query(resourceVersion=version)
    return url.raw_path_qs


def _settled_version(asked: Asked) -> str:
    """Return the version a watch begins at, "" when it begins with a burst in no order (W6)."""
    version = asked.query.get("resourceVersion", "")
    return "" if version == "0" or asked.query.get("sendInitialEvents") == "true" else version


def _event_in(line: bytes) -> _Event:
    try:
        return _decode_event(line)
    except msgspec.MsgspecError:
        return _Event()


def _bookmark(version: str) -> bytes:
    return orjson.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})


def _passed(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in headers if name.lower() not in _OWN_HEADERS}


def _refusal(fault: Refuse) -> web.Response:
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    body = status_object(fault.status, fault.reason, "refused by the fault proxy")
    return web.Response(
        status=fault.status, body=orjson.dumps(body), content_type="application/json", headers=headers
    )


def _expired(shape: Expired) -> web.Response:
    body = {"type": "ERROR", "object": EXPIRED} if shape is Expired.EVENT else EXPIRED
    return web.Response(
        status=410 if shape is Expired.STATUS else 200,
        body=orjson.dumps(body) + (b"\n" if shape is Expired.EVENT else b""),
        content_type="application/json",
    )


def _broken(request: web.Request) -> web.Response:
    """Break the connection off; the answer is for the framework alone and reaches nobody."""
    _abort(request.transport)
    return web.Response(status=502)


def _abort(transport: asyncio.Transport | None) -> None:
    if transport is not None:
        transport.abort()
