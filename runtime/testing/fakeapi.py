"""An API server on a real socket, for faults that only a socket can have.

It speaks list, watch and the simple verbs on any path, without validation or admission, over an :class:`ObjectLog`.
Reactions planned for a verb are consumed one by one before it answers in earnest; open watches are ended, cut, fed
with raw bytes or silenced from outside.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web

from runtime.client.config import ClientConfig, Timeouts
from runtime.objects import ObjectKey, Resource
from runtime.selector import Selector
from runtime.testing.memoryapi import EXPIRED, status_object
from runtime.testing.objectlog import Change, Compacted, ObjectLog

__all__ = ["Answer", "Drop", "FakeApi", "Recorded", "Stall"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with this instead."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stall:
    """Take the request and never answer."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Cut the connection instead of answering."""


Reaction = Answer | Stall | Drop


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it arrived."""

    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class _Target:
    resource: Resource
    namespace: str | None
    name: str | None
    subresource: str | None


class FakeApi:
    """The server; use it as `async with FakeApi(PODS, …) as api`, with the kinds it is to serve."""

    def __init__(self, *resources: Resource) -> None:
        self.log = ObjectLog()
        self.requests: list[Recorded] = []
        self._resources = {(r.group, r.version, r.plural): r for r in resources}
        self._planned: dict[str, deque[Reaction]] = {}
        self._watches: list[tuple[str, asyncio.Queue[bytes | None]]] = []
        self._silenced = False
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = site.name if ":0" not in site.name else self._bound()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()

    def config(self, *, timeouts: Timeouts | None = None, **changes: Any) -> ClientConfig:
        """Return the configuration of a client for this server."""
        return ClientConfig(self.url, timeouts=timeouts or Timeouts(), **changes)

    # Faults

    def plan(self, verb: str, *reactions: Reaction) -> None:
        """Add reactions for the next requests of a verb: LIST, WATCH, GET, POST, PUT, PATCH, DELETE."""
        self._planned.setdefault(verb, deque()).extend(reactions)

    def asked(self, verb: str) -> list[Recorded]:
        """Return the requests of a verb so far."""
        return [request for request in self.requests if request.verb == verb]

    @property
    def open_watches(self) -> int:
        """Return how many watches are open."""
        return len(self._watches)

    def end_watches(self) -> None:
        """End every open watch in order."""
        for _, queue in self._watches:
            queue.put_nowait(None)

    def cut_watches(self, *, after: bytes = b"") -> None:
        """Send these bytes to every open watch, then reset its connection."""
        for _, queue in self._watches:
            if after:
                queue.put_nowait(after)
            queue.put_nowait(b"")

    def send(self, line: bytes, *, to: str = "") -> None:
        """Send raw bytes and a line's end to every open watch, or to those of one path."""
        for path, queue in self._watches:
            if to in ("", path):
                queue.put_nowait(line + b"\n")

    def bookmark(self, resource: Resource) -> None:
        """Send every open watch a bookmark at the newest version."""
        mark = {"kind": resource.kind, "metadata": {"resourceVersion": str(self.log.version)}}
        self.send(orjson.dumps({"type": "BOOKMARK", "object": mark}))

    def silence(self) -> None:
        """Swallow all further events of the watches open now; new watches work (RT1)."""
        self._silenced = True

    # Serving

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        target = self._parse(request.path)
        body = await request.read()
        verb = request.method
        if target is not None and target.name is None and verb == "GET":
            verb = "WATCH" if request.query.get("watch") == "true" else "LIST"
        parsed = orjson.loads(body) if body else None
        self.requests.append(Recorded(verb, request.path, dict(request.query), dict(request.headers), parsed))
        planned = self._planned.get(verb)
        if planned:
            return await self._react(planned.popleft(), request)
        if target is None:
            return _failure(404, "NotFound", f"no such path: {request.path}")
        match verb:
            case "LIST":
                return self._list(target, request)
            case "WATCH":
                return await self._watch(target, request)
            case _:
                return self._single(verb, target, parsed)

    async def _react(self, reaction: Reaction, request: web.Request) -> web.StreamResponse:
        match reaction:
            case Answer(status, content, headers):
                return _json(status, content, headers)
            case Stall():
                await self._released.wait()
            case Drop():
                pass
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    def _list(self, target: _Target, request: web.Request) -> web.StreamResponse:
        selector = Selector.parse(request.query.get("labelSelector", ""))
        items = [
            {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
            for obj in self.log.objects(target.resource, target.namespace)
            if selector.matches(obj["metadata"].get("labels"))
        ]
        body = {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": {"resourceVersion": str(self.log.version)},
            "items": items,
        }
        return _json(200, body)

    async def _watch(self, target: _Target, request: web.Request) -> web.StreamResponse:
        try:
            missed = self.log.since(target.resource, int(request.query.get("resourceVersion") or 0))
        except Compacted:
            return _json(410, EXPIRED)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._silenced = False

        def follow(change: Change) -> None:
            inside = target.namespace in (None, change.obj["metadata"].get("namespace"))
            if change.collection == str(target.resource) and inside and not self._silenced:
                queue.put_nowait(orjson.dumps({"type": change.type, "object": change.obj}) + b"\n")

        for change in missed:
            follow(change)
        forget = self.log.listen(follow)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        watch = (request.path, queue)
        self._watches.append(watch)
        try:
            await response.prepare(request)
            while (chunk := await queue.get()) is not None:
                if not chunk:
                    if request.transport is not None:
                        request.transport.abort()
                    break
                await response.write(chunk)
        except ConnectionError:  # the client has left
            pass
        finally:
            self._watches.remove(watch)
            forget()
        return response

    def _single(self, verb: str, target: _Target, body: Any) -> web.StreamResponse:
        namespace = target.namespace or ""
        if verb == "POST" and target.name is None:
            metadata = body.setdefault("metadata", {})
            if target.namespace:
                metadata["namespace"] = target.namespace
            if self.log.get(target.resource, ObjectKey(namespace, metadata["name"])):
                return _failure(
                    409, "AlreadyExists", f"{target.resource} {metadata['name']!r} already exists"
                )
            return _json(201, self.log.put(target.resource, body))
        key = ObjectKey(namespace, target.name or "")
        stored = self.log.get(target.resource, key)
        if stored is None and not (verb == "PATCH" and target.subresource is None and "apiVersion" in body):
            return _failure(404, "NotFound", f"{target.resource} {key} not found")
        stored = stored or {"metadata": {"name": key.name, "namespace": key.namespace}}
        match verb:
            case "GET":
                return _json(200, stored)
            case "PUT":
                version = body["metadata"].get("resourceVersion")
                if version and version != stored["metadata"]["resourceVersion"]:
                    return _failure(409, "Conflict", "the object has been modified")
                return _json(200, self.log.put(target.resource, body))
            case "PATCH":
                return _json(200, self.log.put(target.resource, _merge(stored, body)))
            case "DELETE":
                return _json(200, self.log.delete(target.resource, key))
            case _:
                return _failure(405, "MethodNotAllowed", f"{verb} is not supported")

    def _parse(self, path: str) -> _Target | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                return None
        namespace = None
        if len(rest) >= 3 and rest[0] == "namespaces":
            _, namespace, *rest = rest
        if not rest:
            return None
        plural, *rest = rest
        resource = self._resources.get((group, version, plural))
        if resource is None:
            return None
        name, subresource = (*rest, None, None)[:2]
        return _Target(resource, namespace, name, subresource)

    def _bound(self) -> str:
        assert self._runner is not None
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"


def _json(status: int, body: Any, headers: Mapping[str, str] | None = None) -> web.Response:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return web.Response(status=status, body=content, content_type="application/json", headers=headers)


def _failure(code: int, reason: str, message: str) -> web.Response:
    return _json(code, status_object(code, reason, message))


def _merge(target: Any, patch: Any) -> Any:
    """Merge as RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged
