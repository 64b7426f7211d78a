"""Watches over connections that fail in the ways connections do."""

import asyncio
import contextlib

import pytest

from runtime.backoff import Backoff
from runtime.cache import Informers
from runtime.client import Client, Timeouts
from runtime.client.stream import WatchSilent
from runtime.objects import CONFIGMAPS, PODS, SECRETS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.fakeapi import Answer, FakeApi

SILENCE = Timeouts(watch_silence=0.4)


@pytest.fixture
async def api():
    async with FakeApi(CONFIGMAPS, PODS, SECRETS) as api:
        yield api


class Eager:
    """A clock that does not wait: backoffs are tested elsewhere, here only what follows them."""

    def monotonic(self):
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds):
        await asyncio.sleep(min(seconds, 0.05) if seconds <= Backoff().cap * 2 else seconds)


@contextlib.asynccontextmanager
async def caching(api, *resources, timeouts=None, **config):
    async with (
        Client(api.config(timeouts=timeouts, **config)) as client,
        TaskScope() as scope,
    ):
        informers = Informers(client, clock=Eager())
        found = [informers.informer(resource) for resource in resources]
        scope.spawn(informers.run(), name="informers")
        await informers.wait_synced(10)
        await until(lambda: api.open_watches == len(resources))
        yield found
        scope.cancel()


async def until(condition, *, within=10.0):
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


def put(api, name, resource=CONFIGMAPS, **data):
    return api.log.put(resource, {"metadata": {"name": name, "namespace": "ns"}, "data": data})


def names(informer):
    return sorted(obj["metadata"]["name"] for obj in informer.list())


async def test_a_stream_that_a_proxy_swallows_is_left_once_bookmarks_were_seen(api):
    """W11, RT1: same version, no relist."""
    async with caching(api, CONFIGMAPS, timeouts=SILENCE) as (informer,):
        put(api, "a")
        await until(lambda: names(informer) == ["a"])
        api.bookmark(CONFIGMAPS)
        await asyncio.sleep(0.05)
        api.silence()
        put(api, "b")
        await until(lambda: names(informer) == ["a", "b"])
        assert len(api.asked("LIST")) == 1
        assert [request.query["resourceVersion"] for request in api.asked("WATCH")][:2] == ["1", "2"]


async def test_a_watch_asks_for_bookmarks_and_an_end_and_is_ended_a_little_after_it(api):
    """W4, W11: by us, if the server forgets to."""
    async with Client(api.config(timeouts=Timeouts(watch_grace=0.2))) as client:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        stream = await client.open_watch(CONFIGMAPS, None, params={"resourceVersion": "1"}, timeout_seconds=1)
        async with asyncio.timeout(60):
            with pytest.raises(WatchSilent, match="outlived"):
                async for _ in stream.batches():
                    pass
        stream.close()
        assert loop.time() - begun >= 1.2
    (asked,) = api.asked("WATCH")
    assert dict(asked.query) == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "1",
        "resourceVersion": "1",
    }


async def test_silence_without_bookmarks_is_no_failure(api):
    """W11: a server that sends none may have nothing to say."""
    async with caching(api, CONFIGMAPS, timeouts=SILENCE):
        await asyncio.sleep(1.0)
        assert len(api.asked("WATCH")) == 1


async def test_a_connection_cut_within_a_line_loses_nothing(api):
    """W12, RT7."""
    async with caching(api, CONFIGMAPS) as (informer,):
        put(api, "a")
        api.cut_watches(after=b'{"type":"ADDED","object":{"metadata":{"na')
        await until(lambda: names(informer) == ["a"])
        await until(lambda: len(api.asked("WATCH")) == 2)
        put(api, "b")
        await until(lambda: names(informer) == ["a", "b"])
        assert len(api.asked("LIST")) == 1


async def test_a_very_large_event_passes_and_one_over_the_limit_is_listed(api):
    """W12, RT9: the other kind's watch is untouched."""
    async with caching(api, CONFIGMAPS, PODS, max_line=6 << 20) as (informer, _):
        put(api, "large", x="y" * (5 << 20))
        await until(lambda: names(informer) == ["large"])
        assert len(api.asked("LIST")) == 2
        put(api, "larger", x="y" * (7 << 20))
        await until(lambda: names(informer) == ["large", "larger"])
        paths = [request.path for request in api.asked("LIST")]
        assert sorted(paths) == ["/api/v1/configmaps", "/api/v1/configmaps", "/api/v1/pods"]


async def test_one_refused_watch_leaves_the_others_on_their_connections(api, tmp_path):
    """K5, W8, RT10."""
    token = tmp_path / "token"
    token.write_text("old")
    async with caching(api, CONFIGMAPS, PODS, SECRETS, token_file=str(token)) as (informer, *_):
        token.write_text("new")
        refusal = b'{"type":"ERROR","object":{"kind":"Status","code":401,"reason":"Unauthorized"}}'
        api.send(refusal, to="/api/v1/configmaps")
        await until(lambda: len(api.asked("WATCH")) == 4 and api.open_watches == 3)
        put(api, "a")
        await until(lambda: names(informer) == ["a"])
        last = api.asked("WATCH")[-1]
        assert (last.path, last.headers["Authorization"]) == ("/api/v1/configmaps", "Bearer new")
        assert len(api.asked("LIST")) == 3


@pytest.mark.parametrize("status", [410, 200])
async def test_an_expired_version_is_listed_afresh_while_the_old_content_answers(api, status):
    """W7, RT4, RT5."""
    async with caching(api, CONFIGMAPS) as (informer,):
        put(api, "gone")
        put(api, "kept")
        await until(lambda: names(informer) == ["gone", "kept"])
        expired = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
        api.plan("WATCH", Answer(status, expired))
        api.silence()
        api.log.delete(CONFIGMAPS, ObjectKey("ns", "gone"))
        api.log.compact()
        api.cut_watches()
        await until(lambda: names(informer) == ["kept"])
        assert "resourceVersion" not in api.asked("LIST")[1].query
        assert len(api.asked("LIST")) == 2


async def test_a_restarting_server_is_watched_again_without_a_list(api):
    """W9, RT17."""
    async with caching(api, CONFIGMAPS, PODS) as (informer, _):
        api.plan("WATCH", *[Answer(429, {"kind": "Status"})] * 4)
        put(api, "a")
        await until(lambda: names(informer) == ["a"])
        api.cut_watches()
        await until(lambda: api.open_watches == 2 and len(api.asked("WATCH")) == 8)
        put(api, "b")
        await until(lambda: names(informer) == ["a", "b"])
        assert len(api.asked("LIST")) == 2


async def test_stopping_leaves_no_connection_open(api):
    """P2, RT38."""
    async with caching(api, CONFIGMAPS, PODS):
        pass
    api.bookmark(CONFIGMAPS)  # writing shows the server that its clients have left
    await until(lambda: api.open_watches == 0)
