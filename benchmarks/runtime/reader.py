"""One client that fills a cache of pods and follows it; run as a process of its own, prints its figures as JSON.

Processor time is counted from the first update to the last, over all threads, so that waiting costs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import uvloop

from benchmarks.child import python
from runtime.cache import Informers, Pod
from runtime.client import Client, ClientConfig
from runtime.objects import PODS
from runtime.tasks import TaskScope

__all__ = ["KINDS", "command"]

KINDS = {
    "idle": "control: the same loop, nothing to do",
    "discard": "control: reads the stream and throws it away",
    "struct": "ours, projected pods",
    "dict": "ours, dicts",
    "kubernetes-asyncio": "kubernetes-asyncio, watch and models",
}
"""What can be measured here, and what tables call it."""

IDLE_RATE = 2_000
"""Updates a second whose time a loop with nothing to do lets pass."""

_SAMPLE = 0.005  # seconds between looks at the loop's lag


def command(kind: str, server: str, *, pods: int, events: int = 0, traced: bool = False) -> list[str]:
    """Return the command that runs one client."""
    arguments = [f"--kind={kind}", f"--server={server}", f"--pods={pods}", f"--events={events}"]
    return python("benchmarks.runtime.reader", *arguments, *(["--traced"] if traced else []))


class Gauge:
    """Counts updates and takes the time and the processor's time of the first and the last."""

    def __init__(self, events: int) -> None:
        self._wanted, self._seen = events, 0
        self._first = self._last = (0.0, 0.0)
        self.done = asyncio.Event()

    def on_add(self, obj: object, *, initial: bool) -> None:
        """Hear of a pod that was there."""

    def on_delete(self, obj: object, *, final_state_unknown: bool) -> None:
        """Hear of nothing, no pod is deleted here."""

    def on_update(self, old: object, new: object) -> None:  # noqa: ARG002  # the handler's interface
        """Count."""
        self._seen += 1
        if self._seen == 1:
            self._first = _now()
        if self._seen == self._wanted:
            self._last = _now()
            self.done.set()

    def figures(self) -> dict[str, float]:
        """Return what the updates took."""
        (began, cpu_before), (ended, cpu_after) = self._first, self._last
        return {
            "events": self._wanted - 1,
            "events_seconds": ended - began,
            "events_cpu": cpu_after - cpu_before,
        }


class Lag:
    """How late the event loop comes to a timer."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._due = time.perf_counter() + _SAMPLE

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            self._due = time.perf_counter() + _SAMPLE  # uvloop's own clock has a resolution of 1 ms
            await asyncio.sleep(_SAMPLE)
            self._late.append(time.perf_counter() - self._due)

    def take(self) -> dict[str, float]:
        """Return median, 99th percentile and maximum in milliseconds since the last call."""
        # Whoever asks may be what keeps the timer waiting: that counts too.
        late, self._late = sorted([*self._late, time.perf_counter() - self._due]), []
        picked = {"p50": late[len(late) // 2], "p99": late[int(len(late) * 0.99)], "max": late[-1]}
        return {name: 1000 * max(0.0, value) for name, value in picked.items()}


class Collections:
    """How long the garbage collector has held everything up."""

    def __init__(self) -> None:
        self._began = 0.0
        self._spans = [0.0]

    def __call__(self, phase: str, info: dict[str, int]) -> None:  # noqa: ARG002  # the collector's interface
        """Hear of a collection's begin and end."""
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        else:
            self._spans.append(now - self._began)

    def take(self) -> dict[str, float]:
        """Return the sum and the longest in milliseconds since the last call."""
        spans, self._spans = self._spans, [0.0]
        return {"sum": 1000 * sum(spans), "max": 1000 * max(spans)}


Report = Callable[[], None]


async def _informer(kind: str, server: str, gauge: Gauge, *, synced: Report) -> None:
    projection = Pod if kind == "struct" else None
    async with Client(ClientConfig(server)) as client, TaskScope() as scope:
        informers = Informers(client)
        informer = informers.informer(PODS, projection=projection)
        informer.add_handler(gauge)
        running = scope.spawn(informers.run(), name="informers")
        await informers.wait_synced()
        synced()
        informers.freeze()
        await gauge.done.wait()
        running.cancel()
        scope.cancel()


async def _discard(server: str, gauge: Gauge, *, synced: Report) -> None:
    address = f"{server}/api/v1/pods"
    async with aiohttp.ClientSession() as session:
        synced()
        async with session.get(address, params={"watch": "true"}) as answer:
            async for chunk in answer.content.iter_any():
                for _ in range(chunk.count(b"\n")):
                    gauge.on_update(None, None)
                if gauge.done.is_set():
                    break


async def _models(server: str, gauge: Gauge, *, synced: Report) -> None:
    from kubernetes_asyncio import client, watch

    async with client.ApiClient(client.Configuration(host=server)) as transport:
        api = client.CoreV1Api(transport)
        listed = await api.list_pod_for_all_namespaces()
        cache = {(pod.metadata.namespace, pod.metadata.name): pod for pod in listed.items}
        version = listed.metadata.resource_version
        del listed
        synced()
        async with watch.Watch() as stream:
            async for event in stream.stream(api.list_pod_for_all_namespaces, resource_version=version):
                pod = event["object"]
                key = (pod.metadata.namespace, pod.metadata.name)
                old, cache[key] = cache.get(key), pod
                gauge.on_update(old, pod)
                if gauge.done.is_set():
                    break


async def measure(kind: str, server: str, *, events: int, traced: bool) -> dict[str, Any]:
    """Fill the cache, follow the updates and return the figures."""
    gauge, lag, collections, figures = Gauge(events), Lag(), Collections(), dict[str, Any]()
    gc.callbacks.append(collections)
    if events == 0:
        gauge.done.set()
    if traced:
        tracemalloc.start()
    begun, cpu_before = _now()

    def synced() -> None:
        now, cpu = _now()
        figures.update(sync_seconds=now - begun, sync_cpu=cpu - cpu_before, sync_lag=lag.take())
        collections.take()
        if traced:
            gc.collect()
            figures["heap_bytes"] = tracemalloc.get_traced_memory()[0]

    run: Awaitable[None]
    if kind == "kubernetes-asyncio":
        run = _models(server, gauge, synced=synced) if events else _listed(server, synced)
    elif kind == "discard":
        run = _discard(server, gauge, synced=synced)
    elif kind == "idle":
        run = asyncio.sleep(events / IDLE_RATE)
    else:
        run = _informer(kind, server, gauge, synced=synced)
    async with TaskScope() as scope:
        scope.spawn(lag.run(), name="lag")
        await run
        scope.cancel()
    figures["lag"], figures["collections"] = lag.take(), collections.take()
    figures["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**figures, **(gauge.figures() if events and kind != "idle" else {})}


async def _listed(server: str, synced: Report) -> None:
    from kubernetes_asyncio import client

    async with client.ApiClient(client.Configuration(host=server)) as transport:
        listed = await client.CoreV1Api(transport).list_pod_for_all_namespaces()
        cache = {(pod.metadata.namespace, pod.metadata.name): pod for pod in listed.items}
        del listed
        synced()
        cache.clear()


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def main() -> None:
    """Run one client and print its figures."""
    parser = argparse.ArgumentParser(description="Fill a cache of pods and follow it.")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--server", required=True)
    for name in ("pods", "events"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--traced", action="store_true")
    chosen = parser.parse_args()
    run = measure(chosen.kind, chosen.server, events=chosen.events, traced=chosen.traced)
    print(json.dumps(uvloop.run(run)))


if __name__ == "__main__":
    main()
