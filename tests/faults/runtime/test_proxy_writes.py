"""Writes to an API server that throttles, stalls or answers late."""

import asyncio
import itertools
import time

import pytest

from proxied import HastyClock, Heard, caching, config_map, names, until
from runtime.client import ApiError, Client, ServiceUnavailable, TooManyRequests
from runtime.clock import SystemClock
from runtime.events import EventRecorder
from runtime.metrics import Metrics
from runtime.objects import CONFIGMAPS
from runtime.tasks import TaskScope
from runtime.testing.faults import Delay, Refuse, Stall


async def test_a_throttling_server_is_asked_as_seldom_as_it_wants_and_ten_times_at_most(proxy, namespace):
    """K2, RT40: Retry-After is kept by every verb, and the last answer becomes a typed error."""
    clock = HastyClock(pace=10)
    throttled = proxy.inject(Refuse(429, "TooManyRequests", retry_after=1))
    async with Client(proxy.config(), clock=clock) as client:
        for call in (
            client.get(CONFIGMAPS, "a", namespace),
            client.create(CONFIGMAPS, config_map(namespace, "a")),
        ):
            before = len(proxy.asked_all)
            with pytest.raises(TooManyRequests) as failure:
                await call
            assert failure.value.retry_after == 1.0
            asked = [each.at * clock.pace for each in proxy.asked_all[before:]]
            assert len(asked) == 10
            assert min(later - earlier for earlier, later in itertools.pairwise(asked)) >= 0.95
        throttled.withdraw()
        await client.create(CONFIGMAPS, config_map(namespace, "a"))


async def test_retries_pass_the_rate_limit_like_any_request(proxy, namespace):
    """K3, RT40: twenty callers who are all throttled stay below what is configured."""
    throttled = proxy.inject(Refuse(429, "TooManyRequests", retry_after=1))
    async with Client(proxy.config(qps=50, burst=5)) as client, TaskScope() as scope:
        begin = asyncio.get_running_loop().time()
        for number in range(20):
            scope.spawn(client.create(CONFIGMAPS, config_map(namespace, f"a{number}")), name="create")
        await asyncio.sleep(2.2)
        throttled.withdraw()
        lasted = asyncio.get_running_loop().time() - begin
        assert 40 <= throttled.hits <= 5 + 50 * lasted
    assert len(proxy.asked("POST")) - throttled.hits == 20


async def test_an_unavailable_server_is_asked_again_only_by_who_may(proxy, namespace):
    """K2: 503 with Retry-After was not processed; without it a write may have been."""
    async with Client(proxy.config(), clock=HastyClock()) as client:
        proxy.inject(Refuse(503, "ServiceUnavailable", retry_after=1), times=2)
        await client.create(CONFIGMAPS, config_map(namespace, "a"))
        assert len(proxy.asked("POST")) == 3
        proxy.inject(Refuse(503, "ServiceUnavailable"), times=2)
        with pytest.raises(ServiceUnavailable):
            await client.create(CONFIGMAPS, config_map(namespace, "b"))
        assert len(proxy.asked("POST")) == 4


async def test_reads_pass_errors_of_the_server_that_a_cache_survives(proxy, direct, namespace):
    """W8, W16: 500 on lists and watches, then slowness; the cache ends up right."""
    wanted = (CONFIGMAPS, {"namespaces": [namespace], "fields": "metadata.name!=kube-root-ca.crt"})
    proxy.inject(Refuse(500, "InternalError"), "LIST", "WATCH", times=3)
    async with caching(proxy, wanted) as (informer,):
        heard = Heard()
        informer.add_handler(heard)
        proxy.inject(Refuse(500, "InternalError"), "WATCH", times=3)
        proxy.inject(Delay(0.3), "WATCH", times=1)
        proxy.cut_watches()
        await direct.create(CONFIGMAPS, config_map(namespace, "a"))
        await until(lambda: names(informer) == ["a"])
        await until(lambda: heard.deltas == [("add", "a", False)])


async def test_events_that_stall_hold_no_reconcile_up(proxy, direct, namespace):
    """R8, RT29: the queue is bounded, what does not fit is counted."""
    metrics = Metrics()
    about = await direct.create(CONFIGMAPS, config_map(namespace, "about"))
    stalled = proxy.inject(Stall(), "POST", path="/events")
    async with Client(proxy.config()) as client, TaskScope() as scope:
        recorder = EventRecorder(
            client, component="test", instance="one", clock=SystemClock(), metrics=metrics
        )
        scope.spawn(recorder.run(), name="events")

        async def reconcile(number):
            began = time.monotonic()
            await client.patch(CONFIGMAPS, "about", {"data": {"n": str(number)}}, namespace=namespace)
            recorder.event(
                about, type="Normal", reason="Seen", message=f"number {number}", resource=CONFIGMAPS
            )
            return time.monotonic() - began

        latencies = [await reconcile(number) for number in range(30)]
        await until(lambda: stalled.hits == 1)
        for number in range(1500):
            recorder.event(
                about, type="Normal", reason="Seen", message=f"number {number}", resource=CONFIGMAPS
            )
        late = [await reconcile(number) for number in range(30)]
        dropped = metrics.events_dropped.labels("queue full")._value.get()
        assert dropped >= 1500 + 60 - 1 - 1000
        assert sorted(late)[15] < 5 * sorted(latencies)[15] + 0.05
        assert not await recorder.flush(timeout=0.1)
        scope.cancel()


async def test_a_fault_spares_as_many_requests_as_it_is_told(proxy, namespace):
    """P4: the third one is refused, and only that."""
    proxy.inject(Refuse(403, "Forbidden"), "GET", times=1, spare=2)
    met = []
    async with Client(proxy.config()) as client:
        for _ in range(4):
            with pytest.raises(ApiError) as failure:
                await client.get(CONFIGMAPS, "missing", namespace)
            met.append(failure.value.status)
    assert met == [404, 404, 403, 404]
