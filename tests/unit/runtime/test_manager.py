"""The manager without a real API server: what happens before there is anything to talk about."""

import asyncio

import pytest

from runtime.cache import Informers
from runtime.client.config import ClientConfig, Timeouts
from runtime.controller import Controller
from runtime.manager import FAILED, OK, Manager
from runtime.objects import CONFIGMAPS, SECRETS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.fakeapi import Answer, FakeApi, Stall


class NeverStarts:
    """A server that waits for something that does not come."""

    def __init__(self):
        self.waits = asyncio.Event()
        self.stopped = False

    async def start(self):
        self.waits.set()
        await asyncio.Event().wait()

    async def stop(self):
        self.stopped = True


async def test_a_signal_ends_the_wait_for_a_server_that_cannot_start_yet():
    """P2, TR43: as while a certificate is missing."""
    manager = Manager(ClientConfig(server="http://127.0.0.1:1"), health_address=None, freeze_memory=False)
    server, stop = NeverStarts(), asyncio.Event()
    manager.add_server(server)
    async with TaskScope() as scope:
        running = scope.spawn(manager.run(stop), name="manager")
        await server.waits.wait()
        assert not manager.is_ready
        stop.set()
        assert await running == OK
    assert server.stopped


def managing(api):
    """Return a manager whose caches begin with ordinary lists, which is what the server in the test knows."""
    config = api.config(timeouts=Timeouts(list_total=1.0))
    manager = Manager(config, health_address=None, freeze_memory=False)
    manager.informers = Informers(manager.client, clock=manager.clock, metrics=manager.metrics)
    return manager


@pytest.mark.parametrize("late", [SECRETS, CONFIGMAPS], ids=str)
async def test_nothing_that_decides_runs_before_every_cache_is_filled_and_the_queues_are_too(late):
    """S9, P2: a cache that takes a second attempt, and that nobody watches but somebody may read, counts as well."""
    async with FakeApi(CONFIGMAPS, SECRETS) as api:
        api.plan("LIST", Stall())  # for the cache that is asked for first
        for number in range(1000):
            api.log.put(CONFIGMAPS, {"metadata": {"name": f"n{number}", "namespace": "ns"}})
        manager, stop, found = managing(api), asyncio.Event(), {}
        manager.informers.informer(late)
        only_read, watched = (manager.informers.informer(resource) for resource in (SECRETS, CONFIGMAPS))

        def note(who):
            found.setdefault(who, (only_read.has_synced, watched.has_synced, manager.is_ready))

        class Noting:
            async def reconcile(self, request):
                note("reconciler")

            async def run(self):
                note("runnable")
                await asyncio.Event().wait()

        async def hook():
            note("hook")
            queued.append(len(controller.queue))

        queued = []
        controller = Controller("noting", Noting(), clock=manager.clock, metrics=manager.metrics)
        controller.watch(watched)
        controller.trigger(ObjectKey("ns", "early"))
        manager.add_controller(controller)
        manager.add_runnable(Noting())
        manager.add_leader_hook(hook)
        async with TaskScope() as scope:
            running = scope.spawn(manager.run(stop), name="manager")
            async with asyncio.timeout(60):
                while set(found) < {"reconciler", "hook", "runnable"}:
                    await asyncio.sleep(0.01)
            stop.set()
            assert await running == OK
        assert found["reconciler"] == found["hook"] == (True, True, True)
        assert found["runnable"][:2] == (True, True)
        assert queued == [1001]
        assert len(api.asked("LIST")) >= 3


async def test_a_cache_that_can_never_be_filled_ends_the_process():
    """S8, W16, RT18: a task that has ended would otherwise be missed by nobody."""
    async with FakeApi(CONFIGMAPS) as api:
        api.plan("LIST", Answer(400, {"kind": "Status", "code": 400, "reason": "BadRequest"}))
        manager = managing(api)
        manager.informers.informer(CONFIGMAPS, fields="spec.nonsense=1")
        async with asyncio.timeout(60):
            assert await manager.run() == FAILED
        assert len(api.asked("LIST")) == 1
