"""One request and its answer: turn, fence, credentials, deadline, error class (K1–K5, K8, L6).

Here is the order in which an attempt is prepared, which matters: it takes its turn in the throttle, gets a token,
and asks the fence last of all, for the waits before may have outlived the permission. A 401 is answered with fresh
credentials once; what else may be repeated is decided in `retry`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import aiohttp

from runtime.backoff import Rng
from runtime.client.config import ClientConfig
from runtime.client.credentials import Credentials
from runtime.client.errors import ApiError, TransportError, TransportFault, Unauthorized, error_of
from runtime.client.retry import retry_request
from runtime.client.stream import WatchStream
from runtime.client.telemetry import RequestMetrics
from runtime.client.throttle import Throttle
from runtime.client.transport import Transport
from runtime.clock import Clock
from runtime.fence import WriteFence

__all__ = ["Exchange", "Request"]

_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent, and how long all of it may take."""

    method: str
    path: str
    params: Mapping[str, str]
    content: bytes | None
    headers: Mapping[str, str]
    total: float


class Exchange:
    """Bytes to and from one API server.

    Guarantees: no request is without a deadline; no mutating request starts while the fence is shut.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        fence: WriteFence | None,
        clock: Clock,
        metrics: RequestMetrics,
        rng: Rng,
    ) -> None:
        self._config = config
        self._fence = fence
        self._clock = clock
        self._metrics = metrics
        self._rng = rng
        self._transport = Transport(config)
        self._credentials = Credentials(config, clock=clock)
        self._throttle = Throttle(config, clock=clock, metrics=metrics)
        self._host = urlsplit(config.server).netloc

    async def open(self) -> None:
        """Load certificates and make the sessions; idempotent."""
        await self._transport.open()

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._transport.close()

    async def call(self, request: Request, *, retry: bool) -> bytes:
        """Send a request, again if that makes sense, and return the body of a good answer.

        Raises: ApiError, TransportError; LeadershipLost for a write outside leadership.
        """

        def on_retry(error: BaseException) -> None:
            code = str(error.status) if isinstance(error, ApiError) else "<error>"
            self._metrics.request_retried(code=code, method=request.method, host=self._host)

        if not retry:
            return await self._authorized(request)
        return await retry_request(
            partial(self._authorized, request),
            method=request.method,
            clock=self._clock,
            rng=self._rng,
            on_retry=on_retry,
        )

    async def open_stream(
        self, path: str, *, params: Mapping[str, str], headers: Mapping[str, str], lifetime: float
    ) -> WatchStream:
        """Start a watch that ends within `lifetime` and return its stream, which the caller closes.

        Raises: ApiError, TransportError.
        """
        token = await self._credentials.token()
        timeouts = self._config.timeouts
        await self._transport.refresh(self._clock.monotonic())
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(timeouts.watch_start):
                response = await self._transport.watches.get(
                    self._config.server + path,
                    params=params,
                    headers={**headers, **_authorization(token)},
                    # The stream guards its own deadlines; one for the whole answer would cut it (PY7).
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect, sock_read=None),
                    server_hostname=self._config.tls_server_name,
                    allow_redirects=False,
                )
                if response.status != 200:
                    async with response:
                        raise self._refusal(response, await response.read(), sent_at=started)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _transport_error(error, f"WATCH {path}") from error
        return WatchStream(
            response, max_line=self._config.max_line, lifetime=lifetime, silence=timeouts.watch_silence
        )

    def refresh_credentials(self, *, sent_at: float) -> None:
        """Note that a request sent at `sent_at` was answered 401 within its stream (W8)."""
        self._credentials.refused(sent_at=sent_at)

    async def _authorized(self, request: Request) -> bytes:
        """Make one attempt, and a second one with fresh credentials if the first was answered 401 (K1)."""
        sent_at = self._clock.monotonic()
        try:
            return await self._attempt(request)
        except Unauthorized:
            if not self._credentials.refused(sent_at=sent_at):
                raise
        return await self._attempt(request)

    async def _attempt(self, request: Request) -> bytes:
        async with self._throttle.attempt():
            token = await self._credentials.token()
            await self._transport.refresh(self._clock.monotonic())
            started = self._clock.monotonic()
            code = "<error>"
            total = request.total
            fence = self._fence if request.method in _MUTATING else None
            if fence is not None:  # last of all, for the waits above may have outlived the permission
                fence.check()
                total = min(total, fence.time_to_end(started))
            try:
                async with (
                    asyncio.timeout(total),
                    self._transport.calls.request(
                        request.method,
                        self._config.server + request.path,
                        params=request.params,
                        data=request.content,
                        headers={**request.headers, **_authorization(token)},
                        timeout=self._session_timeout(total),
                        server_hostname=self._config.tls_server_name,
                        allow_redirects=False,
                    ) as response,
                ):
                    body = await response.read()
                    code = str(response.status)
                    if response.status >= 300:
                        raise error_of(response.status, body, retry_after=_retry_after(response))
                    return body
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if fence is not None:
                    fence.check()
                raise _transport_error(error, f"{request.method} {request.path}") from error
            finally:
                self._metrics.request_finished(
                    code=code,
                    method=request.method,
                    host=self._host,
                    seconds=self._clock.monotonic() - started,
                )

    def _session_timeout(self, total: float) -> aiohttp.ClientTimeout:
        timeouts = self._config.timeouts
        return aiohttp.ClientTimeout(
            total=total,
            sock_connect=min(timeouts.connect, total),
            sock_read=min(max(timeouts.read, 1.0), total),
        )

    def _refusal(self, response: aiohttp.ClientResponse, body: bytes, *, sent_at: float) -> ApiError:
        error = error_of(response.status, body, retry_after=_retry_after(response))
        if isinstance(error, Unauthorized):
            self._credentials.refused(sent_at=sent_at)
        return error


def _authorization(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Read Retry-After in seconds; the API server never sends the form with a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _transport_error(error: Exception, what: str) -> TransportError:
    match error:
        case aiohttp.ServerTimeoutError() | aiohttp.ConnectionTimeoutError() | TimeoutError():
            fault = TransportFault.TIMEOUT
        case aiohttp.ClientConnectorError():
            fault = TransportFault.CONNECT
        case _:
            fault = TransportFault.RESET
    return TransportError(f"{what}: {fault.value}: {error or type(error).__name__}", fault=fault)
