"""Another cluster, with an API server and an etcd of its own, that imports what the first one's Trainer stored.

It has no nodes: the janitor's part is played here, by the same code that its agent runs.
"""

import asyncio
import itertools
import json
import shutil
from pathlib import Path

from runtime.client import Client
from runtime.clock import SystemClock
from runtime.controller.reconciler import Request
from runtime.objects import ObjectKey
from trainer_operator.agent import storeops
from trainer_operator.agent.backends import open_home
from trainer_operator.api import names
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.devcluster.component import APISERVER, ETCD
from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.kubectl import Kubectl
from trainer_operator.topology.beat import Beat, DirectiveResult, janitor_of
from trainer_operator.topology.members import JANITOR, Members
from trainer_operator.trainer.imports import ImportReconciler

CRDS = Path(__file__).parents[3] / "crds"
ASKED = {"metadata": {"annotations": {names.IMPORT_ANNOTATION: "2026-01-01T00:00:00Z"}}}


class Listed:
    """What the API server has, as of the last `refresh`."""

    def __init__(self, client, resource):
        self._client, self._resource, self._objects = client, resource, {}

    async def refresh(self):
        found = (await self._client.list(self._resource)).items
        self._objects = {(o["metadata"]["namespace"], o["metadata"]["name"]): o for o in found}

    def get(self, key):
        return self._objects.get((key.namespace, key.name))

    def by_index(self, index, value):
        owned = self._objects.values()
        return [o for o in owned if value in [r["uid"] for r in o["metadata"].get("ownerReferences", ())]]


class Events:
    def __init__(self):
        self.seen = []

    def event(self, obj, *, type, reason, message):
        self.seen.append((reason, message))


def import_elsewhere(folder, home, manifest):
    """Start another cluster, copy a Trainer's folder of a store for one of its Trainers, and import.

    Returns the Checkpoint objects there, the Trainer, and the events. The copy is gone afterwards.
    """
    return asyncio.run(_import_elsewhere(folder, home, manifest))


async def _import_elsewhere(folder, home, manifest):
    plane = ControlPlane(folder, components={ETCD, APISERVER}, grace=0)
    async with plane, Client(plane.config) as client:
        kubectl = Kubectl(plane.assets.path("kubectl"), plane.kubeconfig)
        key = ObjectKey(manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        await asyncio.to_thread(_install, kubectl, key.namespace, manifest)
        trainer = await client.get(TRAINERS, key.name, key.namespace)
        status = {"status": {"phase": "Suspended"}}
        await client.patch(TRAINERS, key.name, status, namespace=key.namespace, subresource="status")
        await client.patch(TRAINERS, key.name, ASKED, namespace=key.namespace)
        copied = home.parent / f"{key.name}-{trainer['metadata']['uid'][:8]}"
        await asyncio.to_thread(shutil.copytree, home, copied)
        try:
            events = await _import(client, key, trainer["metadata"]["uid"], copied)
            found = (await client.list(CHECKPOINTS, key.namespace)).items
            return found, await client.get(TRAINERS, key.name, key.namespace), events
        finally:
            shutil.rmtree(copied)


def _install(kubectl, namespace, manifest):
    kubectl("apply", "-k", str(CRDS))
    kubectl.wait_established()
    kubectl("create", "namespace", namespace)
    kubectl("apply", "-f", "-", stdin=json.dumps(manifest))


async def _import(client, key, uid, copied):
    clock, events = SystemClock(), Events()
    trainers, checkpoints = Listed(client, TRAINERS), Listed(client, CHECKPOINTS)
    members = Members(clock)
    reconciler = ImportReconciler(
        client=client,
        trainers=trainers,
        checkpoints=checkpoints,
        members=members,
        events=events,
        clock=clock,
        call_janitor=lambda _key: None,
    )
    words = {"v": 1, "trainer": str(key), "tuid": uid, "pod": "janitor", "boot": "b", "role": JANITOR.role}
    numbers = itertools.count(1)
    async with asyncio.timeout(60):
        while not events.seen:
            await trainers.refresh()
            await checkpoints.refresh()
            await reconciler.reconcile(Request(key))
            done = [_done(order, copied) for order in members.declared(janitor_of(uid), JANITOR)]
            members.accept(Beat(**words, idx=0, attempt=0, seq=next(numbers), results=done))
    return events.seen


def _done(order, copied):
    """Be the janitor: carry out what is wanted of it."""
    return DirectiveResult(order.id, ok=True, value=storeops.run(open_home(str(copied)), order.args))
