"""The manager without a real API server: what happens before there is anything to talk about."""

import asyncio

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


async def test_nothing_that_decides_runs_before_every_cache_is_filled():
    """S9, P2: also what was asked for meanwhile, and for a cache that takes a second attempt."""
    async with FakeApi(CONFIGMAPS, SECRETS) as api:
        api.plan("LIST", Stall())
        api.log.put(CONFIGMAPS, {"metadata": {"name": "a", "namespace": "ns"}})
        api.log.put(SECRETS, {"metadata": {"name": "b", "namespace": "ns"}})
        manager, stop, found = managing(api), asyncio.Event(), {}
        caches = [manager.informers.informer(resource) for resource in (CONFIGMAPS, SECRETS)]

        def note(who):
            found[who] = ([cache.has_synced for cache in caches], manager.is_ready)

        class Noting:
            async def reconcile(self, request):
                note(request.name)

            async def run(self):
                note("runnable")
                await asyncio.Event().wait()

        async def hook():
            note("hook")

        controller = Controller("noting", Noting(), clock=manager.clock, metrics=manager.metrics)
        for cache in caches:
            controller.watch(cache)
        controller.trigger(ObjectKey("ns", "early"))
        manager.add_controller(controller)
        manager.add_runnable(Noting())
        manager.add_leader_hook(hook)
        async with TaskScope() as scope:
            running = scope.spawn(manager.run(stop), name="manager")
            async with asyncio.timeout(60):
                while set(found) < {"a", "b", "early", "hook", "runnable"}:
                    await asyncio.sleep(0.01)
            stop.set()
            assert await running == OK
        assert [synced for synced, _ in found.values()] == [[True, True]] * 5
        assert {who for who, (_, is_ready) in found.items() if is_ready} >= {"a", "b", "early", "hook"}
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
