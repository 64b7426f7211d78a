"""Streaming lists from the real API server, and from one that has them switched off."""

import asyncio

import pytest

from runtime.cache import METADATA_ONLY, Informers, Pod
from runtime.client import Client
from runtime.objects import CONFIGMAPS, PODS
from runtime.resourceversion import compare
from runtime.tasks import TaskScope
from trainer_operator.devcluster.controlplane import ControlPlane


class Watched(Client):
    """A client that remembers which lists and watches were asked for."""

    def __init__(self, config):
        super().__init__(config)
        self.asked = []

    async def fetch_page(self, resource, namespace, **kwargs):
        self.asked.append(("LIST", str(resource)))
        return await super().fetch_page(resource, namespace, **kwargs)

    async def open_watch(self, resource, namespace, **kwargs):
        self.asked.append(("WATCH", str(resource)))
        return await super().open_watch(resource, namespace, **kwargs)


async def eventually(condition, *, within=60.0):
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


async def make(client, namespace, name):
    await client.create(CONFIGMAPS, {"metadata": {"name": name, "namespace": namespace}})


async def test_caches_of_every_form_fill_without_a_list(control_plane, namespace):
    """W13, W17: as JSON, as a projection and as metadata alone."""
    async with Watched(control_plane.config) as client, TaskScope() as scope:
        for number in range(3):
            await make(client, namespace, f"n{number}")
        # kube-root-ca.crt comes into every namespace, a moment after it was made.
        published = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
        await eventually(lambda: control_plane.admin.is_ok(published))
        informers = Informers(client, streaming=True)
        plain = informers.informer(CONFIGMAPS, namespaces=[namespace])
        slim = informers.informer(CONFIGMAPS, namespaces=[namespace], projection=METADATA_ONLY)
        pods = informers.informer(PODS, namespaces=[namespace], projection=Pod)
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20)
        assert len(plain) == len(slim) == 4
        assert len(pods) == 0
        listed = await client.list(CONFIGMAPS, namespace)
        assert compare(listed.resource_version, plain.last_version) in (0, 1)
        client.asked.remove(("LIST", "configmaps"))  # the test's own
        assert sorted(client.asked) == [("WATCH", "configmaps")] * 2 + [("WATCH", "pods")]
        await make(client, namespace, "later")
        await eventually(lambda: len(plain) == len(slim) == 5)
        scope.cancel()


@pytest.mark.slow
async def test_a_server_with_the_feature_off_is_listed(tmp_path, control_plane):
    """W13, P4: its refusal costs one request, and it starts beside another control plane on ports of its own."""
    plane = ControlPlane(tmp_path, grace=0, apiserver_args=("--feature-gates=WatchList=false",))
    async with plane, Watched(plane.config) as client, TaskScope() as scope:
        assert plane.url != control_plane.url
        informers = Informers(client, streaming=True)
        informer = informers.informer(CONFIGMAPS, namespaces=["kube-system"])
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20)
        assert [verb for verb, _ in client.asked][:2] == ["WATCH", "LIST"]
        await make(client, "kube-system", "later")
        await eventually(lambda: any(obj["metadata"]["name"] == "later" for obj in informer.list()))
        scope.cancel()
