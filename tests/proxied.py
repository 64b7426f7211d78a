"""What tests through the fault proxy share: hasty time, caches behind the proxy, and waiting for what must come.

The server and its connections keep real time; only the waiting of what is under test is made shorter, all of it by
the same factor, so that a backoff of 30 s does not take 30 s and still is what it is.
"""

import asyncio
import contextlib
import datetime as dt
import inspect

from runtime.cache import Informers
from runtime.client import Client
from runtime.tasks import TaskScope

EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class HastyClock:
    """A clock on which `pace` seconds pass in each real one."""

    def __init__(self, pace=20.0):
        self.pace = pace

    def monotonic(self):
        return asyncio.get_running_loop().time() * self.pace

    def utcnow(self):
        return EPOCH + dt.timedelta(seconds=self.monotonic())

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / self.pace)


class Heard:
    """A handler that remembers what it was told."""

    def __init__(self):
        self.deltas = []

    def on_add(self, obj, *, initial):
        self.deltas.append(("add", obj["metadata"]["name"], initial))

    def on_update(self, old, new):
        self.deltas.append(("update", new["metadata"]["name"], old is new))

    def on_delete(self, obj, *, final_state_unknown):
        self.deltas.append(("delete", obj["metadata"]["name"], final_state_unknown))


async def until(condition, *, within=10.0):
    """Return as soon as the condition, which may be a coroutine function, holds."""
    async with asyncio.timeout(within):
        while True:
            held = condition()
            if await held if inspect.isawaitable(held) else held:
                return
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def caching(proxy, *wanted, clock=None, timeouts=None, streaming=False, **config):
    """Fill caches through the proxy: `wanted` are resources, or pairs of one and the arguments of its informer."""
    clock = clock or HastyClock()
    async with Client(proxy.config(timeouts=timeouts, **config), clock=clock) as client, TaskScope() as scope:
        informers = Informers(client, clock=clock, streaming=streaming)
        found = []
        for each in wanted:
            resource, arguments = each if isinstance(each, tuple) else (each, {})
            found.append(informers.informer(resource, **arguments))
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(20 * clock.pace)
        await until(lambda: len(proxy.open_watches()) == len(wanted))
        yield found
        scope.cancel()


def listings(proxy, *, path=""):
    """Return the requests for a whole collection, streaming lists included."""
    streamed = [each for each in proxy.asked("WATCH", path=path) if "sendInitialEvents" in each.query]
    return proxy.asked("LIST", path=path) + streamed


def names(informer):
    """Return the names of what is cached, sorted."""
    return sorted(obj["metadata"]["name"] for obj in informer.list())


def config_map(namespace, name, **data):
    """Return a ConfigMap."""
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}
