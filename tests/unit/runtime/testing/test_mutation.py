"""Whoever changes a cached object is found out."""

import contextlib

import pytest

from runtime.cache import Informers, Pod, informer
from runtime.cache.store import Store
from runtime.clock import LoopClock
from runtime.objects import CONFIGMAPS, PODS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import MemoryApi
from runtime.testing.mutation import MutationDetector
from runtime.testing.simloop import run_simulated

A = ObjectKey("ns", "a")


def write_label(obj):
    obj["metadata"].setdefault("labels", {})["x"] = "1"


def write_data(obj):
    obj["data"]["k"] = "2"


def drop_data(obj):
    del obj["data"]["k"]


def findings(change, *, then=None, resource=CONFIGMAPS, projection=None):
    """Fill a cache, let `change` have an object of it, do something `then`, and return what was found."""
    detector = MutationDetector()

    async def scenario():
        api = MemoryApi()
        clock = LoopClock()
        body = {"metadata": {"name": "a", "namespace": "ns", "annotations": {"n": "1"}}, "data": {"k": "1"}}
        api.log.put(resource, body)
        with detector.installed():
            informers = Informers(api, clock=clock)
            cache = informers.informer(resource, projection=projection)
        async with TaskScope() as scope:
            scope.spawn(informers.run(), name="informers")
            await clock.sleep(1)
            change(cache.get(A))
            if then is not None:
                then(api, body)
                await clock.sleep(120)
            found = detector.findings()
            scope.cancel()
        return found

    return run_simulated(scenario())


@pytest.mark.parametrize(
    ("change", "path"),
    [(write_label, "metadata.labels"), (write_data, "data.k"), (drop_data, "data.k")],
)
def test_a_change_in_place_is_named_with_its_field(change, path):
    """S4."""
    assert findings(change) == [f"ns/a was changed in the cache: {path}"]


def delete(api, _body):
    api.log.delete(CONFIGMAPS, A)


def update(api, body):
    api.log.put(CONFIGMAPS, body | {"data": {"k": "3"}})


def relist(api, body):
    update(api, body)
    api.log.compact()
    api.end_watches()
    api.plan("WATCH", b"<html>")


@pytest.mark.parametrize("then", [delete, update, relist])
def test_an_object_that_has_left_the_cache_since_is_still_told_of(then):
    """S4: the server's next word would otherwise hide it."""
    assert findings(write_data, then=then) == ["ns/a was changed in the cache: data.k"]


def test_a_map_inside_a_frozen_struct_is_guarded_too():
    """S4: frozen is the struct, not what it refers to."""
    found = findings(lambda pod: pod.metadata.annotations.update(n="2"), resource=PODS, projection=Pod)
    assert found == ["ns/a was changed in the cache: metadata.annotations.n"]


@pytest.mark.parametrize("then", [None, delete, update, relist])
def test_reading_is_no_change(then):
    """S4."""
    assert findings(lambda obj: dict(obj["metadata"]), then=then) == []


def test_nothing_is_guarded_outside_the_block():
    """S4: what tests need costs the product nothing."""
    with contextlib.suppress(OSError), MutationDetector().installed():
        assert informer.Store is not Store
        raise OSError("within")
    assert informer.Store is Store
