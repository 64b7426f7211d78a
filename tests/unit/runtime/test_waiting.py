"""A cancel that arrives in the same tick as the result, at everything in `runtime` that waits for something."""

import asyncio

import pytest

from runtime.cache import Informers
from runtime.client import ClientConfig
from runtime.client.telemetry import Uncounted
from runtime.client.throttle import Throttle
from runtime.clock import LoopClock
from runtime.controller import Controller, slow_start_batch
from runtime.events import EventRecorder
from runtime.manager import _first_of
from runtime.metrics import Metrics
from runtime.objects import CONFIGMAPS
from runtime.tasks import TaskScope, run_all
from runtime.testing.memoryapi import MemoryApi
from runtime.testing.simloop import simulated
from runtime.workqueue import WorkQueue


class Case:
    """Something that waits, and what ends its wait."""

    def __init__(self):
        self.clock = LoopClock()
        self.ended = asyncio.Event()

    def queue_get(self):
        queue = WorkQueue(clock=self.clock)
        return queue.get(), lambda: queue.add("a")

    def queue_drain(self):
        queue = WorkQueue(clock=self.clock)
        queue.add("a")
        queue.get_nowait()
        return queue.shutdown_with_drain(), lambda: queue.done("a")

    def cache_filled(self):
        informers = Informers(MemoryApi(), clock=self.clock)
        informer = informers.informer(CONFIGMAPS)
        return informers.wait_synced(), lambda: informer.replace([], namespace=None)

    def events_flushed(self):
        recorder = EventRecorder(None, component="test", instance="one", clock=self.clock, metrics=Metrics())
        about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}
        recorder.event(about, type="Normal", reason="Waits", message="it waits")
        return recorder.flush(timeout=1000), recorder._idle.set

    def turn_in_flight(self):
        throttle = Throttle(ClientConfig("https://api", in_flight=1), clock=self.clock, metrics=Uncounted())

        async def take():
            async with throttle.attempt():
                pass

        async def hold():
            async with throttle.attempt():
                await self.ended.wait()

        return take(), self.ended.set, hold()

    def results_of_all(self):
        return run_all(self.ended.wait()), self.ended.set

    def first_of_several(self):
        return _first_of(self.ended.wait(), asyncio.Event().wait()), self.ended.set

    def batch(self):
        return slow_start_batch([1], lambda _: self.ended.wait()), self.ended.set

    def controller_stopped(self):
        controller = Controller("idle", None, clock=self.clock, metrics=Metrics(), workers=2)
        return controller.run(), controller.shutdown

    def sleep(self):
        return self.clock.sleep(1), lambda: None


@pytest.mark.parametrize("ticks", [0, 1, 2, 3])
@pytest.mark.parametrize("name", [name for name in vars(Case) if not name.startswith("_")])
def test_a_cancel_in_the_tick_of_the_result_is_obeyed(name, ticks):
    """RT39, PY3, PY4: with the result on its way through up to three more callbacks."""

    @simulated
    async def scenario():
        waiting, end, *others = getattr(Case(), name)()
        went_on = []

        async def wait():
            await waiting
            went_on.append("result")
            await asyncio.sleep(1000)
            went_on.append("too far")

        async with TaskScope() as scope:
            for other in others:
                scope.spawn(other, name="other")
            await asyncio.sleep(0)
            task = scope.spawn(wait(), name="waits")
            await asyncio.sleep(0.001 if name != "sleep" else 1)
            end()
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            begun = asyncio.get_running_loop().time()
            await asyncio.wait({task})
            assert asyncio.get_running_loop().time() - begun < 1
        assert task.cancelled()
        assert "too far" not in went_on
        assert len(asyncio.all_tasks()) == 1

    scenario()
