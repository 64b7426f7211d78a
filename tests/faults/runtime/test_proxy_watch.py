"""Caches behind a faulty connection to the real API server."""

import asyncio
from functools import partial

import pytest

from proxied import HastyClock, Heard, caching, config_map, listings, names, until
from runtime.cache import reflector
from runtime.client import Client, Timeouts
from runtime.objects import (
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    resource_version_of,
)
from runtime.testing.faultproxy import FaultProxy
from runtime.testing.faults import Delay, EndAtOnce, Expire, Expired, HideBookmarks, Refuse
from trainer_operator.devcluster.controlplane import APISERVER, ETCD, ControlPlane

TEN_KINDS = (
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)


@pytest.fixture
def own(namespace):
    """The selection of what the test itself creates: service account machinery adds a ConfigMap of its own."""
    return CONFIGMAPS, {"namespaces": [namespace], "fields": "metadata.name!=kube-root-ca.crt"}


def has_seen(informer, namespace, version):
    return informer.seen_version(namespace) == version


def versions(proxy):
    return [
        each.query["resourceVersion"]
        for each in proxy.asked("WATCH")
        if "sendInitialEvents" not in each.query
    ]


async def test_a_swallowed_stream_is_left_and_resumed_at_the_same_version(proxy, direct, namespace, own):
    """W11, RT1: the connection lives and answers probes, but nothing comes; silence is cut from 70 s to 1 s."""
    async with caching(proxy, own, timeouts=Timeouts(watch_silence=1.0)) as (informer,):
        last = resource_version_of(await direct.create(CONFIGMAPS, config_map(namespace, "a")))
        await until(lambda: names(informer) == ["a"])
        await until(lambda: informer.seen_version(namespace) == last)
        listed, asked = len(listings(proxy)), len(proxy.asked("WATCH"))
        await asyncio.sleep(0.5)  # bookmarks have come
        assert proxy.silence_watches() == 1
        await direct.create(CONFIGMAPS, config_map(namespace, "b"))
        await until(lambda: names(informer) == ["a", "b"], within=4)
        assert len(proxy.asked("WATCH")) == asked + 1
        assert versions(proxy)[-1] == last
        assert len(listings(proxy)) == listed


async def test_a_server_that_ends_every_watch_at_once_is_not_stormed(proxy, direct, namespace, own):
    """W10, RT3: 30 s on the cache's clock; one event in between resets nothing."""
    clock = HastyClock()
    async with caching(proxy, own, clock=clock) as (informer,):
        listed, asked = len(listings(proxy)), len(proxy.asked("WATCH"))
        ending = proxy.inject(EndAtOnce(), "WATCH")
        proxy.end_watches()
        await clock.sleep(30)
        assert 3 <= len(proxy.asked("WATCH")) - asked <= 8
        ending.withdraw()
        await direct.create(CONFIGMAPS, config_map(namespace, "a"))
        await until(lambda: names(informer) == ["a"])
        asked = len(proxy.asked("WATCH"))
        ending = proxy.inject(EndAtOnce(), "WATCH")
        proxy.end_watches()
        await clock.sleep(25)
        assert len(proxy.asked("WATCH")) - asked <= 2
        assert len(listings(proxy)) == listed


@pytest.mark.parametrize("shape", Expired)
async def test_an_expired_version_is_listed_once_while_the_old_content_answers(
    proxy, direct, namespace, own, shape
):
    """W2, W7, W15, RT4, RT5: what was deleted in the gap is told with a tombstone."""
    async with caching(proxy, own) as (informer,):
        heard = Heard()
        informer.add_handler(heard)
        await direct.create(CONFIGMAPS, config_map(namespace, "gone"))
        await direct.create(CONFIGMAPS, config_map(namespace, "kept"))
        await until(lambda: names(informer) == ["gone", "kept"])
        listed = len(listings(proxy))
        before = informer.seen_version(namespace)
        expiry = proxy.inject(Expire(shape), "WATCH", times=1)
        proxy.inject(Delay(0.4), "LIST")
        proxy.silence_watches()
        await direct.delete(CONFIGMAPS, "gone", namespace)
        proxy.cut_watches()
        await until(lambda: expiry.hits == 1)
        await asyncio.sleep(0.2)
        assert names(informer) == ["gone", "kept"]
        await until(lambda: names(informer) == ["kept"])
        await until(lambda: ("delete", "gone", True) in heard.deltas)
        await asyncio.sleep(0.3)
        relists = listings(proxy)[listed:]
        assert len(relists) == 1
        assert relists[0].query.get("resourceVersion") not in ("0", before)
        assert [delta for delta in heard.deltas if delta[0] == "delete"] == [("delete", "gone", True)]


@pytest.mark.slow
async def test_a_restarted_api_server_has_no_history_and_is_listed_once(tmp_path):
    """W7, RT4: the 410 is the server's own, for its history begins with its start."""
    plane = ControlPlane(tmp_path, components=(ETCD, APISERVER), grace=0)
    async with (
        plane,
        FaultProxy(plane.config) as proxy,
        Client(plane.config) as direct,
        caching(proxy, (CONFIGMAPS, {"namespaces": ["default"]})) as (informer,),
    ):
        heard = Heard()
        informer.add_handler(heard)
        for name in ("gone", "kept"):
            await direct.create(CONFIGMAPS, config_map("default", name))
        await until(lambda: {"gone", "kept"} <= set(names(informer)))
        listed = len(listings(proxy))
        await proxy.go_away()
        await direct.delete(CONFIGMAPS, "gone", "default")
        await plane.stop_component(APISERVER)
        await plane.start_component(APISERVER)
        assert "gone" in names(informer)
        await proxy.come_back()
        await until(lambda: "gone" not in names(informer))
        await until(lambda: ("delete", "gone", True) in heard.deltas)
        assert len(listings(proxy)) == listed + 1


async def test_watches_that_end_in_order_resume_at_the_last_version(proxy, direct, namespace, own):
    """W4, RT6."""
    async with caching(proxy, own) as (informer,):
        heard = Heard()
        informer.add_handler(heard)
        listed, asked = len(listings(proxy)), []
        for number in range(3):
            made = await direct.create(CONFIGMAPS, config_map(namespace, f"a{number}"))
            await until(partial(has_seen, informer, namespace, resource_version_of(made)))
            asked.append(len(proxy.asked("WATCH")))
            assert proxy.end_watches() == 1
            await until(lambda: len(proxy.asked("WATCH")) == asked[-1] + 1 and len(proxy.open_watches()) == 1)
            assert versions(proxy)[-1] == resource_version_of(made)
        await until(lambda: len(heard.deltas) == 3)
        assert heard.deltas == [("add", f"a{number}", False) for number in range(3)]
        assert len(listings(proxy)) == listed


async def test_a_line_cut_in_the_middle_is_read_again_as_a_whole(proxy, direct, namespace, own):
    """W12, RT7."""
    async with caching(proxy, own) as (informer,):
        last = resource_version_of(await direct.create(CONFIGMAPS, config_map(namespace, "a")))
        await until(lambda: informer.seen_version(namespace) == last)
        listed, asked = len(listings(proxy)), len(proxy.asked("WATCH"))
        heard = Heard()
        informer.add_handler(heard)
        assert proxy.cut_watches(within_line=True) == 1
        await direct.create(CONFIGMAPS, config_map(namespace, "b", large="x" * 10_000))
        await until(lambda: names(informer) == ["a", "b"])
        assert len(proxy.asked("WATCH")) == asked + 1
        assert versions(proxy)[-1] == last
        assert len(listings(proxy)) == listed
        await until(lambda: heard.deltas == [("add", "a", True), ("add", "b", False)])


async def test_one_refused_watch_of_ten_leaves_the_others_on_their_connections(proxy, direct, namespace):
    """K5, W8, RT10."""
    async with caching(proxy, *TEN_KINDS) as (informer, *_):
        before = {each.path: each.connection for each in proxy.open_watches()}
        listed, asked = len(listings(proxy)), len(proxy.asked("WATCH"))
        proxy.inject(Refuse(401, "Unauthorized"), "WATCH", path="/configmaps", times=1)
        assert proxy.cut_watches("/configmaps") == 1
        await until(lambda: len(proxy.open_watches()) == 10 and len(proxy.asked("WATCH")) == asked + 2)
        after = {each.path: each.connection for each in proxy.open_watches()}
        changed = {path for path in before if before[path] != after[path]}
        assert changed == {"/api/v1/configmaps"}
        await direct.create(CONFIGMAPS, config_map(namespace, "a"))
        await until(
            lambda: (
                (namespace, "a")
                in [(o["metadata"]["namespace"], o["metadata"]["name"]) for o in informer.list()]
            )
        )
        assert len(listings(proxy)) == listed


async def test_a_restarted_server_is_watched_again_by_twenty_caches_without_a_list(proxy, direct, namespace):
    """W9, RT17: refused connections, then 429 for 20 s on the caches' clock."""
    clock = HastyClock()
    wanted = [(CONFIGMAPS, {"namespaces": [namespace], "labels": f"group={number}"}) for number in range(20)]
    async with caching(proxy, *wanted, clock=clock) as informers:
        await asyncio.sleep(0.3)
        seen = {
            str(informer.selections[0].labels): informer.seen_version(namespace) for informer in informers
        }
        listed, asked = len(listings(proxy)), len(proxy.asked("WATCH"))
        await proxy.go_away()
        await clock.sleep(5)
        assert len(proxy.asked("WATCH")) == asked
        throttled = proxy.inject(Refuse(429, "TooManyRequests"), "WATCH")
        await proxy.come_back()
        await clock.sleep(20)
        throttled.withdraw()
        assert throttled.hits <= 20 * 5
        for number in range(20):
            body = config_map(namespace, f"a{number}")
            body["metadata"]["labels"] = {"group": str(number)}
            await direct.create(CONFIGMAPS, body)
        await until(lambda: all(len(informer) == 1 for informer in informers), within=20)
        retried = proxy.asked("WATCH")[asked:]
        assert {each.query["labelSelector"] for each in retried} == set(seen)
        assert all(each.query["resourceVersion"] == seen[each.query["labelSelector"]] for each in retried)
        first = {each.query["labelSelector"]: each.at for each in reversed(retried)}
        assert max(first.values()) - min(first.values()) > 0.02  # not one herd
        assert len(listings(proxy)) == listed


async def test_a_cache_outlives_a_server_that_is_killed_and_started_again(proxy, direct, namespace, own):
    """W9, W16: connections break in every state; afterwards the cache is what a list says."""
    async with caching(proxy, own) as (informer,):
        for number in range(5):
            await proxy.go_away()
            await direct.create(CONFIGMAPS, config_map(namespace, f"a{number}"))
            await proxy.come_back()
            if number % 2:
                await until(lambda: len(proxy.open_watches()) == 1)
        await until(lambda: names(informer) == [f"a{number}" for number in range(5)], within=15)


async def test_a_streaming_list_whose_end_never_comes_is_given_up_for_an_ordinary_one(
    proxy, direct, namespace, own, monkeypatch
):
    """W13, RT13: after two silences, here of 2 s; nothing half-filled was shown, and nobody asks again."""
    monkeypatch.setattr(reflector, "_INITIAL_SILENCE", 2.0)
    loop = asyncio.get_running_loop()
    await direct.create(CONFIGMAPS, config_map(namespace, "a"))
    hiding = proxy.inject(HideBookmarks(), "WATCH")
    began = loop.time()
    async with caching(proxy, own, streaming=True) as (informer,):
        assert loop.time() - began >= 4
        assert names(informer) == ["a"]
        streamed = [each for each in proxy.asked("WATCH") if "sendInitialEvents" in each.query]
        assert (len(streamed), len(proxy.asked("LIST"))) == (2, 1)
        hiding.withdraw()
        proxy.inject(Expire(Expired.EVENT), "WATCH", times=1)
        proxy.cut_watches()
        await until(lambda: len(proxy.asked("LIST")) == 2)
        await direct.create(CONFIGMAPS, config_map(namespace, "b"))
        await until(lambda: names(informer) == ["a", "b"])
        assert len(listings(proxy)) == 4


async def test_a_streaming_list_goes_on_as_a_watch_and_resumes_as_one(proxy, direct, namespace, own):
    """W4, W13: no list at all, and only the first watch asks for what exists."""
    await direct.create(CONFIGMAPS, config_map(namespace, "a"))
    async with caching(proxy, own, streaming=True) as (informer,):
        assert names(informer) == ["a"]
        for number in range(3):
            proxy.cut_watches()
            await direct.create(CONFIGMAPS, config_map(namespace, f"b{number}"))
            await until(lambda: len(informer) == 2 + number)  # noqa: B023 - awaited within the turn
        assert not proxy.asked("LIST")
        assert ["sendInitialEvents" in each.query for each in proxy.asked("WATCH")] == [
            True,
            False,
            False,
            False,
        ]
