"""The recorder: never in the way of whoever reports."""

import asyncio

import msgspec
import pytest

from runtime.cache.projection import Node, Pod
from runtime.client.errors import (
    AlreadyExists,
    Forbidden,
    InternalError,
    NotFound,
    TransportError,
    TransportFault,
)
from runtime.clock import LoopClock
from runtime.events import EventRecorder, reference_to
from runtime.events.recorder import QUEUE_SIZE, TRIES
from runtime.fence import LeadershipLost
from runtime.metrics import Metrics
from runtime.objects import PODS
from runtime.tasks import TaskScope
from runtime.testing.simloop import simulated

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
}


class Sink:
    def __init__(self):
        self.created, self.patched, self.errors = [], [], []
        self.stalls = False

    async def create(self, resource, body, *, namespace=None):
        await self._weather()
        self.created.append((namespace, body))
        return body

    async def patch(self, resource, name, body, *, namespace=None, kind=None):
        await self._weather()
        self.patched.append((name, body))
        return body

    async def _weather(self):
        if self.stalls:
            await asyncio.sleep(60)
        if self.errors:
            raise self.errors.pop(0)


class Bench:
    def __init__(self):
        self.sink, self.metrics, self.clock = Sink(), Metrics(), LoopClock()
        self.recorder = EventRecorder(
            self.sink, component="operator", instance="pod_1", clock=self.clock, metrics=self.metrics
        )

    def dropped(self, reason):
        return self.metrics.registry.get_sample_value("runtime_events_dropped_total", {"reason": reason})

    def event(self, message="it runs", obj=POD):
        self.recorder.event(obj, type="Normal", reason="Started", message=message)

    async def run(self, seconds):
        async with TaskScope() as scope:
            running = scope.spawn(self.recorder.run(), name="events")
            await self.clock.sleep(seconds)
            running.cancel()


@simulated
async def test_an_event_is_written_as_kubectl_reads_it():
    """R8."""
    bench = Bench()
    bench.event()
    await bench.run(1)
    ((namespace, body),) = bench.sink.created
    assert namespace == "ns"
    assert body["metadata"]["name"].startswith("a.")
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "a",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (body["type"], body["reason"], body["message"], body["count"]) == (
        "Normal",
        "Started",
        "it runs",
        1,
    )
    assert body["source"]["component"] == body["reportingComponent"] == "operator"
    assert body["firstTimestamp"] == body["lastTimestamp"] == "2026-01-01T00:16:40Z"


@simulated
async def test_a_long_reason_and_a_long_message_are_cut():
    """R8: the API takes no more than 128 and 1,024 bytes."""
    bench = Bench()
    bench.recorder.event(POD, type="Warning", reason="R" * 500, message="m" * 5000)
    await bench.run(1)
    ((_, body),) = bench.sink.created
    assert (len(body["reason"].encode()), len(body["message"].encode())) == (128, 1024)


@simulated
async def test_a_repeated_event_raises_the_count_of_the_first():
    """R8."""
    bench = Bench()
    bench.event()
    bench.event()
    await bench.run(1)
    assert len(bench.sink.created) == 1
    ((name, change),) = bench.sink.patched
    assert name == bench.sink.created[0][1]["metadata"]["name"]
    assert change["count"] == 2


@simulated
async def test_a_repeated_event_whose_first_has_expired_is_written_anew_with_its_count():
    """R8."""
    bench = Bench()
    bench.event()
    await bench.run(1)
    bench.sink.errors = [NotFound("expired", status=404)]
    bench.event()
    bench.event()
    await bench.run(1)
    assert [body["count"] for _, body in bench.sink.created] == [1, 2]
    assert [change["count"] for _, change in bench.sink.patched] == [3]


@simulated
async def test_a_stalled_api_fills_the_queue_and_blocks_nobody():
    """R8, RT29."""
    bench = Bench()
    bench.sink.stalls = True
    async with TaskScope() as scope:
        running = scope.spawn(bench.recorder.run(), name="events")
        await bench.clock.sleep(1)
        before = bench.clock.monotonic()
        for number in range(QUEUE_SIZE + 100):
            bench.event(f"message {number}")
        assert bench.clock.monotonic() == before
        running.cancel()
    assert bench.dropped("queue full") == 100


@pytest.mark.parametrize(
    "error",
    [TransportError("cut off", fault=TransportFault.RESET), InternalError("oops", status=500)],
)
def test_a_failing_api_is_tried_again_but_not_for_ever(error):
    """R8."""

    @simulated
    async def scenario():
        bench = Bench()
        bench.sink.errors = [error] * 3
        bench.event()
        await bench.run(40)
        assert len(bench.sink.created) == 1
        bench.sink.errors = [error] * (TRIES + 5)
        bench.event("another")
        await bench.run(200)
        assert len(bench.sink.created) == 1
        assert bench.dropped("out of tries") == 1

    scenario()


@simulated
async def test_an_event_that_was_written_though_the_answer_was_lost_is_not_doubled():
    """R8."""
    bench = Bench()
    bench.sink.errors = [
        TransportError("late", fault=TransportFault.TIMEOUT),
        AlreadyExists("exists", status=409),
    ]
    bench.event()
    await bench.run(20)
    bench.event()
    await bench.run(1)
    assert bench.sink.created == []
    assert [change["count"] for _, change in bench.sink.patched] == [2]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Forbidden("namespace is terminating", status=403), "refused"),
        (LeadershipLost("not the leader"), "not the leader"),
    ],
)
def test_what_trying_again_cannot_cure_is_dropped(error, reason):
    """R8."""

    @simulated
    async def scenario():
        bench = Bench()
        bench.sink.errors = [error]
        bench.event()
        bench.event("next")
        await bench.run(1)
        assert bench.dropped(reason) == 1
        assert len(bench.sink.created) == 1

    scenario()


@simulated
async def test_flush_waits_for_what_is_queued_but_only_so_long():
    """P2."""
    bench = Bench()
    assert await bench.recorder.flush(timeout=1)
    async with TaskScope() as scope:
        running = scope.spawn(bench.recorder.run(), name="events")
        bench.event()
        assert await bench.recorder.flush(timeout=1)
        assert len(bench.sink.created) == 1
        bench.sink.stalls = True
        bench.event("stalled")
        before = bench.clock.monotonic()
        assert not await bench.recorder.flush(timeout=2)
        assert bench.clock.monotonic() - before == pytest.approx(2)
        running.cancel()


@simulated
async def test_projections_and_explicit_kinds_can_be_referred_to():
    """R8."""
    pod = msgspec.convert(POD, Pod)
    node = msgspec.convert({"metadata": {"name": "n"}}, Node)
    assert reference_to(pod) == reference_to(POD)
    assert reference_to(node).kind == "Node"
    assert reference_to({"metadata": {"name": "x"}}, PODS).kind == "Pod"
    with pytest.raises(ValueError, match="does not carry its kind"):
        Bench().event(obj={"metadata": {"name": "x"}})


@simulated
async def test_an_event_about_a_cluster_wide_object_goes_to_the_default_namespace():
    """R8."""
    bench = Bench()
    bench.event(obj={"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n" * 253}})
    await bench.run(1)
    ((namespace, body),) = bench.sink.created
    assert namespace == "default"
    assert len(body["metadata"]["name"]) <= 253
