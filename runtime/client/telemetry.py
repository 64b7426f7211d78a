"""What the client counts, as a seam: whoever owns the registry implements it."""

from typing import Protocol

__all__ = ["RequestMetrics", "Uncounted"]


class RequestMetrics(Protocol):
    """The counters of requests (C8, `rest_client_*`)."""

    def request_finished(self, *, code: str, method: str, host: str, seconds: float) -> None:
        """Count an attempt; the code is `<error>` when no answer came."""
        ...

    def request_retried(self, *, code: str, method: str, host: str) -> None:
        """Count a repeated attempt."""
        ...

    def request_throttled(self, *, seconds: float) -> None:
        """Record how long an attempt waited for the token bucket and the in-flight limit."""
        ...


class Uncounted:
    """Counts nothing: the choice of a client that nobody watches."""

    def request_finished(self, *, code: str, method: str, host: str, seconds: float) -> None:
        """Count nothing."""

    def request_retried(self, *, code: str, method: str, host: str) -> None:
        """Count nothing."""

    def request_throttled(self, *, seconds: float) -> None:
        """Record nothing."""
