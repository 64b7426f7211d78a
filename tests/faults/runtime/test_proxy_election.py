"""Electors whose way to the API server fails at the worst moments; the rival goes past the proxy."""

import asyncio
import contextlib
import time

import pytest

from proxied import config_map, until
from runtime.client import Client
from runtime.clock import SystemClock
from runtime.fence import Fence, LeadershipLost
from runtime.leaderelection import LeaderElector
from runtime.leaderelection.step import Ended
from runtime.objects import CONFIGMAPS, LEASES
from runtime.testing.faults import Cut, Delay, Refuse, Stall

QUICK = {"lease_duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.4}


class Party:
    def __init__(self, config, namespace, identity):
        self.config = config
        self.clock = SystemClock()
        self.fence = Fence(self.clock)
        self.elector = LeaderElector(
            config, namespace=namespace, name="operator", fence=self.fence, identity=identity, **QUICK
        )

    async def leads(self, within):
        began = time.monotonic()
        async with asyncio.timeout(within):
            await self.elector.wait_acquired()
        return time.monotonic() - began


@contextlib.asynccontextmanager
async def standing(config, namespace, identity):
    party = Party(config, namespace, identity)
    party.elector.start()
    try:
        yield party
    finally:
        party.elector.abandon()
        async with asyncio.timeout(10):
            await party.elector.wait_ended()


async def test_a_candidate_whose_read_hangs_tries_again_after_five_seconds(proxy, namespace):
    """L5, RT33."""
    hanging = proxy.inject(Stall(), "GET", path="/leases", times=1)
    async with standing(proxy.config(), namespace, "first") as first:
        assert 4.5 <= await first.leads(8) <= 6.5
    assert hanging.hits == 1


@pytest.mark.parametrize("verb", ["PUT", "GET"])
async def test_a_leader_whose_requests_hang_stops_writing_before_a_rival_leads(
    proxy, control_plane, direct, namespace, verb
):
    """L5, L6, RT33, RT35: renewals hang for ever; reading the lease does too, or shows that we still hold it."""
    async with standing(proxy.config(), namespace, "first") as first:
        await first.leads(5)
        async with (
            standing(control_plane.config, namespace, "second") as second,
            Client(proxy.config(), fence=first.fence) as client,
        ):
            await client.create(CONFIGMAPS, config_map(namespace, "leading"))
            proxy.inject(Stall(), "PUT", path="/leases")
            if verb == "GET":
                proxy.inject(Stall(), "GET", path="/leases")
            stalled = time.monotonic()
            outcome = await first.elector.wait_ended()
            assert outcome.lost
            assert time.monotonic() - stalled <= QUICK["renew_deadline"] + 0.5
            assert not second.fence.is_open
            with pytest.raises(LeadershipLost):
                await client.create(CONFIGMAPS, config_map(namespace, "late"))
            await second.leads(5)
    assert not proxy.asked("POST", path="/configmaps")[1:]


async def test_a_renewal_that_took_effect_though_its_answer_was_lost_keeps_the_lease(
    proxy, direct, namespace
):
    """L3: the next read shows our own name, and the version to go on from."""
    async with standing(proxy.config(), namespace, "first") as first:
        await first.leads(5)
        lost = proxy.inject(Cut(reaches_server=True), "PUT", path="/leases", times=2)
        await until(lambda: lost.hits == 2)
        await asyncio.sleep(QUICK["lease_duration"])
        assert first.fence.is_open
        lease = await direct.get(LEASES, "operator", namespace)
        assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("first", 0)


async def test_a_slow_renewal_is_no_abdication(proxy, namespace):
    """L5: the deadline counts from the last success."""
    async with standing(proxy.config(), namespace, "first") as first:
        await first.leads(5)
        proxy.inject(Delay(0.4), "PUT", path="/leases")
        await asyncio.sleep(2 * QUICK["lease_duration"])
        assert first.fence.is_open


async def test_a_stop_in_the_middle_of_a_renewal_gives_the_lease_back_through_a_conflict(
    proxy, control_plane, namespace
):
    """L7, RT36."""
    async with standing(proxy.config(), namespace, "first") as first:
        await first.leads(5)
        async with standing(control_plane.config, namespace, "second") as second:
            slow = proxy.inject(Delay(0.5), "PUT", path="/leases", times=1)
            await until(lambda: slow.hits == 1)  # the renewal is in flight
            refused = proxy.inject(Refuse(409, "Conflict"), "PUT", path="/leases", times=1)
            assert await first.elector.release() == Ended("released", lost=False)
            assert refused.hits == 1
            assert await second.leads(5) <= 3.0


async def test_a_lease_that_nobody_can_reach_is_not_given_back_and_the_stop_ends_all_the_same(
    proxy, namespace
):
    """L7: a stop must not wait for a server that is gone."""
    async with standing(proxy.config(), namespace, "first") as first:
        await first.leads(5)
        await proxy.go_away()
        began = time.monotonic()
        outcome = await first.elector.release()
        assert time.monotonic() - began <= 6
        assert outcome is None or outcome.reason == "the lease could not be released and will expire"
        assert not first.fence.is_open
