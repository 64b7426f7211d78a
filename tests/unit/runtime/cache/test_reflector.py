"""List and watch carried out, in simulated time against a server in memory."""

import asyncio
import contextlib
import itertools

import orjson
import pytest

from runtime.cache.errors import WatchRejected
from runtime.cache.informer import Informer
from runtime.cache.transform import codec_for
from runtime.client.errors import TransportError, TransportFault, error_of_status
from runtime.clock import LoopClock
from runtime.objects import CONFIGMAPS, ObjectKey
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import EXPIRED, MemoryApi, status_object
from runtime.testing.simloop import simulated

A = ObjectKey("ns", "a")
CUT = TransportError("reset", fault=TransportFault.RESET)
REFUSED = TransportError("refused", fault=TransportFault.CONNECT)


class Zero:
    def random(self):
        return 0.0


class AlmostOne:
    def random(self):
        return 1 - 1e-9


class Recorder:
    def __init__(self):
        self.heard = []

    def on_add(self, obj, *, initial):
        self.heard.append(("add", obj["metadata"]["name"], obj["metadata"]["uid"]))

    def on_update(self, old, new):
        self.heard.append(("update", new["metadata"]["name"], new["metadata"]["uid"]))

    def on_delete(self, obj, *, final_state_unknown):
        self.heard.append(("delete", obj["metadata"]["name"], obj["metadata"]["uid"], final_state_unknown))


class Counts:
    def __init__(self):
        self.relists, self.restarts, self.skipped = [], [], []

    def relisted(self, *, kind, reason):
        self.relists.append(reason)

    def watch_restarted(self, *, kind, reason):
        self.restarts.append(reason)

    def object_skipped(self, *, kind, reason):
        self.skipped.append(reason)

    def cache_size(self, *, kind, objects):
        pass

    def cache_lag(self, *, kind, seconds):
        self.lag = seconds


class Bench:
    """An informer on a server in memory, running."""

    def __init__(self, api, informer, recorder, counts, scope):
        self.api, self.informer, self.recorder, self.counts = api, informer, recorder, counts
        self._clock, self._scope = LoopClock(), scope

    async def after(self, seconds):
        await self._clock.sleep(seconds)

    def put(self, name, **data):
        return self.api.log.put(CONFIGMAPS, {"metadata": {"name": name, "namespace": "ns"}, "data": data})

    def delete(self, name):
        return self.api.log.delete(CONFIGMAPS, ObjectKey("ns", name))

    def cached(self):
        return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in self.informer.list()}


@contextlib.asynccontextmanager
async def running(api=None, *, errors=None, rng=None, **selection):
    api = api or MemoryApi()
    counts, recorder = Counts(), Recorder()
    on_error = (
        None if errors is None else lambda _selection, error, cause: errors.append((cause.value, error))
    )
    informer = Informer(
        api,
        CONFIGMAPS,
        namespaces=None,
        labels=None,
        fields=None,
        codec=codec_for(CONFIGMAPS, None),
        clock=LoopClock(),
        metrics=counts,
        rng=rng or Zero(),
        on_error=on_error,
        **selection,
    )
    informer.add_handler(recorder)
    async with TaskScope() as scope:
        scope.spawn(informer.run(), name="informer")
        yield Bench(api, informer, recorder, counts, scope)
        scope.cancel()


@simulated
async def test_changes_reach_the_store_then_the_handlers():
    """W1, S1."""
    async with running() as bench:
        await bench.after(0.1)
        assert bench.informer.has_synced
        bench.put("a")
        bench.put("a", x="1")
        bench.delete("a")
        await bench.after(0.1)
        assert [entry[0] for entry in bench.recorder.heard] == ["add", "update", "delete"]
        assert bench.informer.list() == []
        assert bench.informer.last_version == str(bench.api.log.version)


@simulated
async def test_watch_resumes_at_last_version_after_clean_close():
    """W4, RT6."""
    async with running() as bench:
        for number in range(3):
            bench.put(f"a{number}")
            await bench.after(2)
            bench.api.end_watches()
            await bench.after(2)
        assert len(bench.api.asked("LIST")) == 1
        versions = [request.params["resourceVersion"] for request in bench.api.asked("WATCH")]
        assert versions == ["2", "2", "3", "4"]
        assert [entry[0] for entry in bench.recorder.heard] == ["add"] * 3


@simulated
async def test_a_server_that_ends_every_watch_at_once_is_asked_a_few_times_only():
    """W10, RT3."""
    api = MemoryApi()
    api.plan("WATCH", *[b""] * 100)
    async with running(api) as bench:
        await bench.after(30)
        assert 3 <= len(api.asked("WATCH")) <= 8
        assert len(api.asked("LIST")) == 1
        assert set(bench.counts.restarts) == {"short"}


@simulated
async def test_one_event_does_not_reset_the_backoff_before_two_minutes_of_health():
    """W10, RT3."""
    api = MemoryApi()
    event = orjson.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}) + b"\n"
    api.plan("WATCH", *[b""] * 4, event, *[b""] * 2)
    async with running(api) as bench:
        await bench.after(60)
        times = [request.at for request in api.asked("WATCH")]
        gaps = [round(later - earlier, 1) for earlier, later in itertools.pairwise(times)]
        assert gaps == [0.8, 1.6, 3.2, 6.4, 0.0, 12.8, 25.6]


EXPIRED_SHAPES = {
    "http status": error_of_status(EXPIRED),
    "bare status": orjson.dumps(EXPIRED),
    "bare status with a line's end": orjson.dumps(EXPIRED) + b"\n",
    "error event": orjson.dumps({"type": "ERROR", "object": EXPIRED}) + b"\n",
}


@pytest.mark.parametrize("shape", EXPIRED_SHAPES)
def test_expiry_in_any_shape_leads_to_one_list_and_tombstones(shape):
    """W7, W15, RT4, RT5."""
    lost = EXPIRED_SHAPES[shape]

    @simulated
    async def scenario():
        async with running() as bench:
            kept, gone = bench.put("kept"), bench.put("gone")
            await bench.after(1)
            bench.api.plan("WATCH", lost)
            bench.api.end_watches(CUT)
            bench.delete("gone")
            bench.api.log.compact()
            await bench.after(0.5)
            assert (
                bench.informer.get(ObjectKey("ns", "gone")) is not None
            )  # the old content answers meanwhile
            await bench.after(10)
            assert [request.params.get("resourceVersion") for request in bench.api.asked("LIST")] == [
                "0",
                None,
            ]
            assert ("delete", "gone", gone["metadata"]["uid"], True) in bench.recorder.heard
            assert bench.cached() == {"kept": kept["metadata"]["resourceVersion"]}
            assert bench.counts.relists == ["expired"]

    scenario()


@simulated
async def test_a_server_that_answers_every_watch_with_410_is_not_listed_in_a_tight_loop():
    """W7, W10, RT4 (1,755 requests in 3 s elsewhere)."""
    api = MemoryApi()
    api.plan("WATCH", *[error_of_status(EXPIRED)] * 100)
    async with running(api) as bench:
        await bench.after(30)
        assert len(api.requests) <= 14


@simulated
async def test_a_reset_in_the_middle_of_a_line_loses_only_the_half_event():
    """W12, RT7."""
    async with running() as bench:
        bench.put("a")
        await bench.after(1)
        stream = bench.api.open_streams()[0]
        stream.send(b'{"type":"ADDED","object":{"metadata":{"name":"half"')
        stream.end(CUT)
        bench.put("b")
        await bench.after(5)
        assert sorted(bench.cached()) == ["a", "b"]
        assert bench.api.asked("WATCH")[-1].params["resourceVersion"] == "2"
        assert len(bench.api.asked("LIST")) == 1
        assert bench.counts.skipped == []


@simulated
async def test_error_events_never_reach_handlers_and_each_takes_its_branch():
    """W8, RT8."""
    errors = []
    async with running(errors=errors) as bench:
        for code, reason in ((500, "InternalError"), (403, "Forbidden"), (418, "Teapot")):
            await bench.after(20)
            bench.api.open_streams()[0].send_event("ERROR", status_object(code, reason))
        await bench.after(20)
        assert bench.recorder.heard == []
        assert bench.counts.restarts == ["server_error", "forbidden"]
        assert bench.counts.relists == ["unknown"]
        assert [(cause, error.status) for cause, error in errors] == [
            ("server_error", 500),
            ("forbidden", 403),
            ("unknown", 418),
        ]


@simulated
async def test_lasting_server_errors_lead_to_a_list_after_30_seconds():
    """W8, RT11."""
    api = MemoryApi()
    failing = orjson.dumps({"type": "ERROR", "object": status_object(500, "InternalError")}) + b"\n"
    api.plan("WATCH", *[failing] * 7)
    async with running(api) as bench:
        await bench.after(30)
        assert len(api.asked("LIST")) == 1
        await bench.after(60)
        assert len(api.asked("LIST")) == 2
        assert {request.params["resourceVersion"] for request in api.asked("WATCH")} == {"1"}


@simulated
async def test_a_restarting_server_is_not_listed():
    """W9, RT17."""
    throttled = error_of_status(status_object(429, "TooManyRequests"), retry_after=5.0)
    async with running() as bench:
        bench.put("a")
        await bench.after(1)
        bench.api.plan("WATCH", REFUSED, REFUSED, throttled, throttled)
        bench.api.end_watches(CUT)
        bench.put("b")
        await bench.after(60)
        assert len(bench.api.asked("LIST")) == 1
        assert {request.params["resourceVersion"] for request in bench.api.asked("WATCH")[1:]} == {"2"}
        assert sorted(bench.cached()) == ["a", "b"]


@simulated
async def test_retry_after_is_kept_when_longer_than_our_backoff():
    """W8, K2."""
    api = MemoryApi()
    api.plan("WATCH", error_of_status(status_object(429, "TooManyRequests"), retry_after=9.0))
    async with running(api) as bench:
        await bench.after(20)
        first, second = (request.at for request in api.asked("WATCH"))
        assert second - first == pytest.approx(9.0)


@simulated
async def test_a_401_in_the_stream_refreshes_the_credentials_and_resumes():
    """W8, RT10."""
    async with running() as bench:
        await bench.after(1)
        bench.api.open_streams()[0].send_event("ERROR", status_object(401, "Unauthorized"))
        await bench.after(5)
        assert bench.api.refreshed == 1
        assert len(bench.api.asked("LIST")) == 1
        assert len(bench.api.open_streams()) == 1


@simulated
async def test_an_event_over_the_limit_leads_to_a_list():
    """W12, RT9."""
    api = MemoryApi(max_line=1000)
    async with running(api) as bench:
        await bench.after(1)
        bench.put("small", x="1" * 500)
        await bench.after(1)
        assert "small" in bench.cached()
        bench.put("large", x="1" * 2000)
        await bench.after(5)
        assert sorted(bench.cached()) == ["large", "small"]
        assert bench.counts.relists == ["oversize"]


@simulated
async def test_bookmarks_move_the_version_and_stay_from_handlers():
    """W5, RT14: one with kind and version only, as the API guarantees no more."""
    async with running() as bench:
        await bench.after(1)
        bench.api.log.put(CONFIGMAPS, {"metadata": {"name": "b", "namespace": "ns"}})
        await bench.after(1)
        bench.api.log.version = 70
        bench.api.bookmark(CONFIGMAPS)
        await bench.after(1)
        assert bench.informer.last_version == "70"
        assert bench.informer.seen_version("ns") == "70"
        assert len(bench.recorder.heard) == 1
        assert bench.api.open_streams()[0].guards_silence


@simulated
async def test_the_same_name_with_another_uid_is_a_delete_and_an_add():
    """W15, RT15."""
    async with running() as bench:
        first = bench.put("a")
        await bench.after(1)
        bench.api.plan("WATCH", error_of_status(EXPIRED))
        bench.api.end_watches(CUT)
        bench.delete("a")
        second = bench.put("a")
        bench.api.log.compact()
        await bench.after(10)
        assert bench.recorder.heard == [
            ("add", "a", first["metadata"]["uid"]),
            ("delete", "a", first["metadata"]["uid"], True),
            ("add", "a", second["metadata"]["uid"]),
        ]


@simulated
async def test_the_lag_of_a_cache_is_the_time_since_the_server_last_confirmed_it():
    """C8: by a list, an event or a bookmark; an error or a connection alone confirms nothing."""
    async with running() as bench:
        await bench.after(10)
        assert bench.counts.lag() == pytest.approx(10)
        bench.api.bookmark(CONFIGMAPS)
        await bench.after(7)
        assert bench.counts.lag() == pytest.approx(7)
        bench.put("a")
        await bench.after(5)
        assert bench.counts.lag() == pytest.approx(5)
        bench.api.open_streams()[0].send_event("ERROR", status_object(500, "InternalError"))
        await bench.after(4)
        assert bench.counts.lag() == pytest.approx(9)
        bench.api.end_watches(error_of_status(EXPIRED))
        await bench.after(2)
        assert bench.counts.lag() < 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"<html>bad gateway</html>\n", "malformed"),
        (
            b'{"type":"MODIFIED","object":{"kind":"Secret","metadata":{"name":"x","resourceVersion":"9"}}}\n',
            "undecodable",
        ),
        (
            b'{"type":"ADDED","object":{"kind":"ConfigMap","metadata":{"resourceVersion":"9"}}}\n',
            "undecodable",
        ),
        (b'{"type":"ADDED","object":null}\n', "undecodable"),
        (b'{"type":"SURPRISE","object":{}}\n', "unknown_event"),
        (b'{"object":{}}\n', "unknown_event"),
        (b'{"type":"ADDED","object":"\xff"}\n', "undecodable"),
    ],
)
def test_what_cannot_be_read_is_counted_and_skipped(line, reason):
    """W14, PY9."""

    @simulated
    async def scenario():
        async with running() as bench:
            await bench.after(1)
            bench.api.open_streams()[0].send(line)
            bench.put("a")
            await bench.after(1)
            assert bench.counts.skipped == [reason]
            assert list(bench.cached()) == ["a"]
            assert len(bench.api.requests) == 2

    scenario()


@simulated
async def test_an_error_event_without_a_status_is_an_unknown_failure():
    """W8."""
    errors = []
    async with running(errors=errors) as bench:
        await bench.after(1)
        bench.api.open_streams()[0].send_event("ERROR", {"kind": "Riddle"})
        await bench.after(5)
        assert bench.counts.relists == ["unknown"]
        assert errors == [("unknown", None)]


@simulated
async def test_an_undecodable_object_still_moves_the_version():
    """PY9: otherwise each reconnect would bring it again."""
    async with running() as bench:
        await bench.after(1)
        bench.api.open_streams()[0].send_event(
            "ADDED", {"kind": "Secret", "metadata": {"name": "x", "resourceVersion": "9"}}
        )
        await bench.after(1)
        assert bench.informer.last_version == "9"


@simulated
async def test_an_undecodable_object_in_a_list_is_skipped_alone():
    """PY9."""
    api = MemoryApi()
    api.plan(
        "LIST",
        b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{}},{"metadata":{"name":"b","namespace":"ns","uid":"1"}}]}',
    )
    async with running(api) as bench:
        await bench.after(1)
        assert [obj["metadata"]["name"] for obj in bench.informer.list()] == ["b"]
        assert bench.counts.skipped == ["undecodable"]


@pytest.mark.parametrize("body", [b'{"kind":"Table","rows":[]}', b"<html>", b"[]", b""])
def test_an_answer_that_is_no_list_is_asked_for_again(body):
    """W14."""

    @simulated
    async def scenario():
        api = MemoryApi()
        api.plan("LIST", body)
        async with running(api) as bench:
            await bench.after(5)
            assert bench.informer.has_synced
            assert bench.counts.relists == ["unknown"]

    scenario()


@simulated
async def test_a_list_at_a_set_version_is_asked_for_in_pages_only_from_a_server_that_pages():
    """W2, W3: 500 a page, first at version 0, later not older than what was seen."""
    for page_size, limit in ((0, None), (2, "500")):
        api = MemoryApi(page_size=page_size)
        for number in range(3):
            api.log.put(CONFIGMAPS, {"metadata": {"name": f"n{number}", "namespace": "ns"}})
        async with running(api) as bench:
            await bench.after(1)
            assert dict(api.asked("LIST")[0].params) == {"resourceVersion": "0", "limit": "500"}
            listed = len(api.asked("LIST"))
            api.open_streams()[0].send_event("ERROR", status_object(418, "Teapot"))
            await bench.after(5)
            relist = api.asked("LIST")[listed].params
            assert (relist["resourceVersion"], relist["resourceVersionMatch"]) == ("4", "NotOlderThan")
            assert relist.get("limit") == limit


@simulated
async def test_a_list_in_pages_is_whole():
    """W3."""
    api = MemoryApi(page_size=2)
    for number in range(5):
        api.log.put(CONFIGMAPS, {"metadata": {"name": f"n{number}", "namespace": "ns"}})
    async with running(api) as bench:
        await bench.after(1)
        assert len(bench.informer) == 5
        assert [request.params.get("continue") is not None for request in api.asked("LIST")] == [
            False,
            True,
            True,
        ]


@simulated
async def test_a_continue_token_that_expired_leads_to_one_full_list():
    """W3."""
    api = MemoryApi(page_size=2)
    for number in range(5):
        api.log.put(CONFIGMAPS, {"metadata": {"name": f"n{number}", "namespace": "ns"}})
    api.plan("LIST", None, error_of_status(EXPIRED))
    async with running(api) as bench:
        await bench.after(1)
        assert len(bench.informer) == 5
        assert dict(api.asked("LIST")[-1].params) == {}
        assert len(api.asked("LIST")) == 3


@simulated
async def test_a_list_that_is_older_than_the_cache_is_not_shown():
    """W2 (k8s#59848)."""
    async with running() as bench:
        bench.put("a")
        bench.put("b")
        await bench.after(1)
        stale = {"kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []}
        bench.api.plan("LIST", orjson.dumps(stale))
        bench.api.open_streams()[0].send_event("ERROR", status_object(418, "Teapot"))
        await bench.after(10)
        assert sorted(bench.cached()) == ["a", "b"]
        assert not [entry for entry in bench.recorder.heard if entry[0] == "delete"]
        assert bench.counts.relists == ["unknown", "stale"]


@simulated
async def test_a_refused_selection_ends_the_informer_with_its_name():
    """S8, RT18."""
    api = MemoryApi()
    api.plan("LIST", error_of_status(status_object(400, "BadRequest", "field label not supported")))

    async def start():
        async with running(api) as bench:
            await bench.after(60)

    with pytest.raises(ExceptionGroup) as failure:
        await start()
    assert failure.group_contains(WatchRejected, match="configmaps.*field label not supported")
    assert len(api.requests) == 1


@simulated
async def test_only_two_minutes_of_a_living_watch_reset_the_backoff():
    """W10, RT3."""
    async with running() as bench:
        await bench.after(1)
        gaps = []
        for healthy in (10, 60, 80, 100):  # and 30 s of each turn before
            begun = asyncio.get_running_loop().time()
            bench.put("a", x=str(healthy))
            await bench.after(healthy)
            bench.api.end_watches(CUT)
            await bench.after(30)
            gaps.append(round(bench.api.asked("WATCH")[-1].at - begun - healthy, 1))
        assert gaps == [0.8, 1.6, 3.2, 0.8]
        assert len(bench.api.asked("LIST")) == 1


@simulated
async def test_watch_timeouts_are_spread_between_five_and_ten_minutes():
    """W4."""
    asked = []

    class Api(MemoryApi):
        async def open_watch(self, *args, timeout_seconds, **kwargs):
            asked.append(timeout_seconds)
            return await super().open_watch(*args, timeout_seconds=timeout_seconds, **kwargs)

    for rng in (Zero(), AlmostOne()):
        async with running(Api(), rng=rng) as bench:
            await bench.after(1)
    assert asked == [300, 600]
