"""Is the process alive, is it ready, what does it count: three pages for the kubelet and Prometheus (S9, L8).

``/healthz`` fails when restarting the process is the cure: the event loop lags, a task that should run for ever has
ended, a leader has stopped renewing. ``/readyz`` fails while the process has nothing to offer yet, or no longer. Both
name what failed, one line each, so that the kubelet's event tells the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from aiohttp import web

from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.metrics import CONTENT_TYPE, Metrics

__all__ = ["Check", "HealthServer", "LoopLag"]

Check = Callable[[], str | None]
"""Returns None if all is well, else one sentence that says what is not."""

LAG_LIMIT = 5.0
"""Seconds of lag from which the process counts as stuck."""

LAG_PERIOD = 0.25
"""Seconds between two looks at the loop."""


class LoopLag:
    """Measures how late the event loop runs."""

    def __init__(self, *, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self.last = 0.0
        """Seconds by which the last sleep was too long."""

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(LAG_PERIOD)
            self.last = max(0.0, self._clock.monotonic() - before - LAG_PERIOD)
            self._metrics.loop_lag.set(self.last)

    def check(self) -> str | None:
        """Return why the loop counts as stuck, or None."""
        if self.last >= LAG_LIMIT:
            return f"the event loop was blocked for {self.last:.1f} s"
        return None


class HealthServer:
    """Serves ``/healthz``, ``/readyz`` and ``/metrics``.

    Assumptions: checks are quick and do not raise; they run on the event loop.
    """

    def __init__(self, host: str, port: int, *, metrics: Metrics) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._checks: dict[str, dict[str, Check]] = {"live": {}, "ready": {}}
        self._runner: web.AppRunner | None = None
        self._log = get_logger("runtime.health")

    @property
    def port(self) -> int:
        """The port in use, which differs from the one asked for if that was 0."""
        if self._runner is None or not self._runner.addresses:
            return self._port
        return int(self._runner.addresses[0][1])

    def add_check(self, name: str, check: Check, *, kind: Literal["live", "ready"] = "ready") -> None:
        """Let `check` have a say in whether the process is live or ready; a later one of a name replaces it."""
        self._checks[kind][name] = check

    def failures(self, kind: Literal["live", "ready"]) -> dict[str, str]:
        """Return what the failing checks say, by name."""
        return {name: told for name, check in self._checks[kind].items() if (told := check()) is not None}

    async def start(self) -> None:
        """Begin to listen.

        Raises: OSError when the address cannot be bound.
        """
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/livez", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._serve_metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stop listening and close connections. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return self._answer("live")

    async def _readyz(self, _request: web.Request) -> web.Response:
        return self._answer("ready")

    def _answer(self, kind: Literal["live", "ready"]) -> web.Response:
        failures = self.failures(kind)
        if not failures:
            return web.Response(text="ok\n")
        if kind == "live":
            self._log.error("process is not live", **failures)
        lines = "".join(f"{name}: {told}\n" for name, told in failures.items())
        return web.Response(status=503, text=lines)

    async def _serve_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": CONTENT_TYPE})
