"""When to try a request again (K2, R4); the only module that uses tenacity.

An answer of 429, or of 503 with Retry-After, was not processed: any method is repeated. A connection that was never
made likewise. Cut off or late, a request may have been processed: only reads are repeated. Waiting is the larger of
our own backoff and what the server asks for, on the injected clock.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import tenacity
from tenacity.wait import wait_base

from runtime.backoff import Rng
from runtime.client.errors import (
    ApiError,
    Conflict,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
    TransportFault,
)
from runtime.clock import Clock

__all__ = ["MAX_TRIES", "is_retryable", "retry_on_conflict", "retry_request"]

T = TypeVar("T")

MAX_TRIES = 10
_MAX_TRANSPORT_TRIES = (
    3  # whoever calls has a backoff of his own; a dead server must not hold a worker for long
)
_BASE, _CAP = 0.1, 5.0
_RETRY_AFTER_CAP = 60.0  # a server that asks for an hour gets its error back instead


def is_retryable(error: BaseException, *, method: str, tries: int) -> bool:
    """Tell whether a request that failed with `error` after `tries` attempts may be sent again."""
    reads = method in ("GET", "HEAD")
    match error:
        case TooManyRequests() if error.has_cause("DisruptionBudget"):
            return False  # an eviction the budget refuses: the caller decides when to come back
        case TooManyRequests():
            return tries < MAX_TRIES and (error.retry_after or 0.0) <= _RETRY_AFTER_CAP
        case ServiceUnavailable() if error.retry_after is not None:
            return tries < MAX_TRIES and error.retry_after <= _RETRY_AFTER_CAP
        case ServiceUnavailable() | ServerTimeout():
            return reads and tries < _MAX_TRANSPORT_TRIES
        case TransportError(fault=TransportFault.CONNECT):
            return tries < _MAX_TRANSPORT_TRIES
        case TransportError():
            return reads and tries < _MAX_TRANSPORT_TRIES
        case _:
            return False


async def retry_request(
    attempt: Callable[[], Awaitable[T]],
    *,
    method: str,
    clock: Clock,
    rng: Rng,
    on_retry: Callable[[BaseException], None],
) -> T:
    """Run attempts of one request until one succeeds or another makes no sense.

    Raises: the error of the last attempt, unchanged.
    """

    def should_retry(state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        return error is not None and is_retryable(error, method=method, tries=state.attempt_number)

    def before_sleep(state: tenacity.RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            on_retry(error)

    retrying = tenacity.AsyncRetrying(
        retry=should_retry,
        wait=_Wait(rng),
        sleep=clock.sleep,
        before_sleep=before_sleep,
        reraise=True,
    )
    return await retrying(attempt)


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[T]],
    *,
    clock: Clock,
    rng: Rng,
    tries: int = 5,
    base: float = 0.01,
    factor: float = 1.0,
) -> T:
    """Repeat a read-change-write while another writer wins the race (R4).

    The attempt must read the object afresh each time: repeating a write of the whole object would undo the other's.
    Contended objects use `tries=4, factor=5`.

    Raises: Conflict when all tries lost.
    """

    def wait(state: tenacity.RetryCallState) -> float:
        return base * factor ** (state.attempt_number - 1) * (0.9 + 0.2 * rng.random())

    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(Conflict),
        stop=tenacity.stop_after_attempt(tries),
        wait=wait,
        sleep=clock.sleep,
        reraise=True,
    )
    return await retrying(attempt)


class _Wait(wait_base):
    """Our own growing delay, or the server's when that is longer."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        own = min(_CAP, _BASE * 2.0 ** (retry_state.attempt_number - 1)) * (0.5 + 0.5 * self._rng.random())
        error = retry_state.outcome.exception() if retry_state.outcome is not None else None
        asked = error.retry_after if isinstance(error, ApiError) else None
        return max(own, asked or 0.0)
