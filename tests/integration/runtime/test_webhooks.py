"""Webhooks as the real API server calls them."""

import asyncio
import base64
import contextlib
import itertools
import os
import socket

import pytest

from runtime.cache import CacheNotSynced, Informers
from runtime.client import ApiError, Client, Forbidden, NotFound
from runtime.clock import SystemClock
from runtime.manager import Manager
from runtime.metrics import Metrics
from runtime.objects import CONFIGMAPS, CUSTOM_RESOURCE_DEFINITIONS, Resource
from runtime.tasks import TaskScope
from runtime.webhook import Allowed, CertificateWatcher, Denied, WebhookServer

MUTATING = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
_numbers = itertools.count(1)


async def eventually(condition, *, within=20.0):
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.05)


def free_port():
    """Return a port that is known before the server listens, for the API server is told first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server(control_plane, tmp_path):
    """A webhook server on a port of its own, with a certificate the control plane's authority signed."""
    pair = control_plane.server_certificate("webhook", hosts=["127.0.0.1"], folder=tmp_path)
    metrics = Metrics()
    certificates = CertificateWatcher(pair.certificate, pair.key, clock=SystemClock(), metrics=metrics)
    return WebhookServer("127.0.0.1", free_port(), certificates=certificates, metrics=metrics)


def hook(control_plane, server, path):
    """Tell the API server where the webhook is and whom to trust there."""
    authority = base64.b64encode(control_plane.authority_file.read_bytes()).decode()
    return {"url": f"https://127.0.0.1:{server.port}{path}", "caBundle": authority}


class Reviewer:
    """Denies what says so, and stamps the rest."""

    async def review(self, request):
        data = (request.decode() or {}).get("data") or {}
        if "forbidden" in data:
            return Denied(f"{request.name} is not wanted by {request.user_info.username}")
        if "stamp" not in data:
            return Allowed(
                patch=[{"op": "add", "path": "/data/stamp", "value": "seen"}], warnings=["stamped"]
            )
        return Allowed()


@contextlib.asynccontextmanager
async def configured(control_plane, server, namespace):
    """Have the API server ask about ConfigMaps of a namespace."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    webhook = {
        "name": "configmaps.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
        ],
        "clientConfig": hook(control_plane, server, "/review"),
    }
    async with Client(control_plane.config) as client:
        await client.create(MUTATING, {"metadata": {"name": name}, "webhooks": [webhook]})
        try:
            yield client
        finally:
            await client.delete(MUTATING, name)


def config_map(namespace, name, **data):
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


async def test_the_api_server_obeys_a_denial_and_a_patch(control_plane, namespace, server):
    """AD7."""
    server.add_admission("/review", Reviewer())
    await server.start()
    try:
        async with configured(control_plane, server, namespace) as client:
            made = itertools.count()

            async def is_stamped():
                obj = await client.create(CONFIGMAPS, config_map(namespace, f"n{next(made)}", k="1"))
                return obj["data"].get("stamp") == "seen"

            await eventually(is_stamped)  # a configuration takes effect some time after it was made
            with pytest.raises(Forbidden, match="bad is not wanted by admin"):
                await client.create(CONFIGMAPS, config_map(namespace, "bad", forbidden="yes"))
    finally:
        await server.stop()


def two_versions(group, conversion):
    """A kind whose older version calls `count` what the newer calls `size`."""
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == "v1",
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}},
                }
            },
        }
        for name, field in (("v1", "count"), ("v2", "size"))
    ]
    return {
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": versions,
            "conversion": conversion,
        },
    }


def convert(obj, version):
    before, after = ("count", "size") if version.endswith("/v2") else ("size", "count")
    spec = obj.setdefault("spec", {})
    if before in spec:
        spec[after] = spec.pop(before)
    return obj | {"apiVersion": version}


@pytest.fixture
async def old_objects(control_plane, namespace, server):
    """A kind with objects stored in its older version, which only our webhook can show in the newer, yielded one."""
    group = f"t{os.getpid()}n{next(_numbers)}.example.com"
    server.add_conversion("/convert", convert)
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": hook(control_plane, server, "/convert")}
    conversion = {"strategy": "Webhook", "webhook": webhook}
    older, newer = (Resource(group, version, "things", "Thing") for version in ("v1", "v2"))
    async with Client(control_plane.config) as client:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, two_versions(group, conversion))

        async def is_made():
            try:
                await client.create(older, config_map(namespace, "old") | {"spec": {"count": 3}})
            except ApiError:
                return False
            return True

        await eventually(is_made)
        yield newer
        # Served to the end: else the objects could not be read to be deleted, and a server that is stopped while the
        # API server still asks leaves half a handshake behind.
        await server.start()
        try:
            await client.delete(CUSTOM_RESOURCE_DEFINITIONS, f"things.{group}")

            async def is_gone():
                try:
                    await client.get(CUSTOM_RESOURCE_DEFINITIONS, f"things.{group}")
                except NotFound:
                    return True
                return False

            await eventually(is_gone)
        finally:
            await server.stop()


@pytest.mark.parametrize("streaming", [True, False])
async def test_our_own_list_is_converted_by_our_own_webhook(
    control_plane, namespace, server, old_objects, streaming
):
    """RT41, P2, AD9: the server answers before the caches fill."""
    manager = Manager(control_plane.config, health_address=None, freeze_memory=False)
    if not streaming:
        manager.informers = Informers(manager.client, clock=manager.clock, metrics=manager.metrics)
    manager.add_server(server)
    things = manager.informers.informer(old_objects, namespaces=[namespace])
    stop = asyncio.Event()
    async with TaskScope() as scope:
        running = scope.spawn(manager.run(stop), name="manager")

        async def is_filled():
            # An ordinary list may be answered from before the object, which then comes by the watch.
            return manager.is_ready and [obj["spec"] for obj in things.list()] == [{"size": 3}]

        await eventually(is_filled)
        stop.set()
    assert running.result() == 0


async def test_caches_before_the_webhook_would_wait_for_ever(control_plane, namespace, old_objects):
    """RT41: the reverse order, shown to hang."""
    async with Client(control_plane.config) as client, TaskScope() as scope:
        informers = Informers(client, streaming=True)
        informers.informer(old_objects, namespaces=[namespace])
        scope.spawn(informers.run(), name="informers")
        with pytest.raises(CacheNotSynced, match="things"):
            await informers.wait_synced(4)
        scope.cancel()
