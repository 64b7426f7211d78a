"""Typed verbs on the API (K6, R5).

One :class:`Client` serves one event loop. A verb builds the request and reads the answer; how it gets there and back
is `exchange`'s business. Nothing is cached here.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self

import msgspec
import orjson

from runtime.backoff import Rng
from runtime.client.config import ClientConfig
from runtime.client.errors import ResponseMalformed
from runtime.client.exchange import Exchange, Request
from runtime.client.pager import PAGE_SIZE, Page, list_all
from runtime.client.stream import WatchStream
from runtime.client.telemetry import RequestMetrics, Uncounted
from runtime.clock import Clock, SystemClock
from runtime.fence import WriteFence
from runtime.objects import JsonObject, Resource, key_of

__all__ = ["Client", "ListResult", "PatchKind"]


class PatchKind(Enum):
    """How the body of a patch is meant."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"
    STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class ListResult:
    """A whole collection and the version it was read at."""

    items: list[dict[str, Any]]
    resource_version: str


class Client:
    """The API server, as verbs.

    Guarantees: no request is without a deadline; no mutating request starts while the fence is shut.
    Cancellation: safe at any await; whether a write that was under way took effect is then unknown.
    Raises: every verb may raise ApiError, TransportError, and for writes LeadershipLost.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        fence: WriteFence | None = None,
        clock: Clock | None = None,
        metrics: RequestMetrics | None = None,
        rng: Rng | None = None,
    ) -> None:
        self.config = config
        self._exchange = Exchange(
            config,
            fence=fence,
            clock=clock or SystemClock(),
            metrics=metrics or Uncounted(),
            rng=rng or random.Random(),
        )

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Load certificates and make the sessions; idempotent."""
        await self._exchange.open()

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._exchange.close()

    # Reading

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Read one object from the API server, not from a cache."""
        return await self._json("GET", resource.path(namespace, name=name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        limit: int = PAGE_SIZE,
    ) -> ListResult:
        """Read a whole collection at its newest version, `limit` objects a page."""
        selection = selection_params(labels=labels, fields=fields)

        async def fetch(params: Mapping[str, str]) -> bytes:
            return await self.fetch_page(resource, namespace, params={**selection, **params})

        listing = await list_all(fetch, _decode_item, version="", limit=limit)
        return ListResult(listing.items, listing.resource_version)

    async def raw_version(self) -> dict[str, Any]:
        """Read the server's `/version`."""
        return await self._json("GET", "/version")

    # Writing

    async def create(
        self,
        resource: Resource,
        body: JsonObject,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
    ) -> dict[str, Any]:
        """Create an object; the namespace is the body's unless given."""
        path = resource.path(namespace or key_of(body).namespace or None)
        return await self._json(
            "POST", path, params=_optional(fieldManager=field_manager), body=_typed(resource, body)
        )

    async def create_subresource(
        self, resource: Resource, name: str, subresource: str, body: JsonObject, namespace: str | None = None
    ) -> dict[str, Any]:
        """Post to a subresource: an eviction, a token request, a binding."""
        return await self._json(
            "POST", resource.path(namespace, name=name, subresource=subresource), body=body
        )

    async def replace(
        self, resource: Resource, body: JsonObject, *, subresource: str | None = None
    ) -> dict[str, Any]:
        """Write a whole object; the version in the body makes the write conditional.

        Raises: Conflict when the object has changed since.
        """
        key = key_of(body)
        path = resource.path(key.namespace or None, name=key.name, subresource=subresource)
        return await self._json("PUT", path, body=_typed(resource, body))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        field_manager: str | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Change parts of an object; `APPLY` creates it when it does not exist.

        Raises: ValueError for an apply without a field manager; Conflict, NotFound, Invalid.
        """
        if kind is PatchKind.APPLY:
            if not field_manager:
                raise ValueError(f"apply of {resource.kind} {name!r} names no field manager")
            body = _typed(resource, body)
        params = _optional(fieldManager=field_manager)
        if force:
            params["force"] = "true"
        return await self._json(
            "PATCH",
            resource.path(namespace, name=name, subresource=subresource),
            params=params,
            body=body,
            headers={"Content-Type": kind.value},
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str | None = None,
        grace_seconds: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> dict[str, Any] | None:
        """Delete an object, provided it still has this uid and version when they are given.

        Raises: NotFound when it is gone; Conflict when another object bears the name now.
        """
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation is not None:
            options["propagationPolicy"] = propagation
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if preconditions := _optional(uid=uid, resourceVersion=resource_version):
            options["preconditions"] = preconditions
        return await self._json("DELETE", resource.path(namespace, name=name), body=options)

    # Below the verbs

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        total: float | None = None,
        retry: bool = True,
    ) -> bytes:
        """Send any request and return the body of its answer; `body` is JSON, or bytes as they are."""
        content = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        sent = {"Accept": "application/json", **(headers or {})}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        request = Request(method, path, params or {}, content, sent, total or self.config.timeouts.total)
        return await self._exchange.call(request, retry=retry)

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        accept: str = "application/json",
        retry: bool = True,
    ) -> bytes:
        """Read one page of a collection, undecoded."""
        return await self.request(
            "GET",
            resource.path(namespace),
            params=params,
            headers={"Accept": accept},
            total=self.config.timeouts.list_total,
            retry=retry,
        )

    async def open_watch(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        params: Mapping[str, str],
        timeout_seconds: int,
        accept: str = "application/json",
    ) -> WatchStream:
        """Start a watch and return its stream, which the caller closes.

        Never retried here: what to do next depends on the state of the cache (W9).
        """
        return await self._exchange.open_stream(
            resource.path(namespace),
            params={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(timeout_seconds),
                **params,
            },
            # Compressed, an event would wait in the compressor for the next one.
            headers={"Accept": accept, "Accept-Encoding": "identity"},
            lifetime=timeout_seconds + self.config.timeouts.watch_grace,
        )

    async def open_stream(
        self, path: str, *, params: Mapping[str, str], lifetime: float, accept: str = "*/*"
    ) -> WatchStream:
        """Start reading an answer that grows, such as a log that is followed; the caller closes the stream.

        Never retried here, as with a watch. Lines that hold nothing but blanks are left out.
        """
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        return await self._exchange.open_stream(path, params=params, headers=headers, lifetime=lifetime)

    def refresh_credentials(self, *, sent_at: float) -> None:
        """Note that a request sent at `sent_at` was answered 401 within its stream (W8)."""
        self._exchange.refresh_credentials(sent_at=sent_at)

    async def _json(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        answer = await self.request(method, path, params=params, body=body, headers=headers)
        try:
            parsed = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise ResponseMalformed(f"{method} {path}: the answer is no JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise ResponseMalformed(f"{method} {path}: the answer is no object but {type(parsed).__name__}")
        return parsed


def selection_params(*, labels: str | None, fields: str | None) -> dict[str, str]:
    """Return the query that narrows a collection."""
    return _optional(labelSelector=labels, fieldSelector=fields)


def _optional(**params: str | None) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}


def _typed(resource: Resource, body: JsonObject) -> JsonObject:
    """Add kind and version, which objects out of lists and caches lack."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _decode_item(page: Page, raw: msgspec.Raw) -> dict[str, Any]:
    item: dict[str, Any] = orjson.loads(memoryview(raw))
    # Items of a list leave out what the list says once; whoever writes one back needs it.
    item.setdefault("apiVersion", page.api_version)
    item.setdefault("kind", page.kind)
    return item
