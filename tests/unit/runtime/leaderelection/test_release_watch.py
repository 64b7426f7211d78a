"""A candidate that is told that the lease was given back."""

import asyncio
import contextlib

import orjson
import pytest

from runtime.client import Client
from runtime.clock import SystemClock
from runtime.fence import Fence
from runtime.leaderelection import LeaderElector
from runtime.leaderelection.release import is_release, watch_releases
from runtime.objects import CONFIGMAPS, LEASES
from runtime.tasks import TaskScope
from runtime.testing.fakeapi import Answer, Drop, FakeApi

PATIENT = {"lease_duration": 1000.0, "renew_deadline": 900.0, "retry_period": 600.0}
"""Nobody who only polls would notice anything within a test."""


def line(type, **spec):
    return orjson.dumps({"type": type, "object": {"kind": "Lease", "spec": spec}})


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (line("MODIFIED", leaseDurationSeconds=1), True),
        (line("ADDED", holderIdentity=""), True),
        (line("DELETED", holderIdentity="rival"), True),
        (line("MODIFIED", holderIdentity="rival"), False),
        (line("BOOKMARK"), False),
        (orjson.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}), False),
        (b'{"type":"MODIFIED","object":{"spec":null}}', False),
        (b'{"type":"MODIFIED"}', False),
        (b"[]", False),
        (b"<html>", False),
        (b"\xff", False),
    ],
)
def test_only_a_lease_that_nobody_holds_is_a_hint(told, expected):
    """L7: what cannot be read is none."""
    assert is_release(told) is expected


@contextlib.asynccontextmanager
async def standing(api, identity):
    fence = Fence(SystemClock())
    elector = LeaderElector(
        api.config(), namespace="ns", name="lease", fence=fence, identity=identity, **PATIENT
    )
    elector.start()
    try:
        yield elector
    finally:
        elector.abandon()
        async with asyncio.timeout(60):
            await elector.wait_ended()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_standby_leads_as_soon_as_the_lease_was_given_back():
    """L7, G8: it polls every ten minutes, so it was told."""
    async with FakeApi(LEASES) as api, standing(api, "first") as first, asyncio.timeout(60):
        await first.wait_acquired()
        await until(lambda: api.open_watches == 0)  # a leader waits for nobody
        async with standing(api, "second") as second:
            await until(lambda: api.open_watches == 1 and len(api.asked("GET")) >= 2)
            assert not second.is_leader
            await first.release()
            await second.wait_acquired()
            assert second.is_leader
            assert not first.is_leader


async def test_a_standby_that_may_not_watch_stands_all_the_same():
    """L7: the hint is refused, the election goes on."""
    async with FakeApi(LEASES) as api, asyncio.timeout(60):
        api.plan("WATCH", *[Answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden"})] * 100)
        async with standing(api, "first") as first:
            await first.wait_acquired()


async def test_a_watch_that_breaks_or_talks_nonsense_is_begun_anew():
    """L7, L5."""

    class Hasty(SystemClock):
        async def sleep(self, seconds):
            await asyncio.sleep(0.01)

    hints = []
    async with FakeApi(LEASES, CONFIGMAPS) as api, Client(api.config()) as client, TaskScope() as scope:
        api.plan("WATCH", Drop(), Answer(500, b"<html>"), Answer(200, b"nonsense\n"), Answer(410, {}))
        watching = scope.spawn(
            watch_releases(
                client, namespace="ns", name="lease", clock=Hasty(), on_release=lambda: hints.append(True)
            ),
            name="watch",
        )
        await until(lambda: api.open_watches == 1)
        assert hints == []
        api.log.put(LEASES, {"metadata": {"name": "lease", "namespace": "ns"}, "spec": {}})
        await until(lambda: hints == [True])
        api.end_watches()
        await until(lambda: len(api.asked("WATCH")) == 6 and api.open_watches == 1)
        assert {request.query["fieldSelector"] for request in api.asked("WATCH")} == {"metadata.name=lease"}
        watching.cancel()
