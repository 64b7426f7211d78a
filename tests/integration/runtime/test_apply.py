"""Server-side apply on the real API server."""

import pytest

from runtime.cache import Informers
from runtime.client import Client, Conflict
from runtime.client.apply import apply, apply_status
from runtime.objects import CONFIGMAPS, PODS, ObjectKey, thaw
from runtime.tasks import TaskScope


async def test_an_object_out_of_a_cache_is_applied_without_touching_others_fields(control_plane, namespace):
    """R5, RT31."""
    async with Client(control_plane.config) as client, TaskScope() as scope:
        body = {
            "metadata": {"name": "a", "namespace": namespace, "labels": {"by": "theirs"}},
            "data": {"k": "1"},
        }
        await client.create(CONFIGMAPS, body, field_manager="theirs")
        informers = Informers(client)
        informer = informers.informer(CONFIGMAPS, namespaces=[namespace])
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20)
        cached = thaw(informer.get(ObjectKey(namespace, "a")))
        cached["data"] = {"ours": "1"}
        del cached["metadata"]["labels"]
        applied = await apply(client, CONFIGMAPS, cached, field_manager="ours")
        assert applied["data"] == {"k": "1", "ours": "1"}
        assert applied["metadata"]["labels"] == {"by": "theirs"}
        owned = {entry["manager"]: entry for entry in applied["metadata"]["managedFields"]}
        assert owned["ours"]["operation"] == "Apply"
        assert owned["ours"]["fieldsV1"] == {"f:data": {"f:ours": {}}}
        cached["data"] = {"k": "2"}
        with pytest.raises(Conflict, match="theirs"):
            await apply(client, CONFIGMAPS, cached, field_manager="ours")
        forced = await apply(client, CONFIGMAPS, cached, field_manager="ours", force=True)
        assert forced["data"] == {"k": "2"}  # and what we no longer state is gone
        scope.cancel()


async def test_a_guarded_apply_fails_on_a_newer_object(control_plane, namespace):
    """R5, R4."""
    async with Client(control_plane.config) as client:
        made = await client.create(CONFIGMAPS, {"metadata": {"name": "a", "namespace": namespace}})
        await client.patch(CONFIGMAPS, "a", {"data": {"x": "1"}}, namespace=namespace)
        with pytest.raises(Conflict):
            await apply(client, CONFIGMAPS, made | {"data": {"y": "1"}}, field_manager="ours", guarded=True)


async def test_a_status_has_its_own_manager(control_plane, namespace):
    """R5, C7."""
    pod = {
        "metadata": {"name": "p", "namespace": namespace},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }
    async with Client(control_plane.config) as client:
        made = await apply(client, PODS, pod, field_manager="spec")
        told = await apply_status(client, PODS, made, {"message": "waiting"}, field_manager="status")
        assert told["status"]["message"] == "waiting"
        managers = {
            (entry["manager"], entry.get("subresource", "")) for entry in told["metadata"]["managedFields"]
        }
        assert {("spec", ""), ("status", "status")} <= managers
