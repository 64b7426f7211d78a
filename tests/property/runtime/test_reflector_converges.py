"""A reflector against an etcd-like log, under any mix of faults (P5, W1–W16)."""

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runtime.cache import Informers
from runtime.client.errors import TransportError, TransportFault, error_of_status
from runtime.clock import LoopClock
from runtime.objects import CONFIGMAPS, ObjectKey
from runtime.resourceversion import compare
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import EXPIRED, MemoryApi, status_object
from runtime.testing.simloop import run_simulated

NAMES = st.sampled_from(["a", "b", "c", "d"])
CUT = TransportError("reset", fault=TransportFault.RESET)
REFUSED = TransportError("refused", fault=TransportFault.CONNECT)


def error_event(code, reason):
    return orjson.dumps({"type": "ERROR", "object": status_object(code, reason)}) + b"\n"


WATCH_OUTCOMES = st.sampled_from(
    [
        b"",
        b'{"type":"ADDED","object":{"metadata":{"name":"half',
        b"<html>\n",
        REFUSED,
        error_of_status(EXPIRED),
        error_of_status(status_object(429, "TooManyRequests"), retry_after=3.0),
        orjson.dumps(EXPIRED),
        error_event(410, "Expired"),
        error_event(500, "InternalError"),
        error_event(418, "Teapot"),
        error_event(401, "Unauthorized"),
    ]
)
LIST_OUTCOMES = st.sampled_from(
    [
        REFUSED,
        CUT,
        b"<html>",
        error_of_status(EXPIRED),
        error_of_status(status_object(504, "Timeout", "Too large resource version: 9, current: 1")),
        error_of_status(status_object(403, "Forbidden")),
    ]
)
STALE = b'{"kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[]}'
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("recreate"), NAMES),
    st.tuples(st.just("bookmark"), st.none()),
    st.tuples(st.just("compact"), st.none()),
    st.tuples(st.just("close"), st.none()),
    st.tuples(st.just("cut"), st.none()),
    st.tuples(st.just("garbage"), st.sampled_from([b"{}\n", b"nonsense\n", b'{"type":"X"}\n', b"\n\n"])),
    st.tuples(st.just("watch fails"), WATCH_OUTCOMES),
    st.tuples(st.just("list fails"), LIST_OUTCOMES),
    st.tuples(st.just("list lags"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0, 60.0])),
)


class Mirror:
    """Rebuilds the collection from what it hears, and insists that what it hears makes sense."""

    def __init__(self, log):
        self.log = log
        self.objects = {}

    def on_add(self, obj, *, initial):
        name = obj["metadata"]["name"]
        assert name not in self.objects, "an object appeared twice"
        self.objects[name] = obj

    def on_update(self, old, new):
        assert self.objects[new["metadata"]["name"]] is old
        assert old["metadata"]["uid"] == new["metadata"]["uid"]
        versions = [obj["metadata"]["resourceVersion"] for obj in (new, old)]
        assert compare(*versions) == 1, f"went back from {versions[1]} to {versions[0]}"
        self.objects[new["metadata"]["name"]] = new

    def on_delete(self, obj, *, final_state_unknown):
        gone = self.objects.pop(obj["metadata"]["name"])
        uid = obj["metadata"]["uid"]
        assert gone["metadata"]["uid"] == uid
        living = {obj["metadata"]["uid"] for obj in self.log.objects(CONFIGMAPS)}
        assert uid not in living, "an object that lives was called deleted"


def apply(api, action, argument):
    key = ObjectKey("ns", argument) if isinstance(argument, str) else None
    match action:
        case "put":
            api.log.put(CONFIGMAPS, {"metadata": {"name": argument, "namespace": "ns"}})
        case "delete":
            api.log.delete(CONFIGMAPS, key)
        case "recreate":
            api.log.delete(CONFIGMAPS, key)
            api.log.put(CONFIGMAPS, {"metadata": {"name": argument, "namespace": "ns"}})
        case "bookmark":
            api.bookmark(CONFIGMAPS)
        case "compact":
            api.log.compact()
        case "close":
            api.end_watches()
        case "cut":
            api.end_watches(CUT)
        case "garbage":
            for stream in api.open_streams():
                stream.send(argument)
        case "watch fails":
            api.plan("WATCH", argument)
        case "list fails":
            api.plan("LIST", argument)
        case "list lags":
            api.lag(STALE)
            for stream in api.open_streams():  # an unknown failure is listed at the version that was seen
                stream.send(error_event(418, "Teapot"))


async def follow(steps, page_size, *, streaming=False, ends=True):
    api = MemoryApi(page_size=page_size)
    api.ends_initial_events = ends
    informers = Informers(api, clock=LoopClock(), streaming=streaming)
    informer = informers.informer(CONFIGMAPS)
    informer.add_handler(mirror := Mirror(api.log))
    seen = ""
    async with TaskScope() as scope:
        scope.spawn(informers.run(), name="informers")
        for action, argument in steps:
            if action == "wait":
                await LoopClock().sleep(argument)
            else:
                apply(api, action, argument)
            assert not seen or compare(informer.last_version, seen) in (0, 1), "the version went back"
            seen = informer.last_version or seen
        # Faults planned and never met go away; what is open may be broken once more.
        api.forget_plans()
        api.end_watches(CUT)
        await LoopClock().sleep(600)
        truth = {obj["metadata"]["name"]: obj["metadata"] for obj in api.log.objects(CONFIGMAPS)}
        cached = {obj["metadata"]["name"]: obj["metadata"] for obj in informer.list()}
        heard = {name: obj["metadata"] for name, obj in mirror.objects.items()}
        assert cached == truth
        assert heard == truth
        assert len(api.requests) <= 4 * len(steps) + 20, "the server was asked too often"
        scope.cancel()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(steps=[("put", "a"), ("wait", 1.0), ("list lags", None), ("wait", 5.0)], page_size=0)
@example(
    steps=[("put", "a"), ("wait", 1.0), ("compact", None), ("recreate", "a"), ("cut", None)], page_size=1
)
@given(steps=st.lists(STEPS, max_size=25), page_size=st.sampled_from([0, 1, 3]))
def test_any_mix_of_faults_converges_to_the_server(steps, page_size):
    """P5, W1, W2, W6, W7, W15."""
    run_simulated(follow(steps, page_size))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=25), ends=st.booleans())
def test_a_streaming_list_under_any_mix_of_faults_converges_to_the_server(steps, ends):
    """P5, W6, W13, RT13."""
    run_simulated(follow(steps, 0, streaming=True, ends=ends))
