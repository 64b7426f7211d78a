"""The same requests with nothing behind them: what the API server, or its stand-in, and aiohttp let through at most.

Lists the Bundles once, then sends each one's three creates and its status, 64 at once; reads $KUBECONFIG. Nothing is
watched, cached or retried, so no operator can be quicker than this.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
import uvloop

from benchmarks.runtime.kopfcase.bundle import CHILDREN, GROUP, PLURAL, VERSION, child
from runtime.client import ClientConfig
from runtime.client.transport import Transport
from runtime.objects import CONFIGMAPS, Resource, owner_reference
from runtime.tasks import TaskScope

_BUNDLES = Resource(GROUP, VERSION, PLURAL, "Bundle")
_IN_FLIGHT = 64


class Sender:
    """Sends JSON and wants a good answer."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def send(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json"
    ) -> Any:
        """Return the answer's JSON."""
        headers = {"Content-Type": kind, "Accept": "application/json"}
        content = None if body is None else orjson.dumps(body)
        async with self._session.request(
            method, self._server + path, data=content, headers=headers
        ) as answer:
            answer.raise_for_status()
            return orjson.loads(await answer.read())

    async def work_off(self, bundle: Mapping[str, Any], namespace: str) -> None:
        """Do for one Bundle what an operator does."""
        name = bundle["metadata"]["name"]
        owner = owner_reference(_BUNDLES, bundle)
        async with TaskScope() as scope:
            for number in range(CHILDREN):
                body = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    **child(name, namespace, number, owner=owner),
                }
                scope.spawn(self.send("POST", CONFIGMAPS.path(namespace), body), name="create")
        path = _BUNDLES.path(namespace, name=name, subresource="status")
        status = {"status": {"children": CHILDREN}}
        await self.send("PATCH", path, status, kind="application/merge-patch+json")


async def run(namespace: str) -> None:
    """Work off all Bundles of a namespace, then wait to be ended."""
    config = replace(ClientConfig.from_kubeconfig(), in_flight=_IN_FLIGHT)
    transport = Transport(config)  # a plain aiohttp session with the kubeconfig's certificates, nothing more
    await transport.open()
    try:
        sender = Sender(transport.calls, config.server)
        listed = await sender.send("GET", _BUNDLES.path(namespace))
        bundles = iter(listed["items"])

        async def work() -> None:
            for bundle in bundles:
                await sender.work_off(bundle, namespace)

        async with TaskScope() as scope:
            for number in range(_IN_FLIGHT // 2):
                scope.spawn(work(), name=f"work {number}")
        await asyncio.sleep(3600)
    finally:
        await transport.close()


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1]))
