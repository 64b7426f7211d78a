"""The example operator as its README has it: a process of its own against the real API server."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.client import Client, NotFound
from runtime.objects import CONFIGMAPS, EVENTS, NAMESPACES

MIRROR = Path(__file__).parents[3] / "examples" / "configmap-mirror" / "mirror.py"


@pytest.fixture
async def client(control_plane):
    async with Client(control_plane.config) as client:
        yield client


@pytest.fixture
def operator(kubeconfig, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(MIRROR)],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            stderr=log,
            stdout=log,
        )
    yield process
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(timeout=15) == 0, (tmp_path / "log").read_text()
    finally:
        process.kill()


@pytest.fixture
async def team(client, namespace):
    """A second namespace."""
    name = f"{namespace}-team"
    await client.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await client.delete(NAMESPACES, name)


def source(namespace, *, to, **data):
    return {
        "metadata": {
            "name": "settings",
            "namespace": namespace,
            "labels": {"mirror.example.com/source": "yes"},
            "annotations": {"mirror.example.com/to": to},
        },
        "data": data,
    }


async def data_in(client, namespace):
    try:
        return (await client.get(CONFIGMAPS, "settings", namespace)).get("data")
    except NotFound:
        return None


async def becomes(client, namespace, data):
    async with asyncio.timeout(30):
        while await data_in(client, namespace) != data:
            await asyncio.sleep(0.05)


async def test_copies_follow_their_source_and_go_with_it(operator, client, namespace, team):
    """C6, R5, R6: changes of source and copy, a deleted copy, a deleted source."""
    await client.create(CONFIGMAPS, source(namespace, to=f"{team}, {namespace}", colour="blue"))
    await becomes(client, team, {"colour": "blue"})
    await client.patch(CONFIGMAPS, "settings", {"data": {"colour": "red"}}, namespace=namespace)
    await becomes(client, team, {"colour": "red"})
    await client.patch(CONFIGMAPS, "settings", {"data": {"colour": "grey"}}, namespace=team)
    await becomes(client, team, {"colour": "red"})
    await client.delete(CONFIGMAPS, "settings", team)
    await becomes(client, team, {"colour": "red"})
    await client.delete(CONFIGMAPS, "settings", namespace)
    await becomes(client, namespace, None)
    assert await data_in(client, team) is None, "the finalizer let the source go before its copy"


async def test_a_namespace_that_leaves_the_list_loses_its_copy(operator, client, namespace, team):
    """R3."""
    await client.create(CONFIGMAPS, source(namespace, to=team, colour="blue"))
    await becomes(client, team, {"colour": "blue"})
    emptied = {"metadata": {"annotations": {"mirror.example.com/to": ""}}}
    await client.patch(CONFIGMAPS, "settings", emptied, namespace=namespace)
    await becomes(client, team, None)
    await client.delete(CONFIGMAPS, "settings", namespace)
    await becomes(client, namespace, None)


async def test_a_source_that_loses_its_label_is_let_go(operator, client, namespace, team):
    """R6: it has left our cache, and nobody else would take our finalizer off."""
    await client.create(CONFIGMAPS, source(namespace, to=team, colour="blue"))
    await becomes(client, team, {"colour": "blue"})
    unlabelled = {"metadata": {"labels": {"mirror.example.com/source": None}}}
    await client.patch(CONFIGMAPS, "settings", unlabelled, namespace=namespace)
    await becomes(client, team, None)
    await client.delete(CONFIGMAPS, "settings", namespace)
    await becomes(client, namespace, None)


async def test_a_namespace_that_does_not_exist_is_told_in_an_event_and_holds_up_no_other(
    operator, client, namespace, team
):
    """R8."""
    await client.create(CONFIGMAPS, source(namespace, to=f"a-{namespace}-none,{team}", colour="blue"))
    await becomes(client, team, {"colour": "blue"})
    async with asyncio.timeout(20):
        while not any(
            event["reason"] == "NoSuchNamespace" and f"a-{namespace}-none" in event["message"]
            for event in (await client.list(EVENTS, namespace)).items
        ):
            await asyncio.sleep(0.1)
    await client.delete(CONFIGMAPS, "settings", namespace)
    await becomes(client, namespace, None)
