"""Health pages: they fail for the right reason and say which."""

import asyncio

import aiohttp
import pytest

from runtime.clock import LoopClock
from runtime.health import HealthServer, LoopLag
from runtime.metrics import Metrics
from runtime.tasks import TaskScope
from runtime.testing.simloop import simulated


async def fetch(server, path):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_pages_answer_ok_until_a_check_fails_and_then_name_it():
    """S9."""
    metrics = Metrics()
    server = HealthServer("127.0.0.1", 0, metrics=metrics)
    told = {"caches": None, "leader": None}
    server.add_check("caches", lambda: told["caches"], kind="ready")
    server.add_check("leader", lambda: told["leader"], kind="live")
    await server.start()
    try:
        assert await fetch(server, "/healthz") == (200, "ok\n")
        assert await fetch(server, "/readyz") == (200, "ok\n")
        told["caches"] = "not synced"
        assert await fetch(server, "/readyz") == (503, "caches: not synced\n")
        assert (await fetch(server, "/healthz"))[0] == 200
        told["leader"] = "renewal is 40 s old"
        assert await fetch(server, "/livez") == (503, "leader: renewal is 40 s old\n")
    finally:
        await server.stop()
        await server.stop()


async def test_metrics_are_served_as_text():
    """C8."""
    metrics = Metrics()
    metrics.declare_controller("things", workers=3)
    server = HealthServer("127.0.0.1", 0, metrics=metrics)
    await server.start()
    try:
        status, text = await fetch(server, "/metrics")
    finally:
        await server.stop()
    assert status == 200
    assert 'controller_runtime_max_concurrent_reconciles{controller="things"} 3.0' in text


async def test_an_address_in_use_fails_the_start_and_leaks_nothing():
    """P2."""
    first = HealthServer("127.0.0.1", 0, metrics=Metrics())
    await first.start()
    try:
        second = HealthServer("127.0.0.1", first.port, metrics=Metrics())
        with pytest.raises(OSError, match="address already in use"):
            await second.start()
    finally:
        await first.stop()


@simulated
async def test_a_blocked_loop_is_not_live_until_it_runs_again():
    """S9."""
    metrics = Metrics()
    lag = LoopLag(clock=LoopClock(), metrics=metrics)
    async with TaskScope() as scope:
        running = scope.spawn(lag.run(), name="lag")
        await asyncio.sleep(1)
        assert lag.check() is None
        assert lag.last == pytest.approx(0, abs=0.001)
        asyncio.get_running_loop().stall(4)
        await asyncio.sleep(0.01)
        assert lag.check() is None  # a long pause, but not the end
        asyncio.get_running_loop().stall(6)
        await asyncio.sleep(0.01)
        assert "blocked for" in lag.check()
        assert metrics.registry.get_sample_value("runtime_event_loop_lag_seconds") >= 5
        await asyncio.sleep(1)
        assert lag.check() is None
        running.cancel()
