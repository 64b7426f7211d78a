"""How near our client comes to the limit of concurrent POSTs at a real API server."""

from __future__ import annotations

import ssl
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import uvloop

from benchmarks.result import Column, Ratio, Result, Row, Scale
from benchmarks.runtime.apiserver import api_server, new_namespace
from runtime.client import Client, ClientConfig
from runtime.objects import PODS
from runtime.tasks import TaskScope

__all__ = ["measure"]

_OURS = "ours: `Client.create`"
_RAW = "raw: aiohttp and orjson, nothing else"
_IN_FLIGHT = 64
_SIZES = {Scale.QUICK: (150, 2), Scale.FULL: (2_000, 5)}

Create = Callable[[dict[str, Any]], Awaitable[object]]


def measure(scale: Scale) -> Result:
    """Create Pods in turns, so that a machine that is busy for a while slows both."""
    count, rounds = _SIZES[scale]
    found: dict[str, list[tuple[float, float]]] = {_RAW: [], _OURS: []}
    with api_server() as plane:
        for number in range(rounds + 1):
            for subject, run in ((_RAW, _raw), (_OURS, _ours)):
                namespace = new_namespace(plane, f"{subject[:3].rstrip(':')}-{number}".lower())
                figures = uvloop.run(run(plane.config, namespace, count))
                if number:  # the first round only warms the server
                    found[subject].append(figures)
    rows = tuple(
        Row(
            subject,
            {
                "rate": statistics.median(count / seconds for seconds, _ in figures),
                "cpu": statistics.median(cpu / count * 1e6 for _, cpu in figures),
            },
        )
        for subject, figures in found.items()
    )
    shares = [raw / ours for (raw, _), (ours, _) in zip(found[_RAW], found[_OURS], strict=True)]
    return Result(
        "creation",
        "Creating children",
        f"{count:,} Pods a round, {rounds} rounds in turns, {_IN_FLIGHT} requests at once, kube-apiserver and etcd on "
        "the same machine; medians.",
        (Column("rate", "Pods per second", 0), Column("cpu", "client µs per Pod", 0)),
        rows,
        (
            Ratio(
                "ours against raw, Pods per second (median of rounds)",
                statistics.median(shares),
                at_least=0.8,
            ),
        ),
    )


def _pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "labels": {"app": "bench"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "none"}]},
    }


async def _ours(config: ClientConfig, namespace: str, count: int) -> tuple[float, float]:
    async with Client(config) as client:

        async def create(body: dict[str, Any]) -> object:
            return await client.create(PODS, body, namespace=namespace)

        return await _timed(create, count)


async def _raw(config: ClientConfig, namespace: str, count: int) -> tuple[float, float]:
    context = ssl.create_default_context(cafile=config.ca_file)
    assert config.client_certificate_file is not None
    context.load_cert_chain(config.client_certificate_file, config.client_key_file)
    connector = aiohttp.TCPConnector(ssl=context, limit=_IN_FLIGHT)
    url = config.server + PODS.path(namespace)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def create(body: dict[str, Any]) -> object:
            headers = {"Content-Type": "application/json", "Accept": "application/json"}
            async with session.post(url, data=orjson.dumps(body), headers=headers) as answer:
                answer.raise_for_status()
                return orjson.loads(await answer.read())

        return await _timed(create, count)


async def _timed(create: Create, count: int) -> tuple[float, float]:
    """Return seconds and processor seconds of creating so many with so many requests at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await create(_pod(number))

    begun, cpu = time.perf_counter(), time.process_time()
    async with TaskScope() as scope:
        for number in range(_IN_FLIGHT):
            scope.spawn(work(), name=f"create {number}")
    return time.perf_counter() - begun, time.process_time() - cpu
