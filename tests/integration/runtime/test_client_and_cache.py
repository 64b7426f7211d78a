"""The client and the caches against a real API server."""

import asyncio

import pytest

from runtime.cache import METADATA_ONLY, Barrier, CacheNotSynced, Informers, Node, Pod, WatchRejected
from runtime.client import AlreadyExists, Client, Conflict, Invalid, NotFound, PatchKind
from runtime.clock import SystemClock
from runtime.objects import CONFIGMAPS, NAMESPACES, NODES, PODS, ObjectKey, resource_version_of, uid_of
from runtime.resourceversion import compare
from runtime.tasks import TaskScope


@pytest.fixture
async def client(control_plane):
    async with Client(control_plane.config) as client:
        yield client


def config_map(namespace, name, **data):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"suite": "runtime"}},
        "data": data,
    }


def pod(namespace, name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "test"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }


async def eventually(condition, *, within=10.0):
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


class Recorder:
    def __init__(self):
        self.heard = []

    def on_add(self, obj, *, initial):
        self.heard.append(("add", obj["metadata"]["name"], initial))

    def on_update(self, old, new):
        self.heard.append(("update", new["metadata"]["name"], old["metadata"]["resourceVersion"]))

    def on_delete(self, obj, *, final_state_unknown):
        self.heard.append(("delete", obj["metadata"]["name"], final_state_unknown))


async def test_every_verb_does_what_it_says(client, namespace):
    """K4, K6: create, read, replace, patch, apply, delete; each refusal has its class."""
    made = await client.create(CONFIGMAPS, config_map(namespace, "one", a="1"))
    assert uid_of(made)
    with pytest.raises(AlreadyExists):
        await client.create(CONFIGMAPS, config_map(namespace, "one"))
    read = await client.get(CONFIGMAPS, "one", namespace)
    assert read["data"] == {"a": "1"}

    replaced = await client.replace(CONFIGMAPS, {**read, "data": {"a": "2"}})
    assert compare(resource_version_of(replaced), resource_version_of(read)) == 1
    with pytest.raises(Conflict):
        await client.replace(CONFIGMAPS, {**read, "data": {"a": "3"}})

    merged = await client.patch(CONFIGMAPS, "one", {"data": {"b": "1"}}, namespace=namespace)
    assert merged["data"] == {"a": "2", "b": "1"}
    tested = [{"op": "test", "path": "/data/a", "value": "9"}, {"op": "remove", "path": "/data/a"}]
    with pytest.raises(Invalid):
        await client.patch(CONFIGMAPS, "one", tested, namespace=namespace, kind=PatchKind.JSON)
    applied = await client.patch(
        CONFIGMAPS,
        "one",
        {"metadata": {"name": "one", "namespace": namespace}, "data": {"c": "1"}},
        namespace=namespace,
        kind=PatchKind.APPLY,
        field_manager="tester",
    )
    assert applied["data"]["c"] == "1"

    with pytest.raises(Conflict):
        await client.delete(CONFIGMAPS, "one", namespace, uid="another")
    await client.delete(CONFIGMAPS, "one", namespace, uid=uid_of(applied))
    with pytest.raises(NotFound) as missing:
        await client.get(CONFIGMAPS, "one", namespace)
    assert missing.value.details["kind"] == "configmaps"
    assert int((await client.raw_version())["minor"]) >= 32


async def test_list_reads_all_pages_and_types_its_items(client, namespace):
    """W3."""
    for number in range(7):
        await client.create(CONFIGMAPS, config_map(namespace, f"page-{number}"))
    listed = await client.list(CONFIGMAPS, namespace, labels="suite=runtime", limit=3)
    assert sorted(item["metadata"]["name"] for item in listed.items) == [
        f"page-{number}" for number in range(7)
    ]
    assert {item["kind"] for item in listed.items} == {"ConfigMap"}
    assert listed.resource_version


async def test_cache_follows_the_server_and_the_barrier_opens_when_it_has_caught_up(client, namespace):
    """W1, S5, R2."""
    await client.create(CONFIGMAPS, config_map(namespace, "early"))
    informers = Informers(client)
    informer = informers.informer(CONFIGMAPS, labels="suite=runtime", namespaces=[namespace])
    recorder = Recorder()
    registration = informer.add_handler(recorder)
    barrier = Barrier(informer, clock=SystemClock())
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20)
        await eventually(lambda: registration.has_synced)
        assert recorder.heard == [("add", "early", True)]

        barrier.wrote("parent", await client.create(CONFIGMAPS, config_map(namespace, "late")))
        await eventually(lambda: barrier.is_open("parent"))
        cached = informer.get(ObjectKey(namespace, "late"))
        assert "managedFields" not in cached["metadata"]

        await client.patch(CONFIGMAPS, "late", {"data": {"x": "y"}}, namespace=namespace)
        barrier.deleted("parent", cached, answer=await client.delete(CONFIGMAPS, "late", namespace))
        await eventually(lambda: barrier.is_open("parent"))
        await eventually(lambda: ("delete", "late", False) in recorder.heard)
        assert [entry[0] for entry in recorder.heard if entry[1] == "late"] == ["add", "update", "delete"]
        assert len(barrier) == 0
        scope.cancel()


async def test_pods_and_nodes_are_read_as_the_real_server_writes_them(client, namespace):
    """PY9: nothing of the server's own output is skipped."""
    skipped = []

    class Counting:
        def object_skipped(self, *, kind, reason):
            skipped.append((kind, reason))

        def __getattr__(self, name):
            return lambda **_: None

    await client.create(NODES, {"metadata": {"name": f"node-{namespace}"}, "spec": {"unschedulable": True}})
    await client.create(PODS, pod(namespace, "projected"))
    informers = Informers(client, metrics=Counting())
    pods = informers.informer(PODS, projection=Pod)
    nodes = informers.informer(NODES, projection=Node)
    partial = informers.informer(NAMESPACES, projection=METADATA_ONLY)
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20)
        seen = pods.get(ObjectKey(namespace, "projected"))
        assert (seen.phase, seen.labels["app"], seen.spec.scheduler_name) == ("Pending", "test", "nobody")
        assert not nodes.get(ObjectKey("", f"node-{namespace}")).is_schedulable
        assert partial.get(ObjectKey("", namespace)).uid

        status = {
            "status": {"phase": "Failed", "podIP": "10.0.0.1", "conditions": None, "containerStatuses": None}
        }
        await client.patch(PODS, "projected", status, namespace=namespace, subresource="status")
        await eventually(lambda: pods.get(ObjectKey(namespace, "projected")).is_terminal)
        assert pods.get(ObjectKey(namespace, "projected")).status.pod_ip == "10.0.0.1"
        labelled = {"metadata": {"labels": {"seen": "live"}}}
        await client.patch(NAMESPACES, namespace, labelled)
        await eventually(lambda: partial.get(ObjectKey("", namespace)).labels.get("seen") == "live")
        scope.cancel()
    await client.delete(NODES, f"node-{namespace}")
    assert skipped == []


async def test_unsupported_field_selector_fails_the_start_naming_kind_and_selector(client):
    """S8, RT18."""
    informers = Informers(client)
    informers.informer(PODS, fields="spec.nonsense=1", projection=Pod)
    with pytest.raises(ExceptionGroup) as failure:
        await informers.run()
    assert failure.group_contains(WatchRejected, match=r"pods with fields 'spec.nonsense=1'", depth=None)


async def test_kind_that_is_not_served_is_named_when_the_caches_do_not_fill(client):
    """S9."""
    from runtime.objects import Resource

    informers = Informers(client)
    informers.informer(Resource("nowhere.example", "v1", "things", "Thing"))
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        with pytest.raises(CacheNotSynced, match=r"things.nowhere.example"):
            await informers.wait_synced(0.5)
        scope.cancel()
