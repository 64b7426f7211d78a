"""When a request is tried again."""

import asyncio
import itertools

import pytest

from runtime.client import errors
from runtime.client.config import ClientConfig
from runtime.client.errors import TransportError, TransportFault, error_of_status
from runtime.client.retry import MAX_TRIES, retry_on_conflict, retry_request
from runtime.client.telemetry import Uncounted
from runtime.client.throttle import Throttle, TokenBucket
from runtime.clock import LoopClock
from runtime.tasks import run_all
from runtime.testing.simloop import simulated


class Zero:
    def random(self):
        return 0.0


def refusal(code, reason, *, retry_after=None, cause=None):
    status = {"code": code, "reason": reason}
    if cause:
        status["details"] = {"causes": [{"reason": cause}]}
    return error_of_status(status, retry_after=retry_after)


def unanswered(fault):
    return TransportError(fault.value, fault=fault)


class Attempts:
    """Fails with each error in turn, then succeeds; remembers when it was tried."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.times = []

    async def __call__(self):
        self.times.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def run(attempts, *, method="POST"):
    retried = []
    try:
        return await retry_request(
            attempts, method=method, clock=LoopClock(), rng=Zero(), on_retry=retried.append
        )
    finally:
        assert len(retried) == len(attempts.times) - 1


REPEATED_ALWAYS = [
    refusal(429, "TooManyRequests"),
    refusal(429, "TooManyRequests", retry_after=1.0),
    refusal(503, "ServiceUnavailable", retry_after=1.0),
    unanswered(TransportFault.CONNECT),
]
REPEATED_FOR_READS = [
    refusal(503, "ServiceUnavailable"),
    refusal(504, "Timeout"),
    unanswered(TransportFault.RESET),
    unanswered(TransportFault.TIMEOUT),
]
NEVER_REPEATED = [
    refusal(429, "TooManyRequests", cause="DisruptionBudget"),
    refusal(429, "TooManyRequests", retry_after=3600.0),
    refusal(409, "Conflict"),
    refusal(404, "NotFound"),
    refusal(500, "InternalError"),
]


def name(error):
    return f"{type(error).__name__} {error}"


@pytest.mark.parametrize("failure", REPEATED_ALWAYS, ids=name)
def test_what_was_not_processed_is_repeated_for_any_method(failure):
    """K2."""

    @simulated
    async def scenario():
        for method in ("GET", "POST", "PATCH"):
            assert await run(Attempts(failure, failure), method=method) == "done"

    scenario()


@pytest.mark.parametrize("failure", REPEATED_FOR_READS, ids=name)
def test_what_may_have_been_processed_is_repeated_for_reads_only(failure):
    """K2: a create that was cut off may exist; its caller knows the name (R1)."""

    @simulated
    async def scenario():
        assert await run(Attempts(failure), method="GET") == "done"
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            with pytest.raises(type(failure)):
                await run(Attempts(failure), method=method)

    scenario()


@pytest.mark.parametrize("failure", NEVER_REPEATED, ids=name)
def test_what_would_fail_again_is_not_repeated(failure):
    """K2, R4."""

    @simulated
    async def scenario():
        attempts = Attempts(failure)
        with pytest.raises(type(failure)):
            await run(attempts, method="GET")
        assert len(attempts.times) == 1

    scenario()


@simulated
async def test_throttling_ends_after_ten_tries_with_its_own_error_and_keeps_retry_after():
    """K2, RT40."""
    attempts = Attempts(*[refusal(429, "TooManyRequests", retry_after=1.0)] * 30)
    with pytest.raises(errors.TooManyRequests):
        await run(attempts)
    assert len(attempts.times) == MAX_TRIES == 10
    gaps = [later - earlier for earlier, later in zip(attempts.times, attempts.times[1:], strict=False)]
    assert min(gaps) >= 1.0


@simulated
async def test_a_dead_server_is_given_up_after_three_tries():
    """K2."""
    attempts = Attempts(*[unanswered(TransportFault.CONNECT)] * 5)
    with pytest.raises(TransportError):
        await run(attempts)
    assert len(attempts.times) == 3


@simulated
async def test_conflicts_are_retried_five_times_ten_milliseconds_apart():
    """R4."""
    attempts = Attempts(*[refusal(409, "Conflict")] * 4)
    assert await retry_on_conflict(attempts, clock=LoopClock(), rng=Zero()) == "done"
    gaps = [later - earlier for earlier, later in zip(attempts.times, attempts.times[1:], strict=False)]
    assert gaps == pytest.approx([0.009] * 4)
    with pytest.raises(errors.Conflict):
        await retry_on_conflict(Attempts(*[refusal(409, "Conflict")] * 5), clock=LoopClock(), rng=Zero())


@simulated
async def test_contended_objects_are_retried_further_and_further_apart():
    """R4: four times with factor 5, each wait a tenth longer at most."""

    class AlmostOne:
        def random(self):
            return 1 - 1e-9

    attempts = Attempts(*[refusal(409, "Conflict")] * 4)
    with pytest.raises(errors.Conflict):
        await retry_on_conflict(attempts, clock=LoopClock(), rng=AlmostOne(), tries=4, factor=5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(attempts.times)]
    assert gaps == pytest.approx([0.011, 0.055, 0.275])


@simulated
async def test_an_existing_object_is_no_conflict():
    """R4."""
    attempts = Attempts(refusal(409, "AlreadyExists"))
    with pytest.raises(errors.AlreadyExists):
        await retry_on_conflict(attempts, clock=LoopClock(), rng=Zero())
    assert len(attempts.times) == 1


def test_the_bucket_lets_a_burst_through_then_keeps_the_rate():
    """K3."""
    bucket = TokenBucket(rate=10.0, burst=3, now=0.0)
    assert [bucket.reserve(0.0) for _ in range(5)] == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2])
    assert bucket.reserve(100.0) == 0.0
    assert [bucket.reserve(100.0) for _ in range(3)] == pytest.approx([0.0, 0.0, 0.1])


@simulated
async def test_rate_and_number_in_flight_stay_within_their_limits():
    """K3, RT40."""
    config = ClientConfig("https://api", qps=10.0, burst=1, in_flight=2)
    throttle = Throttle(config, clock=LoopClock(), metrics=Uncounted())
    running, peak, started = 0, 0, []

    async def request():
        nonlocal running, peak
        async with throttle.attempt():
            running += 1
            peak = max(peak, running)
            started.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.5)
            running -= 1

    await run_all(*(request() for _ in range(8)))
    assert peak == 2
    assert started[-1] - started[0] >= 1.5
