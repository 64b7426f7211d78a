"""Informers: handlers, scope, sharing."""

import asyncio
import contextlib
import gc
import tracemalloc

import pytest

from runtime.cache import METADATA_ONLY, CacheNotSynced, Informers, NotCached, Pod
from runtime.clock import LoopClock
from runtime.objects import CONFIGMAPS, NODES, PODS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import MemoryApi
from runtime.testing.simloop import simulated


class Recorder:
    def __init__(self, registration=None):
        self.heard = []

    def on_add(self, obj, *, initial):
        self.heard.append(("add", obj["metadata"]["name"], initial))

    def on_update(self, old, new):
        self.heard.append(("update", new["metadata"]["name"], old is new))

    def on_delete(self, obj, *, final_state_unknown):
        self.heard.append(("delete", obj["metadata"]["name"], final_state_unknown))


def put(api, name, namespace="ns", **fields):
    return api.log.put(CONFIGMAPS, {"metadata": {"name": name, "namespace": namespace}, **fields})


@contextlib.asynccontextmanager
async def running(informers):
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        yield LoopClock().sleep
        scope.cancel()


@simulated
async def test_a_handler_has_synced_only_when_the_initial_batch_was_delivered():
    """S5."""
    api = MemoryApi()
    for number in range(250):
        put(api, f"n{number}")
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS)
    observed = []

    class Watching(Recorder):
        def on_add(self, obj, *, initial):
            observed.append(registration.has_synced)
            super().on_add(obj, initial=initial)

    registration = informer.add_handler(handler := Watching())
    async with running(informers) as sleep:
        await sleep(1)
        assert registration.has_synced
    assert observed == [False] * 250
    assert {initial for _, _, initial in handler.heard} == {True}


@simulated
async def test_a_late_handler_is_caught_up_from_the_store():
    """S5."""
    api = MemoryApi()
    put(api, "early")
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS)
    async with running(informers) as sleep:
        await sleep(1)
        registration = informer.add_handler(late := Recorder())
        put(api, "live")
        await sleep(1)
        assert late.heard == [("add", "early", True), ("add", "live", False)]
        assert registration.has_synced


@simulated
async def test_a_removed_handler_hears_nothing_more_and_removing_twice_is_fine():
    """S5."""
    api = MemoryApi()
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS)
    leaving, staying = Recorder(), Recorder()
    registration = informer.add_handler(leaving)
    informer.add_handler(staying)
    async with running(informers) as sleep:
        await sleep(1)
        registration.remove()
        registration.remove()
        put(api, "a")
        await sleep(1)
    assert leaving.heard == []
    assert staying.heard == [("add", "a", False)]


@simulated
async def test_a_handler_may_remove_itself_within_a_batch():
    """S5."""
    api = MemoryApi()
    for number in range(5):
        put(api, f"n{number}")
    informers = Informers(api, clock=LoopClock())

    class Once(Recorder):
        def on_add(self, obj, *, initial):
            super().on_add(obj, initial=initial)
            registration.remove()

    registration = informers.informer(CONFIGMAPS).add_handler(once := Once())
    async with running(informers) as sleep:
        await sleep(1)
    assert len(once.heard) == 1
    assert not registration.has_synced


@simulated
async def test_a_failing_handler_takes_the_informers_down():
    """W16, PY5: a defect is not swallowed."""
    api = MemoryApi()
    put(api, "a")
    informers = Informers(api, clock=LoopClock())

    class Broken(Recorder):
        def on_add(self, obj, *, initial):
            raise LookupError("a defect")

    informers.informer(CONFIGMAPS).add_handler(Broken())
    with pytest.raises(ExceptionGroup) as failure:
        await informers.run()
    assert failure.group_contains(LookupError, match="a defect")


@simulated
async def test_resync_delivers_from_the_store_and_asks_nobody():
    """S6."""
    api = MemoryApi()
    put(api, "a")
    informers = Informers(api, clock=LoopClock())
    informers.informer(CONFIGMAPS).add_handler(recorder := Recorder())
    async with running(informers) as sleep:
        await sleep(12 * 3600)
    assert recorder.heard == [("add", "a", True), ("update", "a", True)]
    assert len(api.requests) == 2


@simulated
async def test_namespaces_narrow_the_address_and_reading_elsewhere_is_not_an_answer():
    """S8: NotCached, never 'not found'."""
    api = MemoryApi()
    for namespace in ("one", "two", "three"):
        put(api, "a", namespace)
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS, namespaces=["one", "two"])
    registration = informer.add_handler(recorder := Recorder())
    async with running(informers) as sleep:
        await sleep(1)
        assert sorted(request.namespace for request in api.asked("LIST")) == ["one", "two"]
        assert len(informer) == 2
        assert registration.has_synced
        assert informer.get(ObjectKey("one", "missing")) is None
        for read in (
            lambda: informer.get(ObjectKey("three", "a")),
            lambda: informer.list("three"),
            lambda: informer.seen_version("three"),
        ):
            with pytest.raises(NotCached, match="'three'"):
                read()
        assert informer.last_version == ""
        assert informer.seen_version("one") == str(api.log.version)
    assert recorder.heard == [("add", "a", True)] * 2


@simulated
async def test_a_part_that_is_not_listed_yet_keeps_the_informer_unsynced():
    """S5, S9."""

    class HalfApi(MemoryApi):
        async def fetch_page(self, resource, namespace, **rest):
            if namespace == "two":
                await LoopClock().sleep(100)
            return await super().fetch_page(resource, namespace, **rest)

    api = HalfApi()
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS, namespaces=["one", "two"])
    async with running(informers) as sleep:
        await sleep(1)
        assert not informer.has_synced
        with pytest.raises(CacheNotSynced, match="configmaps in namespace 'two'"):
            await informers.wait_synced(10)
        await informers.wait_synced(120)
        assert informers.has_synced


@simulated
async def test_the_same_question_gets_the_same_informer():
    """S7."""
    informers = Informers(MemoryApi(), clock=LoopClock())
    plain = informers.informer(PODS, projection=Pod)
    assert informers.informer(PODS, projection=Pod) is plain
    others = [
        informers.informer(PODS),
        informers.informer(PODS, projection=METADATA_ONLY),
        informers.informer(PODS, projection=Pod, labels="a=b"),
        informers.informer(PODS, projection=Pod, fields="spec.nodeName=n"),
        informers.informer(PODS, projection=Pod, namespaces=["x"]),
    ]
    assert len({id(informer) for informer in [plain, *others]}) == 6
    assert informers.informer(PODS, namespaces=["b", "a"]) is informers.informer(
        PODS, namespaces=["a", "b", "a"]
    )
    assert informers.informer(NODES, namespaces=["a"]) is informers.informer(NODES)


@simulated
async def test_a_namespace_in_a_field_selector_becomes_part_of_the_address():
    """S8."""
    informers = Informers(MemoryApi(), clock=LoopClock())
    informer = informers.informer(PODS, fields="metadata.namespace=x,status.phase=Running")
    (selection,) = informer.selections
    assert (selection.namespace, selection.fields) == ("x", "status.phase=Running")
    negated = informers.informer(PODS, fields="metadata.namespace!=x")
    assert negated.selections[0].fields == "metadata.namespace!=x"
    with pytest.raises(ValueError, match="no namespaces"):
        informers.informer(PODS, fields="metadata.namespace=x", namespaces=["y"])


@simulated
async def test_an_informer_asked_for_while_running_starts_at_once():
    """S7."""
    api = MemoryApi()
    put(api, "a")
    informers = Informers(api, clock=LoopClock())
    async with running(informers) as sleep:
        await sleep(1)
        informer = informers.informer(CONFIGMAPS)
        await informer.synced()
        assert len(informer) == 1


@simulated
async def test_an_index_added_to_a_filled_informer_works():
    """S3."""
    api = MemoryApi()
    put(api, "a", data={"colour": "red"})
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS)
    async with running(informers) as sleep:
        await sleep(1)
        informer.add_index("colour", lambda obj: [obj["data"]["colour"]])
        assert len(informer.by_index("colour", "red")) == 1
        assert len(informer.list("ns")) == 1


@simulated
async def test_a_handler_that_has_much_to_hear_lets_the_others_hear_too():
    """S5: each has its own queue and its own turns."""
    api = MemoryApi()
    for number in range(1000):
        put(api, f"n{number}")
    informers = Informers(api, clock=LoopClock())
    order = []

    class Named(Recorder):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def on_add(self, obj, *, initial):
            order.append(self.name)

    for name in ("first", "second"):
        informers.informer(CONFIGMAPS).add_handler(Named(name))
    async with running(informers) as sleep:
        await sleep(1)
    assert (order.count("first"), order.count("second")) == (1000, 1000)
    assert order.index("second") <= 100


@simulated
async def test_a_handler_finds_in_the_store_what_it_hears_of():
    """S1: the store, its indexes and the version come first."""
    api = MemoryApi()
    informers = Informers(api, clock=LoopClock())
    informer = informers.informer(CONFIGMAPS)
    informer.add_index("colour", lambda obj: [obj["data"]["colour"]])
    found = []

    class Looking(Recorder):
        def on_add(self, obj, *, initial):
            found.append(informer.get(ObjectKey("ns", "a")) is obj)

        def on_update(self, old, new):
            found.append(
                (informer.get(ObjectKey("ns", "a")) is new, informer.by_index("colour", "blue") == [new])
            )

        def on_delete(self, obj, *, final_state_unknown):
            found.append((informer.get(ObjectKey("ns", "a")), informer.by_index("colour", "blue")))

    informer.add_handler(Looking())
    async with running(informers) as sleep:
        await sleep(1)
        for colour in ("red", "blue"):
            put(api, "a", data={"colour": colour})
            await sleep(1)
        api.log.delete(CONFIGMAPS, ObjectKey("ns", "a"))
        await sleep(1)
    assert found == [True, (True, True), (None, [])]


@pytest.mark.parametrize(("chance", "hours"), [(0.0, 9.0), (1.0, 11.0)])
def test_resyncs_come_every_ten_hours_give_or_take_one(chance, hours):
    """S6."""

    class Chance:
        def random(self):
            return chance

    @simulated
    async def scenario():
        api = MemoryApi()
        put(api, "a")
        informers = Informers(api, clock=LoopClock(), rng=Chance())
        informers.informer(CONFIGMAPS).add_handler(recorder := Recorder())
        async with running(informers) as sleep:
            await sleep(hours * 3600 - 1)
            assert len(recorder.heard) == 1
            await sleep(2)
            assert recorder.heard[1:] == [("update", "a", True)]

    scenario()


@simulated
async def test_caches_that_do_not_fill_fail_the_start_after_two_minutes():
    """S9."""

    class Mute(MemoryApi):
        async def fetch_page(self, *args, **rest):
            await LoopClock().sleep(1e9)

    informers = Informers(Mute(), clock=LoopClock())
    informers.informer(CONFIGMAPS, namespaces=["one"])
    informers.informer(NODES)
    clock = LoopClock()
    async with running(informers):
        begun = clock.monotonic()
        with pytest.raises(CacheNotSynced, match="configmaps in namespace 'one', nodes"):
            await informers.wait_synced()
        assert clock.monotonic() - begun == pytest.approx(120)


def test_fifty_informers_started_and_stopped_ten_times_leave_nothing_behind():
    """RT38, P1: neither tasks nor memory."""

    @simulated
    async def once(api):
        informers = Informers(api, clock=LoopClock())
        for number in range(50):
            informers.informer(CONFIGMAPS, labels=f"group={number}").add_handler(Recorder())
        async with running(informers) as sleep:
            await sleep(1)
            assert informers.has_synced
        assert len(asyncio.all_tasks()) == 1
        assert all(stream.is_closed for stream in api.streams)

    weights = []
    tracemalloc.start()
    try:
        for _ in range(10):
            once(MemoryApi())
            gc.collect()
            weights.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert (
        weights[-1] - weights[2] <= 256 << 10
    )  # the interpreter keeps some freed tuples; an informer takes 5 KiB
