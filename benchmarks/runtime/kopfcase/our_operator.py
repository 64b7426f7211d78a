"""The operator on this runtime: level-triggered, children from a cache behind a barrier; reads $KUBECONFIG."""

from __future__ import annotations

import sys

from benchmarks.runtime.kopfcase.bundle import CHILDREN, GROUP, PLURAL, VERSION, child
from runtime.cache import METADATA_ONLY, OWNER_UID, Barrier
from runtime.client import AlreadyExists, ClientConfig
from runtime.controller import Controller, Request, Result, owner_of
from runtime.logs import configure
from runtime.manager import Manager, run_manager
from runtime.objects import CONFIGMAPS, ObjectKey, Resource, owner_reference, uid_of
from runtime.tasks import TaskScope

BUNDLES = Resource(GROUP, VERSION, PLURAL, "Bundle")


class BundleReconciler:
    """Gives every Bundle its ConfigMaps."""

    def __init__(self, manager: Manager, namespace: str) -> None:
        self._client = manager.client
        self.bundles = manager.informers.informer(BUNDLES, namespaces=[namespace])
        self.children = manager.informers.informer(
            CONFIGMAPS, namespaces=[namespace], labels="bundle", projection=METADATA_ONLY
        )
        self._written: Barrier[ObjectKey] = Barrier(self.children, clock=manager.clock)
        self._noted: Barrier[ObjectKey] = Barrier(self.bundles, clock=manager.clock)

    async def reconcile(self, request: Request) -> Result | None:
        """Create what is missing, then say so."""
        bundle = self.bundles.get(request.key)
        if bundle is None:
            self._written.forget(request.key)
            self._noted.forget(request.key)
            return None
        if not (self._written.is_open(request.key) and self._noted.is_open(request.key)):
            return Result(requeue_after=0.05)
        present = {each.name for each in self.children.by_index(OWNER_UID, uid_of(bundle))}
        owner = owner_reference(BUNDLES, bundle)
        wanted = [
            child(request.name, request.namespace, number, owner=owner)
            for number in range(CHILDREN)
            if f"{request.name}-{number}" not in present
        ]
        async with TaskScope() as scope:
            for body in wanted:
                scope.spawn(self._create(request.key, body), name="create")
        if (bundle.get("status") or {}).get("children") != CHILDREN:
            status = {"status": {"children": CHILDREN}}
            noted = await self._client.patch(
                BUNDLES, request.name, status, namespace=request.namespace, subresource="status"
            )
            self._noted.wrote(request.key, noted)
        return None

    async def _create(self, parent: ObjectKey, body: dict[str, object]) -> None:
        try:
            self._written.wrote(parent, await self._client.create(CONFIGMAPS, body))
        except AlreadyExists:
            pass  # a run before this one made it and the cache has not shown it yet


def build() -> Manager:
    """Put the operator together for the namespace named on the command line."""
    manager = Manager(ClientConfig.from_kubeconfig(), health_address=None)
    reconciler = BundleReconciler(manager, sys.argv[1])
    controller = Controller("bundle", reconciler, clock=manager.clock, metrics=manager.metrics)
    controller.watch(reconciler.bundles)
    controller.watch(reconciler.children, mapping=owner_of(BUNDLES))
    manager.add_controller(controller)
    return manager


if __name__ == "__main__":
    configure("warning")
    sys.exit(run_manager(build))
