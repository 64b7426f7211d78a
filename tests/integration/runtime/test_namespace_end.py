"""The end of a namespace whose objects are held by finalizers, on the real API server."""

import asyncio

from runtime.client import Client, Forbidden, NotFound
from runtime.controller import Controller, add_finalizer, has_finalizer, remove_finalizer
from runtime.manager import Manager
from runtime.objects import CONFIGMAPS, NAMESPACES
from runtime.tasks import TaskScope


async def test_a_namespace_with_finalised_objects_is_deleted_in_the_end(control_plane):
    """RT28, R6: the controller goes on until its finalizers are gone, and gives up creating there."""
    manager = Manager(control_plane.config, health_address=None, freeze_memory=False)
    parents = manager.informers.informer(CONFIGMAPS, labels="test=finalised")
    refused = []

    class Parents:
        async def reconcile(self, request):
            obj = parents.get(request.key)
            if obj is None:
                return
            if not obj["metadata"].get("deletionTimestamp"):
                await add_finalizer(manager.client, CONFIGMAPS, obj, finalizer="example.com/x")
                return
            child = {"metadata": {"name": f"{request.name}-late", "namespace": request.namespace}}
            try:
                await manager.client.create(CONFIGMAPS, child)
            except Forbidden as error:
                refused.append(error)
            await remove_finalizer(manager.client, CONFIGMAPS, obj, finalizer="example.com/x")

    controller = Controller("parents", Parents(), clock=manager.clock, metrics=manager.metrics)
    controller.watch(parents)
    manager.add_controller(controller)
    stop, name = asyncio.Event(), "finalised"

    async def eventually(condition):
        async with asyncio.timeout(60):
            while not await condition():
                await asyncio.sleep(0.1)

    async with Client(control_plane.config) as client, TaskScope() as scope:
        scope.spawn(manager.run(stop), name="manager")
        await client.create(NAMESPACES, {"metadata": {"name": name}})
        for number in range(3):
            metadata = {"name": f"n{number}", "namespace": name, "labels": {"test": "finalised"}}
            await client.create(CONFIGMAPS, {"metadata": metadata})

        async def are_held():
            held = [obj for obj in parents.list(name) if has_finalizer(obj, "example.com/x")]
            return len(held) == 3

        await eventually(are_held)
        await client.delete(NAMESPACES, name)

        async def is_gone():
            try:
                await client.get(NAMESPACES, name)
            except NotFound:
                return True
            return False

        await eventually(is_gone)

        async def is_forgotten():
            return not parents.list(name)

        assert len(refused) == 3
        assert {error.has_cause("NamespaceTerminating") for error in refused} == {True}
        await eventually(is_forgotten)
        stop.set()
