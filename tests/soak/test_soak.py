"""Random faults under a changing load: afterwards every cache is what a fresh list says, and nothing was left undone.

`make soak` runs it for ten minutes with 2,000 objects, `make soak SECONDS=60` for a minute with 500. The seed is
printed; `SEED=` of it draws the same faults and the same changes again, though not at the same instants. `RECORD=1`
stores the outcome in docs/soak.
"""

import asyncio
import os
import random
import sys
import time

import pytest

from proxied import HastyClock, until
from runtime.cache import METADATA_ONLY, Informers
from runtime.client import Client, Timeouts
from runtime.controller import Controller
from runtime.logs import configure
from runtime.metrics import Metrics
from runtime.objects import CONFIGMAPS, ObjectKey, key_of, resource_version_of, uid_of
from runtime.tasks import TaskScope
from runtime.testing.faultproxy import FaultProxy
from soak.disturber import Disturber
from soak.load import Load
from soak.record import Outcome

SECONDS = float(os.environ.get("SOAK_SECONDS") or 60)
OBJECTS = int(os.environ.get("SOAK_OBJECTS") or 500)
SEED = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(1_000_000))
RECORD = bool(os.environ.get("SOAK_RECORD"))

CALM = 60.0
"""Seconds in which all must be in order once the faults are over."""

IMPATIENT = Timeouts(
    connect=2.0, read=3.0, total=4.0, list_total=20.0, watch_start=3.0, watch_grace=2.0, watch_silence=3.0
)


class Echo:
    """Writes what an object wants into the object, and notes what it saw last of each."""

    def __init__(self, client, cached):
        self.client, self.cached = client, cached
        self.last, self.running, self.twice_at_once = {}, set(), []
        self.calls = 0

    async def reconcile(self, request):
        self.calls += 1
        if request.key in self.running:
            self.twice_at_once.append(request.key)
        self.running.add(request.key)
        try:
            obj = self.cached.get(request.key)
            data = obj["data"] if obj is not None else {}
            if data.get("seen") != data.get("wanted"):
                change = {"data": {"seen": data["wanted"]}}
                await self.client.patch(CONFIGMAPS, request.name, change, namespace=request.namespace)
            self.last[request.key] = data.get("wanted")
        finally:
            self.running.discard(request.key)


class Mirror:
    """What a handler knows who applies every delta it hears."""

    def __init__(self):
        self.versions = {}

    def on_add(self, obj, *, initial):
        assert key_of(obj) not in self.versions, f"{key_of(obj)} was added twice"
        self.versions[key_of(obj)] = resource_version_of(obj)

    def on_update(self, old, new):
        assert self.versions[key_of(old)] == resource_version_of(old), (
            f"{key_of(old)} changed from what it was not"
        )
        self.versions[key_of(new)] = resource_version_of(new)

    def on_delete(self, obj, *, final_state_unknown):
        del self.versions[key_of(obj)]


def content(objects):
    return {key_of(obj): (uid_of(obj), resource_version_of(obj)) for obj in objects}


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
async def test_after_random_faults_caches_are_right_and_no_reconcile_was_lost(control_plane, namespace):
    """W1-W16, S1, Q1, R1, RT4, RT7, RT17, RT40 at once."""
    print(f"\nsoak: {SECONDS:g} s, {OBJECTS} objects, SEED={SEED}", flush=True)
    configure("error", stream=sys.stdout)  # thousands of warnings are what is to be expected here
    clock = HastyClock()
    async with (
        Client(control_plane.config) as direct,
        FaultProxy(control_plane.config, bookmark_period=0.5) as proxy,
        Client(proxy.config(timeouts=IMPATIENT), clock=clock) as client,
        TaskScope() as scope,
    ):
        load = Load(direct, namespace, count=OBJECTS, rng=random.Random(f"load {SEED}"))
        disturber = Disturber(proxy, rng=random.Random(f"faults {SEED}"))
        metrics = Metrics()
        listing = Informers(client, clock=clock, metrics=metrics)
        streaming = Informers(client, clock=clock, streaming=True)
        objects = listing.informer(CONFIGMAPS, namespaces=[namespace], labels="half")
        selected = listing.informer(CONFIGMAPS, namespaces=[namespace], labels="half=a")
        streamed = streaming.informer(
            CONFIGMAPS, namespaces=[namespace], labels="half", projection=METADATA_ONLY
        )
        mirror = Mirror()
        objects.add_handler(mirror)
        echo = Echo(client, objects)
        controller = Controller("echo", echo, clock=clock, metrics=metrics)
        controller.watch(objects)

        await load.fill()
        scope.spawn(listing.run(), name="listing caches")
        scope.spawn(streaming.run(), name="streaming cache")
        await listing.wait_synced(60 * clock.pace)
        await streaming.wait_synced(60 * clock.pace)
        scope.spawn(controller.run(), name="controller")
        busy = [scope.spawn(load.run(), name="load"), scope.spawn(disturber.run(), name="faults")]
        await asyncio.sleep(SECONDS)
        for task in busy:
            task.cancel()
        await asyncio.wait(busy)
        await disturber.heal()

        wrong = ["not compared yet"]

        async def all_is_well():
            fresh = (await direct.list(CONFIGMAPS, namespace, labels="half")).items
            half = [obj for obj in fresh if obj["metadata"]["labels"]["half"] == "a"]
            undone = [key_of(obj) for obj in fresh if obj["data"].get("seen") != obj["data"]["wanted"]]
            seen = {key: value for key, value in echo.last.items() if value is not None}
            wrong[:] = [
                what
                for what, is_right in (
                    ("the cache of all", content(objects.list()) == content(fresh)),
                    ("the selection", content(selected.list()) == content(half)),
                    ("the streamed metadata", content(streamed.list()) == content(fresh)),
                    ("the handler", mirror.versions == {key_of(o): resource_version_of(o) for o in fresh}),
                    (f"objects that were not reconciled: {undone[:5]}", not undone),
                    ("the last state reconciled", seen == {key_of(o): o["data"]["wanted"] for o in fresh}),
                    ("the queue", len(controller.queue) == 0 and not echo.running),
                )
                if not is_right
            ]
            return not wrong

        calm_began = time.monotonic()
        calm_after = -1.0
        try:
            await until(all_is_well, within=CALM)
            calm_after = round(time.monotonic() - calm_began, 1)
        except TimeoutError:
            pass  # what is wrong is told below, with all the rest
        if echo.twice_at_once:
            wrong.append(f"reconciled twice at once: {echo.twice_at_once[:5]}")
        if any(echo.last.get(ObjectKey(namespace, name)) is not None for name in load.deleted):
            wrong.append("the last state of deleted objects")
        outcome = Outcome(
            seed=SEED,
            seconds=SECONDS,
            objects=OBJECTS,
            changes=load.changes,
            reconciles=echo.calls,
            requests=len(proxy.asked_all),
            calm_after=calm_after,
            wrong=wrong,
            faults=dict(sorted(disturber.done.items())),
            kubernetes=(await direct.raw_version())["gitVersion"],
        )
        print(f"soak: {outcome}", flush=True)
        if RECORD:
            outcome.store()
        assert not wrong, f"after the faults of SEED={SEED}: {'; '.join(wrong)}"
        scope.cancel()
