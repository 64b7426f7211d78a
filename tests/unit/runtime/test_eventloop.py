"""Keeping an event loop responsive."""

import gc
import weakref

import pytest

from runtime.cache.informers import Informers
from runtime.clock import LoopClock
from runtime.eventloop import FULL_COLLECTION_PERIOD, collect_by_time, collector_held
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import MemoryApi
from runtime.testing.simloop import simulated


def test_the_collector_rests_for_the_block_and_goes_on_even_after_a_failure():
    """PY1."""
    observed = []

    def fail():
        with collector_held():
            observed.append(gc.isenabled())
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert observed == [False]
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    """PY1."""
    gc.disable()
    try:
        with collector_held():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


class _Cycle:
    """Garbage that only a collection finds."""

    def __init__(self):
        self.me = self


@simulated
async def test_full_collections_come_by_time_alone_and_young_ones_as_before():
    """PY1."""
    clock, before = LoopClock(), gc.get_threshold()
    full = []

    def observe(phase, info):
        if phase == "start" and info["generation"] == 2:
            full.append(clock.monotonic())

    async with TaskScope() as scope:
        begun = clock.monotonic()
        running = scope.spawn(collect_by_time(clock, period=60), name="full collections")
        await clock.sleep(1)
        assert gc.get_threshold()[:2] == before[:2]
        gc.callbacks.append(observe)
        try:
            kept = [_Cycle() for _ in range(200_000)]  # enough for several full collections otherwise
            await clock.sleep(120)
        finally:
            gc.callbacks.remove(observe)
        assert [moment - begun for moment in full] == [60, 120]
        del kept
        running.cancel()
    assert gc.get_threshold() == before


@simulated
async def test_frozen_caches_have_the_collector_paced_while_they_run():
    """S10, PY1: twice frozen is paced once, and afterwards all is as it was."""
    before = gc.get_threshold()
    informers = Informers(MemoryApi(), clock=LoopClock())
    try:
        informers.freeze()
        assert gc.get_threshold() == before, "nothing runs that would collect"
        async with TaskScope() as scope:
            running = scope.spawn(informers.run(), name="informers")
            await LoopClock().sleep(1)
            informers.freeze()
            informers.freeze()
            await LoopClock().sleep(FULL_COLLECTION_PERIOD * 1.5)
            assert gc.get_threshold()[:2] == before[:2]
            assert gc.get_threshold()[2] > before[2]
            running.cancel()
        assert gc.get_threshold() == before
    finally:
        gc.unfreeze()


def test_garbage_is_collected_before_what_is_cached_is_frozen():
    """S10, PY1: what is garbage at the freeze would never be reclaimed."""
    gc.disable()  # so that nobody else collects it
    try:
        garbage = weakref.ref(_Cycle())
        assert garbage() is not None
        Informers(MemoryApi(), clock=LoopClock()).freeze()
        assert garbage() is None
    finally:
        gc.unfreeze()
        gc.enable()
