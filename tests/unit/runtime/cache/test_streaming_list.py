"""A cache that begins with a streaming list: the decisions, then carried out in simulated time."""

import contextlib
import tracemalloc

import orjson
import pytest

from runtime.cache import Informers
from runtime.cache.listwatch import (
    AbandonStreaming,
    BackOff,
    Cause,
    Closed,
    Empty,
    Failed,
    InitialEnd,
    InitialWatch,
    Known,
    List,
    Listing,
    Publish,
    RefreshCredentials,
    Report,
    Started,
    Watching,
    WatchInitial,
    step,
)
from runtime.cache.streaming import StreamingLists
from runtime.client.errors import TransportError, TransportFault, error_of_status
from runtime.clock import LoopClock
from runtime.objects import CONFIGMAPS, SECRETS
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import MemoryApi, MemoryStream, status_object
from runtime.testing.simloop import simulated

FIRST, SECOND = InitialWatch(Known(), 0), InitialWatch(Known(), 1)
CUT = TransportError("reset", fault=TransportFault.RESET)
REFUSED = TransportError("refused", fault=TransportFault.CONNECT)
BROKEN = [Cause.CUT, Cause.SILENT, Cause.SERVER, Cause.OVERSIZE, Cause.EXPIRED, Cause.TOO_LARGE]


def test_a_cache_that_may_stream_begins_with_a_watch():
    """W1, W13."""
    assert step(Empty(), Started(streaming=True), 0.0) == (FIRST, (WatchInitial(),))


def test_the_end_of_the_initial_events_publishes_at_its_version():
    """W6, W13."""
    state, actions = step(FIRST, InitialEnd("9"), 0.0)
    assert state == Watching(Known(seen="9", published=True), settled=True)
    assert actions == (Publish("9"),)


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.THROTTLED])
def test_a_server_that_cannot_be_asked_says_nothing_about_streaming(cause):
    """W9, W13: otherwise one restart of the server would cost the process its streaming lists."""
    assert step(SECOND, Failed(cause, retry_after=2.0), 0.0) == (
        SECOND,
        (Report(cause, relist=False), BackOff(2.0), WatchInitial()),
    )


def test_a_streaming_list_answered_401_gets_fresh_credentials():
    """W8, W13."""
    state, actions = step(SECOND, Failed(Cause.UNAUTHORIZED), 0.0)
    assert (state, actions[1:]) == (SECOND, (RefreshCredentials(), BackOff(), WatchInitial()))


@pytest.mark.parametrize("cause", [Cause.REJECTED, Cause.FORBIDDEN, Cause.UNSUPPORTED, Cause.UNKNOWN])
def test_a_refused_streaming_list_is_not_asked_for_again(cause):
    """W13."""
    assert step(FIRST, Failed(cause), 0.0) == (
        Listing(Known(), "0"),
        (Report(cause, relist=False), AbandonStreaming(cause), List("0", paged=True)),
    )


def test_a_stall_is_tried_once_more_at_once_and_then_listed():
    """W13, RT13: twice 30 s are the whole time there is."""
    report = Report(Cause.STALLED, relist=False)
    assert step(FIRST, Failed(Cause.STALLED), 0.0) == (SECOND, (report, WatchInitial()))
    assert step(SECOND, Failed(Cause.STALLED), 0.0) == (
        Listing(Known(), "0"),
        (report, AbandonStreaming(Cause.STALLED), List("0", paged=True)),
    )


@pytest.mark.parametrize(
    "broken", [Closed(1.0, heard=True), *map(Failed, BROKEN)], ids=lambda event: str(event)[:40]
)
def test_a_streaming_list_that_broke_off_twice_is_listed(broken):
    """W13."""
    state, actions = step(FIRST, broken, 0.0)
    assert (state, actions[1:]) == (SECOND, (BackOff(), WatchInitial()))
    state, actions = step(state, broken, 0.0)
    assert (state, actions[-1]) == (Listing(Known(), "0"), List("0", paged=True))


def test_streaming_lists_are_abandoned_with_one_warning():
    """W13, RT13."""
    warnings = []
    lists = StreamingLists(allowed=True, warn=lambda event, **values: warnings.append(values))
    lists.abandon("pods", reason="stalled")
    lists.abandon("nodes", reason="stalled")
    assert not lists.allowed
    assert warnings == [{"selection": "pods", "reason": "stalled"}]


# Carried out


class Recorder:
    def __init__(self):
        self.heard = []

    def on_add(self, obj, *, initial):
        self.heard.append(("add", obj["metadata"]["name"], initial))

    def on_update(self, old, new):
        self.heard.append(("update", new["metadata"]["name"]))

    def on_delete(self, obj, *, final_state_unknown):
        self.heard.append(("delete", obj["metadata"]["name"]))


def put(api, name, resource=CONFIGMAPS):
    return api.log.put(resource, {"metadata": {"name": name, "namespace": "ns"}})


@contextlib.asynccontextmanager
async def streaming(api):
    informers = Informers(api, clock=LoopClock(), streaming=True)
    informer = informers.informer(CONFIGMAPS)
    informer.add_handler(recorder := Recorder())
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        yield informers, informer, recorder
        scope.cancel()


async def after(seconds):
    await LoopClock().sleep(seconds)


def names(informer):
    return sorted(obj["metadata"]["name"] for obj in informer.list())


@simulated
async def test_the_collection_arrives_in_the_watch_itself():
    """W13: no LIST, one watch, and the version is that of the end bookmark."""
    api = MemoryApi()
    put(api, "a")
    put(api, "b")
    async with streaming(api) as (_, informer, recorder):
        await after(0.1)
        assert informer.has_synced
        assert informer.last_version == "3"
        put(api, "c")
        await after(0.1)
        assert recorder.heard == [("add", "a", True), ("add", "b", True), ("add", "c", False)]
        assert [request.verb for request in api.requests] == ["WATCH"]
        asked = api.requests[0].params
        assert (asked["sendInitialEvents"], asked["resourceVersionMatch"]) == ("true", "NotOlderThan")
        assert "resourceVersion" not in asked


@simulated
async def test_only_the_first_watch_asks_for_initial_events():
    """W13, W4: a later one resumes, and a relist is an ordinary list."""
    api = MemoryApi()
    put(api, "a")
    async with streaming(api) as (_, informer, recorder):
        await after(2)
        api.end_watches()
        await after(2)
        assert dict(api.asked("WATCH")[1].params) == {"resourceVersion": "2"}
        assert api.asked("LIST") == []
        api.plan("WATCH", error_of_status(status_object(410, "Expired")))
        api.end_watches(CUT)
        await after(10)
        assert len(api.asked("LIST")) == 1
        assert "sendInitialEvents" not in api.asked("WATCH")[-1].params
        assert names(informer) == ["a"]
        assert recorder.heard == [("add", "a", True)]


@simulated
async def test_a_list_that_never_ends_is_replaced_by_an_ordinary_one_within_a_minute():
    """W13, RT13: nothing half-filled was published, and nobody asks again."""
    api = MemoryApi()
    api.ends_initial_events = False
    put(api, "a")
    async with streaming(api) as (informers, informer, recorder):
        await after(59.9)
        assert informer.list() == []
        assert informer.last_version == ""
        assert recorder.heard == []
        assert len(api.asked("WATCH")) == 2
        assert [stream.is_closed for stream in api.streams] == [True, False]
        await after(0.2)
        assert names(informer) == ["a"]
        assert recorder.heard == [("add", "a", True)]
        put(api, "s", SECRETS)
        late = informers.informer(SECRETS)
        await after(1)
        assert names(late) == ["s"]
        assert sum("sendInitialEvents" in request.params for request in api.requests) == 2


@simulated
async def test_events_keep_a_long_streaming_list_alive():
    """W13: the 30 s are counted from the last event, not from the start."""
    api = MemoryApi()
    api.ends_initial_events = False
    async with streaming(api) as (_, informer, _recorder):
        for number in range(5):
            await after(25)
            put(api, f"n{number}")
        mark = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
        api.open_streams()[0].send_event("BOOKMARK", mark)
        await after(1)
        assert names(informer) == ["n0", "n1", "n2", "n3", "n4"]
        assert informer.last_version == "9"
        # Once complete, the deadline is gone: silence is the stream's own business (W11).
        await after(200)
        assert [request.verb for request in api.requests] == ["WATCH"]


@pytest.mark.parametrize(
    "annotations", [None, {}, {"k8s.io/initial-events-end": "false"}, {"k8s.io/initial-events-end": None}]
)
def test_another_bookmark_does_not_end_the_initial_events(annotations):
    """W5, W13: the annotation counts only with the value "true"."""

    @simulated
    async def scenario():
        api = MemoryApi()
        api.ends_initial_events = False
        async with streaming(api) as (_, informer, _recorder):
            await after(1)
            mark = {"metadata": {"resourceVersion": "9", "annotations": annotations}}
            api.open_streams()[0].send_event("BOOKMARK", mark)
            await after(1)
            assert not informer.has_synced
            assert informer.last_version == ""

    scenario()


@simulated
async def test_what_changes_while_the_list_streams_is_in_it():
    """W6, W13."""
    api = MemoryApi()
    api.ends_initial_events = False
    put(api, "gone")
    put(api, "changed")
    async with streaming(api) as (_, informer, recorder):
        await after(1)
        stream = api.open_streams()[0]
        changed = put(api, "changed")
        api.log.delete(CONFIGMAPS, ("ns", "gone"))
        put(api, "new")
        mark = {"metadata": {"resourceVersion": "6", "annotations": {"k8s.io/initial-events-end": "true"}}}
        # In one piece with an event behind it, as a busy server sends it.
        end = orjson.dumps({"type": "BOOKMARK", "object": mark}) + b"\n"
        later = {
            "kind": "ConfigMap",
            "metadata": {"name": "later", "namespace": "ns", "resourceVersion": "7"},
        }
        stream.send(end + orjson.dumps({"type": "ADDED", "object": later}) + b"\n")
        await after(1)
        assert recorder.heard == [("add", "changed", True), ("add", "new", True), ("add", "later", False)]
        cached = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in informer.list()}
        assert cached["changed"] == changed["metadata"]["resourceVersion"]
        assert informer.last_version == "7"


INVALID = status_object(422, "Invalid", "sendInitialEvents is forbidden for watch")


@pytest.mark.parametrize("refusal", [error_of_status(INVALID), orjson.dumps(INVALID)], ids=["http", "body"])
def test_a_server_without_streaming_lists_is_listed_at_once(refusal):
    """W13: kube-apiserver with the feature off answers 422."""

    @simulated
    async def scenario():
        api = MemoryApi()
        put(api, "a")
        api.plan("WATCH", refusal)
        async with streaming(api) as (_, informer, _recorder):
            await after(0.1)
            assert names(informer) == ["a"]

    scenario()


@simulated
async def test_a_streaming_list_that_is_cut_begins_anew():
    """W12, W13: what the broken attempt brought is forgotten."""
    api = MemoryApi()
    event = {"type": "ADDED", "object": {"kind": "ConfigMap", "metadata": {"name": "old", "namespace": "ns"}}}
    api.plan("WATCH", REFUSED, orjson.dumps(event) + b'\n{"type":"ADDED","obj')
    put(api, "a")
    async with streaming(api) as (_, informer, recorder):
        await after(10)
        assert names(informer) == ["a"]
        assert recorder.heard == [("add", "a", True)]
        assert api.asked("LIST") == []


class OneByOne(MemoryApi):
    """Brings 1,000 objects whose larger part nobody keeps, a chunk at a time."""

    OBJECTS = 1000

    async def open_watch(self, resource, namespace, *, params, timeout_seconds, accept):
        self.streams.append(stream := LazyStream())
        return stream


class LazyStream(MemoryStream):
    def __init__(self):
        super().__init__(max_line=1 << 20)

    async def batches(self):
        managed = [
            {"manager": f"m{number}", "fieldsV1": {"f:x": {}} | dict.fromkeys("abcdef", "x" * 100)}
            for number in range(5)
        ]
        for number in range(OneByOne.OBJECTS):
            metadata = {
                "name": f"n{number}",
                "namespace": "ns",
                "uid": f"{number}",
                "resourceVersion": f"{number + 1}",
                "managedFields": managed,
            }
            obj = {"kind": "ConfigMap", "metadata": metadata, "data": {"key": f"{number:04}" * 500}}
            yield [orjson.dumps({"type": "ADDED", "object": obj})]
        mark = {"metadata": {"resourceVersion": "9999", "annotations": {"k8s.io/initial-events-end": "true"}}}
        yield [orjson.dumps({"type": "BOOKMARK", "object": mark})]
        await LoopClock().sleep(1000)


@simulated
async def test_a_streaming_list_is_stripped_before_it_is_gathered():
    """RT16, S2: the peak is at most 1.3 times what is kept."""
    tracemalloc.start()
    try:
        async with streaming(OneByOne()) as (_, informer, _recorder):
            await after(1)
            assert len(informer) == OneByOne.OBJECTS
            kept, peak = tracemalloc.get_traced_memory()
            assert peak <= 1.3 * kept
            assert "managedFields" not in informer.list()[0]["metadata"]
    finally:
        tracemalloc.stop()
