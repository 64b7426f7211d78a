"""The controller: what it does with a reconciler's answers."""

import asyncio
import contextlib
import itertools

import pytest
import structlog

from runtime.cache import Barrier, Informers
from runtime.clock import LoopClock
from runtime.controller import Controller, Result, TerminalError, generation_changed, owner_of
from runtime.controller.source import BACKGROUND_PRIORITY, ChannelSource
from runtime.errors import RuntimeFault
from runtime.fence import LeadershipLost
from runtime.metrics import Metrics
from runtime.objects import CONFIGMAPS, PODS, ObjectKey, Resource
from runtime.tasks import TaskScope
from runtime.testing.memoryapi import MemoryApi
from runtime.testing.simloop import simulated

KEY = ObjectKey("ns", "a")
PARENTS = Resource("example.com", "v2", "parents", "Parent")


class Scripted:
    """A reconciler that answers from a list, then with nothing."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    async def reconcile(self, request):
        self.calls.append((asyncio.get_running_loop().time(), request.key))
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer = await answer()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class FakeInformer:
    resource = PODS

    def __init__(self):
        self.has_synced = False
        self.handlers = []

    def add_handler(self, handler):
        self.handlers.append(handler)
        return self


class Bench:
    """A controller, its metrics and its clock."""

    def __init__(self, reconciler, **settings):
        self.clock = LoopClock()
        self.metrics = Metrics()
        self.controller = Controller("things", reconciler, clock=self.clock, metrics=self.metrics, **settings)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(
            f"controller_runtime_{name}", {"controller": "things", **labels}
        )

    async def run(self, seconds):
        async with TaskScope() as scope:
            scope.spawn(self.controller.run(), name="controller")
            await self.clock.sleep(seconds)
            self.controller.shutdown()


@simulated
async def test_success_is_counted_and_not_repeated():
    """C1, C8."""
    reconciler = Scripted(None, Result())
    bench = Bench(reconciler)
    bench.controller.trigger(KEY)
    await bench.run(100)
    assert [key for _, key in reconciler.calls] == [KEY]
    assert bench.value("reconcile_total", result="success") == 1
    assert bench.value("reconcile_time_seconds_count") == 1
    assert bench.value("active_workers") == 0


@simulated
async def test_an_error_is_retried_with_backoff_until_it_succeeds():
    """C1, C2, Q3."""
    reconciler = Scripted(RuntimeFault("one"), ValueError("two"), OSError("three"))
    bench = Bench(reconciler)
    bench.controller.trigger(KEY)
    await bench.run(10)
    times = [at for at, _ in reconciler.calls]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.005, 0.01, 0.02], abs=0.002)
    assert bench.value("reconcile_errors_total") == 3
    assert bench.value("reconcile_total", result="error") == 3
    assert bench.value("reconcile_total", result="success") == 1
    assert bench.controller.queue.retries(KEY) == 0


@simulated
async def test_a_terminal_error_is_counted_and_not_retried():
    """C1, Q3: and the backoff of what failed before is over."""
    reconciler = Scripted(RuntimeFault("not yet"), TerminalError("the spec makes no sense"))
    bench = Bench(reconciler)
    bench.controller.trigger(KEY)
    await bench.run(100)
    assert len(reconciler.calls) == 2
    assert bench.controller.queue.retries(KEY) == 0
    assert bench.value("terminal_reconcile_errors_total") == 1
    assert bench.value("reconcile_total", result="error") == 2


@simulated
async def test_requeue_after_comes_back_once_and_resets_the_backoff():
    """C1, Q3."""
    reconciler = Scripted(RuntimeFault("first"), Result(requeue_after=30))
    bench = Bench(reconciler)
    bench.controller.trigger(KEY)
    await bench.run(100)
    times = [at for at, _ in reconciler.calls]
    assert times[2] - times[1] == pytest.approx(30, abs=0.01)
    assert len(times) == 3
    assert bench.value("reconcile_total", result="requeue_after") == 1
    assert bench.controller.queue.retries(KEY) == 0


@pytest.mark.parametrize(("answered", "expected"), [(None, -100), (5, 5), (-200, -200)])
def test_priority_survives_a_requeue_unless_the_result_says_otherwise(answered, expected):
    """Q4."""

    @simulated
    async def scenario():
        bench = Bench(Scripted(Result(requeue_after=5, priority=answered)))
        bench.controller.trigger(KEY, priority=BACKGROUND_PRIORITY)
        async with TaskScope() as scope:
            running = scope.spawn(bench.controller.run(), name="controller")
            await bench.clock.sleep(1)
            assert bench.controller.queue._waiting[KEY][3] == expected
            running.cancel()

    scenario()


def test_a_requeue_that_is_no_finite_time_is_the_reconcilers_error():
    """C2: it must not reach the queue, outside of what is caught."""
    with pytest.raises(ValueError, match="finite"):
        Result(requeue_after=float("nan"))


@simulated
async def test_a_timeout_is_counted_apart_and_retried():
    """C2."""

    async def hang():
        await asyncio.sleep(1000)

    async def late_by_itself():
        raise TimeoutError("some call within the reconcile")

    reconciler = Scripted(hang, late_by_itself)
    bench = Bench(reconciler, reconcile_timeout=10)
    bench.controller.trigger(KEY)
    await bench.run(100)
    assert len(reconciler.calls) == 3
    assert bench.value("reconcile_timeouts_total") == 1
    assert bench.value("reconcile_errors_total") == 2


@simulated
async def test_an_outer_cancel_is_no_timeout_and_no_error():
    """C2, PY4."""

    async def hang():
        await asyncio.sleep(1000)

    bench = Bench(Scripted(hang), reconcile_timeout=60)
    bench.controller.trigger(KEY)
    async with TaskScope() as scope:
        running = scope.spawn(bench.controller.run(), name="controller")
        await bench.clock.sleep(1)
        assert bench.value("active_workers") == 1
        running.cancel()
    assert running.cancelled()
    assert bench.value("reconcile_timeouts_total") == 0
    assert bench.value("reconcile_errors_total") == 0
    assert bench.value("active_workers") == 0


@simulated
async def test_a_bug_is_counted_as_a_panic_and_ends_no_worker():
    """C2, C8."""
    reconciler = Scripted(KeyError("oops"), RuntimeFault("not a bug"))
    bench = Bench(reconciler, workers=1)
    bench.controller.trigger(KEY)
    await bench.run(10)
    assert len(reconciler.calls) == 3
    assert bench.value("reconcile_panics_total") == 1


@pytest.mark.parametrize(
    "error",
    [
        LeadershipLost("fence shut"),
        ExceptionGroup("children", [ExceptionGroup("inner", [ValueError(), LeadershipLost("fence shut")])]),
    ],
)
def test_lost_leadership_ends_the_controller(error):
    """L6, C2."""

    @simulated
    async def scenario():
        bench = Bench(Scripted(error))
        bench.controller.trigger(KEY)
        with pytest.raises(ExceptionGroup) as caught:
            await bench.run(10)
        assert caught.value.subgroup(LeadershipLost) is not None
        assert bench.value("reconcile_errors_total") == 0

    scenario()


@simulated
async def test_one_bad_object_does_not_stop_the_others():
    """C2."""

    class Picky:
        def __init__(self):
            self.good = []

        async def reconcile(self, request):
            if request.name == "bad":
                raise RuntimeError("always")
            self.good.append(request.name)

    reconciler = Picky()
    bench = Bench(reconciler, workers=1)
    for name in ("bad", "x", "y"):
        bench.controller.trigger(ObjectKey("ns", name))
    await bench.run(5)
    assert reconciler.good == ["x", "y"]


@simulated
async def test_a_key_is_never_reconciled_twice_at_once():
    """Q1."""

    class Watchful:
        def __init__(self):
            self.running, self.calls = set(), 0

        async def reconcile(self, request):
            assert request.key not in self.running
            self.running.add(request.key)
            self.calls += 1
            await asyncio.sleep(1)
            self.running.discard(request.key)

    reconciler = Watchful()
    bench = Bench(reconciler)
    async with TaskScope() as scope:
        scope.spawn(bench.controller.run(), name="controller")
        for _ in range(30):
            bench.controller.trigger(KEY)
            await bench.clock.sleep(0.1)
        await bench.clock.sleep(5)
        bench.controller.shutdown()
    assert 3 <= reconciler.calls <= 5
    assert bench.value("reconcile_errors_total") == 0


@simulated
async def test_shutdown_lets_work_in_progress_end_and_drops_the_rest():
    """P2, Q6."""
    ended = []

    class Slow:
        async def reconcile(self, request):
            await asyncio.sleep(10)
            ended.append(request.name)
            return Result(requeue_after=1)

    bench = Bench(Slow(), workers=2)
    for number in range(10):
        bench.controller.trigger(ObjectKey("ns", str(number)))
    await bench.run(5)
    assert sorted(ended) == ["0", "1"]
    bench.controller.trigger(KEY)
    assert len(bench.controller.queue) == 0


@simulated
async def test_the_queue_fills_before_the_workers_start_and_news_goes_first():
    """C9, Q4, S5."""
    reconciler = Scripted()
    bench = Bench(reconciler, workers=1)
    informer = FakeInformer()
    bench.controller.watch(informer)
    assert not bench.controller.has_synced
    (handler,) = informer.handlers
    handler.on_add(pod("old"), initial=True)
    handler.on_add(pod("new"), initial=False)
    informer.has_synced = True
    assert bench.controller.has_synced
    assert len(bench.controller.queue) == 2
    await bench.run(1)
    assert [key.name for _, key in reconciler.calls] == ["new", "old"]


@simulated
async def test_every_line_of_a_reconcile_carries_its_id_and_the_reason_is_told_at_its_start():
    """C3."""

    class Logging:
        async def reconcile(self, request):
            structlog.get_logger().info("inside")

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        bench = Bench(Logging())
        channel = ChannelSource("placement")
        bench.controller.watch_channel(channel)
        channel.notify(KEY)
        channel.notify(ObjectKey("ns", "b"), after=1)
        await bench.run(2)
    inside = [line for line in lines if line["event"] == "inside"]
    started = [line for line in lines if line["event"] == "reconcile started"]
    assert [(line["namespace"], line["name"], line["controller"]) for line in inside] == [
        ("ns", "a", "things"),
        ("ns", "b", "things"),
    ]
    assert inside[0]["reconcile_id"] != inside[1]["reconcile_id"]
    assert started[0]["reconcile_id"] == inside[0]["reconcile_id"]
    assert started[0]["reason"] == "notified by placement"


@simulated
async def test_a_reconcile_is_one_span_with_the_id_of_its_log_lines():
    """C3: and its failure is the span's."""
    spans, ids = [], []

    class Tracer:
        @contextlib.contextmanager
        def span(self, name, /, **attributes):
            try:
                yield
            except RuntimeFault as error:
                spans.append((name, attributes, str(error)))
                raise
            else:
                spans.append((name, attributes, None))

    async def remember():
        ids.append(structlog.contextvars.get_contextvars()["reconcile_id"])

    async def fail():
        await remember()
        raise RuntimeFault("not today")

    bench = Bench(Scripted(fail, remember), tracer=Tracer())
    bench.controller.trigger(KEY)
    await bench.run(1)
    assert [(name, told) for name, _, told in spans] == [("reconcile", "not today"), ("reconcile", None)]
    assert [attributes["reconcile_id"] for _, attributes, _ in spans] == ids
    assert (spans[0][1]["namespace"], spans[0][1]["name"]) == KEY


def test_a_controller_without_workers_is_refused():
    """Bad input gives one clear sentence."""
    with pytest.raises(ValueError, match="at least one worker"):
        Bench(Scripted(), workers=0)


async def test_watching_children_queues_their_owner():
    """C6."""
    bench = Bench(Scripted())
    informer = FakeInformer()
    bench.controller.watch(informer, mapping=owner_of(PARENTS))
    (handler,) = informer.handlers
    child = pod("child")
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "example.com/v1", "kind": "Parent", "name": "p", "uid": "u", "controller": True}
    ]
    handler.on_delete(child, final_state_unknown=True)
    handler.on_add(pod("orphan"), initial=False)
    assert bench.controller.queue.get_nowait() == (ObjectKey("ns", "p"), 0)
    assert bench.controller.queue.get_nowait() is None


def pod(name):
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": "1"}}


@pytest.mark.parametrize("predicate", [None, generation_changed])
def test_the_echo_of_a_status_write_causes_one_look_at_most_and_no_second_effect(predicate):
    """RT20, R2, C5: whether the echo is held back by a predicate, or looked at behind a barrier."""

    class Late(MemoryApi):
        """Delivers every event a second late."""

        async def open_watch(self, *args, **kwargs):
            stream = await super().open_watch(*args, **kwargs)
            loop, send = asyncio.get_running_loop(), stream.send
            stream.send = lambda chunk: loop.call_later(1.0, send, chunk)
            return stream

    class Reporting:
        """Has one effect outside for each generation, and writes down that it had it."""

        def __init__(self, api, informer):
            self.api, self.informer = api, informer
            self.barrier = Barrier(informer, clock=LoopClock())
            self.effects, self.looks, self.waits = [], 0, 0

        async def reconcile(self, request):
            if not self.barrier.is_open(request.key):
                self.waits += 1
                return Result(requeue_after=0.1)
            self.looks += 1
            seen = self.informer.get(request.key)
            generation = seen["metadata"]["generation"]
            if (seen.get("status") or {}).get("observedGeneration") == generation:
                return None
            self.effects.append(generation)
            written = self.api.log.put(CONFIGMAPS, {**seen, "status": {"observedGeneration": generation}})
            self.barrier.wrote(request.key, written)
            return None

    @simulated
    async def scenario():
        api, bench = Late(), Bench(None)
        informers = Informers(api, clock=bench.clock)
        informer = informers.informer(CONFIGMAPS)
        reconciler = Reporting(api, informer)
        controller = Controller("things", reconciler, clock=bench.clock, metrics=bench.metrics)
        controller.watch(informer, predicate=predicate)
        async with TaskScope() as scope:
            scope.spawn(informers.run(), name="informers")
            scope.spawn(controller.run(), name="controller")
            await bench.clock.sleep(1)
            for generation in (1, 2):
                thing = {"metadata": {"name": "a", "namespace": "ns", "generation": generation}}
                api.log.put(CONFIGMAPS, thing)
                await bench.clock.sleep(1.5)
                controller.trigger(KEY)  # somebody else asks while the echo is on its way
                await bench.clock.sleep(60)
                assert reconciler.effects == list(range(1, generation + 1))
                assert reconciler.waits > 0
                assert reconciler.looks <= 3 * generation
            scope.cancel()

    scenario()
