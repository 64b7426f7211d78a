"""The HTTPS server behind the API server's webhooks (AD7, AD8, section 4 of the runtime's rules).

It starts before the caches, because our own LIST may need our own conversion. What is no review is refused before it
is decoded: too long, compressed, of another type, empty, or never arriving. A handler that raises is counted and
answered with 500 inside the review; it never ends the process and never leaves the API server waiting.
"""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from runtime.clock import Clock, SystemClock
from runtime.errors import RuntimeFault
from runtime.listener import BODY_DEADLINE, TlsListener
from runtime.logs import get_logger
from runtime.metrics import Metrics
from runtime.webhook import admission, conversion
from runtime.webhook.admission import Denied, Reviewer, Verdict
from runtime.webhook.certs import CertificateWatcher
from runtime.webhook.conversion import Converter
from runtime.webhook.review import ReviewMalformed

__all__ = ["WebhookServer"]

MAX_ADMISSION = 7 * 1024 * 1024
"""Bytes of an admission review: two objects of the largest size the API server takes, and room for the envelope."""

MAX_CONVERSION = 64 * 1024 * 1024
"""Bytes of a conversion review, which may hold a whole page of a list."""

_Answer = Callable[[bytes], Awaitable[bytes]]


class WebhookServer:
    """Serves reviews under paths; `start` and `stop` make it a server of the manager.

    Guarantees: `start` returns only when reviews are answered.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificates: CertificateWatcher,
        metrics: Metrics,
        clock: Clock | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._certificates = certificates
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._answers: dict[str, tuple[int, _Answer]] = {}
        self._listener: TlsListener | None = None
        self._log = get_logger("runtime.webhook")

    @property
    def port(self) -> int:
        """The port in use, which differs from the one asked for if that was 0."""
        return self._port if self._listener is None else self._listener.port

    def add_admission(self, path: str, reviewer: Reviewer) -> None:
        """Answer admission reviews under a path."""

        async def answer(body: bytes) -> bytes:
            request, denial = admission.parse_review(body)
            verdict: Verdict
            if denial is not None:
                verdict = denial
            else:
                try:
                    verdict = await admission.review(reviewer, request)
                except Exception as error:  # like a reconcile: one bad request must not stop the others
                    self._count_panic(path, error)
                    verdict = Denied("the webhook failed, see its log", 500, "InternalError")
            return admission.encode_verdict(request.uid, verdict)

        self._add(path, MAX_ADMISSION, answer)

    def add_conversion(self, path: str, convert: Converter) -> None:
        """Answer conversion reviews under a path."""

        async def answer(body: bytes) -> bytes:
            request = conversion.parse_review(body)
            try:
                return await conversion.convert_review(request, convert)
            except Exception as error:
                self._count_panic(path, error)
                return conversion.encode_failure(request.uid, "the conversion failed, see the webhook's log")

        self._add(path, MAX_CONVERSION, answer)

    async def start(self) -> None:
        """Load the certificate and begin to listen.

        Raises: ConfigurationInvalid when there is no good certificate; OSError when the address cannot be bound.
        """
        self._certificates.load()
        app = web.Application(client_max_size=MAX_CONVERSION)
        for path in self._answers:
            app.router.add_post(path, self._handle)
        listener = TlsListener(app, context=self._certificates.context)
        await listener.start(self._host, self._port)
        self._listener = listener

    async def stop(self) -> None:
        """Let reviews in progress end, then close. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()

    def _add(self, path: str, limit: int, answer: _Answer) -> None:
        if path in self._answers:
            raise ValueError(f"webhook path {path!r} is taken")
        self._answers[path] = limit, answer
        self._metrics.declare_webhook(path)

    async def _handle(self, request: web.Request) -> web.Response:
        path = request.path
        started = self._clock.monotonic()
        with self._metrics.webhook_in_flight.labels(path).track_inprogress():
            response = await self._answer(request)
        self._metrics.webhook_requests.labels(path, str(response.status)).inc()
        self._metrics.webhook_latency.labels(path).observe(self._clock.monotonic() - started)
        return response

    async def _answer(self, request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _refusal(415, f"a review is application/json, not {request.content_type}")
        # Compressed, a small body may be a huge one; the API server never compresses.
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return _refusal(415, "a review must not be compressed")
        limit, answer = self._answers[request.path]
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                body = await request.clone(client_max_size=limit).read()
        except web.HTTPRequestEntityTooLarge:
            return _refusal(413, f"a review has at most {limit} bytes")
        except TimeoutError:
            return _refusal(408, f"the body did not arrive within {BODY_DEADLINE:g} s")
        if not body:
            return _refusal(400, "the body is empty")
        try:
            answered = await answer(body)
        except ReviewMalformed as error:
            return _refusal(400, str(error))
        return web.Response(body=answered, content_type="application/json")

    def _count_panic(self, path: str, error: Exception) -> None:
        self._metrics.webhook_panics.inc()
        self._log.error(
            "webhook failed",
            webhook=path,
            error=str(error) or type(error).__name__,
            exc_info=None if isinstance(error, RuntimeFault) else error,
        )


def _refusal(status: int, message: str) -> web.Response:
    return web.Response(status=status, text=message + "\n")
