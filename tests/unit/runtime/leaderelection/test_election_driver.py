"""The driver: the state machine on a lease store that misbehaves, in simulated time."""

import asyncio
from dataclasses import replace
from random import Random

import pytest

from runtime.client.config import ClientConfig
from runtime.client.errors import AlreadyExists, Conflict, NotFound, TransportError, TransportFault
from runtime.clock import LoopClock
from runtime.fence import Fence, LeadershipLost
from runtime.leaderelection import LeaderElector
from runtime.leaderelection.driver import ATTEMPT_TIMEOUT, ElectionDriver
from runtime.leaderelection.record import Lease
from runtime.leaderelection.step import Ended, Terms
from runtime.metrics import Metrics
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from runtime.testing.simloop import simulated


class Store:
    """A lease in memory that behaves as told."""

    def __init__(self):
        self.lease: Lease | None = None
        self.hangs = False
        self.refuses = False
        self.delay = 0.01
        self.before_write = lambda: None
        self.writes = 0
        self.reads = 0

    async def read(self):
        self.reads += 1
        await self._weather()
        return self.lease

    async def write(self, lease):
        await self._weather()
        self.before_write()
        current = self.lease.version if self.lease else ""
        if lease.version != current:
            error = Conflict if lease.version else AlreadyExists
            raise error("somebody was faster", status=409)
        self.put(lease)
        return self.lease

    def put(self, lease):
        self.writes += 1
        self.lease = replace(lease, version=str(int(self.lease.version) + 1) if self.lease else "1")

    async def _weather(self):
        await asyncio.sleep(self.delay)
        if self.hangs:
            await asyncio.Event().wait()
        if self.refuses:
            raise TransportError("connection refused", fault=TransportFault.CONNECT)


class Party:
    """An elector and what belongs to it."""

    def __init__(self, store, name="me", metrics=None):
        self.clock = LoopClock()
        self.fence = Fence(self.clock)
        self.acquired = asyncio.Event()
        self.metrics = metrics
        self.driver = ElectionDriver(
            Terms(name),
            store,
            name="lease",
            fence=self.fence,
            clock=self.clock,
            rng=Random(1),
            metrics=metrics,
            on_acquired=self.acquired.set,
        )


@simulated
async def test_a_free_lease_is_acquired_renewed_and_given_back():
    """L3, L4, L7."""
    store, metrics = Store(), Metrics()
    party = Party(store, metrics=metrics)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        assert party.fence.is_open
        assert metrics.registry.get_sample_value("leader_election_master_status", {"name": "lease"}) == 1
        acquired = store.lease.acquired
        await party.clock.sleep(60)
        assert party.fence.is_open
        assert 60 / 2.5 < store.writes < 60 / 2
        assert store.lease.acquired == acquired
        assert store.lease.renewed > acquired
        party.driver.stop()
    assert running.result() == Ended("released", lost=False)
    assert (store.lease.holder, store.lease.duration, store.lease.transitions) == ("", 1.0, 0)
    assert not party.fence.is_open
    assert metrics.registry.get_sample_value("leader_election_master_status", {"name": "lease"}) == 0


@simulated
async def test_a_rival_leads_within_three_seconds_of_a_clean_stop():
    """L7, G8, RT36."""
    store = Store()
    first, second = Party(store, "first"), Party(store, "second")
    async with TaskScope() as scope:
        scope.spawn(first.driver.run(), name="first")
        await first.acquired.wait()
        scope.spawn(second.driver.run(), name="second")
        await first.clock.sleep(33.3)
        first.driver.stop()
        stopped = first.clock.monotonic()
        await second.acquired.wait()
        assert first.clock.monotonic() - stopped <= 3.0
        assert store.lease.transitions >= 1
        second.driver.stop()


@simulated
async def test_a_hint_makes_a_candidate_read_at_once_and_decides_nothing():
    """L2, L7: a lease that is held is not taken for it, and a hint during a read is not lost."""
    store = Store()
    first, second = Party(store, "first"), Party(store, "second")
    clock = first.clock
    async with TaskScope() as scope:
        scope.spawn(first.driver.run(), name="first")
        await first.acquired.wait()
        scope.spawn(second.driver.run(), name="second")
        await clock.sleep(0.1)
        reads = store.reads
        for number in range(5):
            second.driver.look_again()
            await clock.sleep(0.1)
            assert store.reads == reads + number + 1
        assert not second.acquired.is_set()
        store.delay = 0.5
        second.driver.look_again()
        await clock.sleep(0.1)
        second.driver.look_again()  # while it reads
        await clock.sleep(1)
        assert store.reads == reads + 7
        store.delay = 0.01
        first.driver.look_again()  # a leader has no use for it
        first.driver.stop()
        await clock.sleep(0.1)
        second.driver.look_again()
        await clock.sleep(0.1)
        assert second.acquired.is_set()
        second.driver.stop()


@simulated
async def test_a_rival_leads_within_eighteen_seconds_of_a_crash_and_not_before_the_lease_ends():
    """L2, G8."""
    store = Store()
    first, second = Party(store, "first"), Party(store, "second")
    async with TaskScope() as scope:
        crashing = scope.spawn(first.driver.run(), name="first")
        await first.acquired.wait()
        scope.spawn(second.driver.run(), name="second")
        await first.clock.sleep(40)
        last_renewal = first.driver.renewed_at
        crashing.cancel()
        crashed = first.clock.monotonic()
        await second.acquired.wait()
        taken = first.clock.monotonic()
        assert taken - last_renewal >= 15
        assert taken - crashed <= 18
        second.driver.stop()


@pytest.mark.parametrize("trouble", ["hangs", "refuses"])
def test_the_fence_is_shut_before_a_rival_can_acquire_when_renewals_fail(trouble):
    """L5, L6, RT33, RT35."""

    @simulated
    async def scenario():
        store = Store()
        party = Party(store)
        async with TaskScope() as scope:
            running = scope.spawn(party.driver.run(), name="election")
            await party.acquired.wait()
            await party.clock.sleep(5)
            setattr(store, trouble, True)
            outcome = await running
            assert outcome.lost
            assert "not renewed within 10 s" in outcome.reason
            assert party.clock.monotonic() - party.driver.renewed_at == pytest.approx(10, abs=0.05)
            with pytest.raises(LeadershipLost, match="not renewed"):
                party.fence.check()
            assert store.lease.holder == "me"  # not given back: somebody may still be writing

    scenario()


@simulated
async def test_one_slow_call_is_no_abdication():
    """L5."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        for _ in range(5):
            await party.clock.sleep(3)
            store.hangs = True
            await party.clock.sleep(2.5)
            store.hangs = False
            await party.clock.sleep(ATTEMPT_TIMEOUT)
            assert party.fence.is_open
        party.driver.stop()


@simulated
async def test_a_hanging_read_does_not_hang_the_candidate():
    """L5, RT33."""
    store = Store()
    store.hangs = True
    party = Party(store)
    async with TaskScope() as scope:
        scope.spawn(party.driver.run(), name="election")
        await party.clock.sleep(60)
        assert 7 <= store.reads <= 9  # an attempt of 5 s, then a pause of 2 to 2.4 s
        store.hangs = False
        async with asyncio.timeout(10):
            await party.acquired.wait()
        party.driver.stop()


@simulated
async def test_a_conflict_is_read_and_written_again_at_once_and_counted():
    """L3, C8."""
    store, metrics = Store(), Metrics()
    party = Party(store, metrics=metrics)
    async with TaskScope() as scope:
        scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        store.put(store.lease)  # somebody annotated it
        await party.clock.sleep(5)
        assert party.fence.is_open
        assert metrics.registry.get_sample_value("leader_election_slowpath_total", {"name": "lease"}) == 1
        party.driver.stop()


@simulated
async def test_a_stop_during_a_renewal_in_flight_still_gives_the_lease_back():
    """L7, RT36: the renewal lands on the server while the release is under way, which then meets a conflict."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        await party.clock.sleep(1)

        def renewal_lands():
            store.before_write = lambda: None
            store.put(store.lease)

        store.before_write = renewal_lands
        party.driver.stop()
    assert running.result() == Ended("released", lost=False)
    assert store.lease.holder == ""


@simulated
async def test_a_lease_taken_by_another_ends_the_leader():
    """L3, L6."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        store.put(Lease("rival", 15.0, 1))
        outcome = await running
    assert outcome == Ended("rival holds the lease", lost=True)
    assert store.lease.holder == "rival"


@simulated
async def test_a_deleted_lease_is_created_anew():
    """L3: an update then finds nothing."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        store.lease = None
        await party.clock.sleep(5)
        assert party.fence.is_open
        assert store.lease.holder == "me"
        party.driver.stop()


@simulated
async def test_a_stalled_elector_that_wakes_after_its_time_has_lost():
    """L6, L9: the renewal succeeds on the server, but nobody acts on it."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        await party.clock.sleep(1)
        asyncio.get_running_loop().stall(30)
        with pytest.raises(LeadershipLost):
            party.fence.check()
        assert (await running).lost


@simulated
async def test_a_cancelled_election_shuts_the_fence():
    """L6, PY4."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        running.cancel()
    assert running.cancelled()
    assert not party.fence.is_open
    assert store.lease.holder == "me"


@simulated
async def test_a_read_answered_with_not_found_counts_as_no_lease():
    """L3."""
    store = Store()

    async def read():
        raise NotFound("no such lease", status=404)

    store.read = read
    party = Party(store)
    async with TaskScope() as scope:
        scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        party.driver.stop()
        await party.clock.sleep(1)


@simulated
async def test_a_fence_that_refuses_a_renewal_ends_the_election():
    """L6: it expired, or was shut, between the decision and its execution."""
    store = Store()
    party = Party(store)
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        await party.acquired.wait()
        assert party.driver.is_leader
        party.fence.close("somebody else shut it")
        outcome = await running
    assert outcome == Ended("the fence expired while a renewal arrived", lost=True)
    assert not party.driver.is_leader


@simulated
async def test_a_leader_whose_driver_hangs_is_not_live_after_the_lease_and_a_grace():
    """L8."""
    store = Store()
    party = Party(store)
    elector = LeaderElector(
        ClientConfig(server="https://localhost"),
        namespace="ns",
        name="lease",
        fence=party.fence,
        clock=party.clock,
    )
    assert elector.check() is None
    async with TaskScope() as scope:
        running = scope.spawn(party.driver.run(), name="election")
        elector._driver = party.driver
        assert elector.check() is None
        await party.acquired.wait()
        await party.clock.sleep(60)
        assert elector.check() is None
        asyncio.get_running_loop().stall(36)  # nothing runs, not even the driver
        assert "last renewal of the lease is" in elector.check()
        assert (await running).lost
        assert elector.check() is None


@simulated
async def test_a_leader_is_live_until_twenty_seconds_after_its_lease():
    """L8: a restart before that would only make things worse."""

    class Hanging:
        is_leader = True
        renewed_at = 1000.0

    clock = SimClock(1000.0)
    elector = LeaderElector(
        ClientConfig(server="https://localhost"),
        namespace="ns",
        name="lease",
        fence=Fence(clock),
        clock=clock,
    )
    elector._driver = Hanging()
    clock.advance(35)
    assert elector.check() is None
    clock.advance(0.1)
    assert "35 s old" in elector.check()


async def test_an_elector_that_was_never_started_has_nothing_to_release():
    """L7."""
    elector = LeaderElector(
        ClientConfig(server="https://localhost"), namespace="ns", name="lease", fence=Fence(LoopClock())
    )
    assert await elector.release() is None
    assert elector.outcome is None
    assert (
        elector.identity
        != LeaderElector(
            ClientConfig(server="https://localhost"), namespace="ns", name="lease", fence=Fence(LoopClock())
        ).identity
    )
