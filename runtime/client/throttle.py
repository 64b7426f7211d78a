"""How many requests, and how fast (K3).

A token bucket limits the rate when one is configured, a semaphore the number in flight. Every attempt passes both,
so that retries cannot exceed what calls may not.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtime.client.config import ClientConfig
from runtime.client.telemetry import RequestMetrics
from runtime.clock import Clock

__all__ = ["Throttle", "TokenBucket"]


class TokenBucket:
    """Lets `burst` through at once and `rate` a second after that, in order of arrival."""

    def __init__(self, *, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = max(burst, 1)
        self._tokens = float(self._burst)
        self._updated_at = now

    def reserve(self, now: float) -> float:
        """Take a token, on credit if need be, and return how long to wait for it."""
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate)
        self._updated_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._rate)


class Throttle:
    """The bucket and the semaphore of one client.

    Guarantees: no more attempts at once, and a second, than configured, those that are repeated included.
    """

    def __init__(self, config: ClientConfig, *, clock: Clock, metrics: RequestMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._in_flight = asyncio.Semaphore(config.in_flight)
        self._qps = config.qps
        self._burst = config.burst
        self._bucket: TokenBucket | None = None

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it for the block."""
        started = self._clock.monotonic()
        if self._qps is not None:
            if self._bucket is None:
                self._bucket = TokenBucket(rate=self._qps, burst=self._burst, now=started)
            if (delay := self._bucket.reserve(started)) > 0:
                await self._clock.sleep(delay)
        async with self._in_flight:
            self._metrics.request_throttled(seconds=self._clock.monotonic() - started)
            yield
