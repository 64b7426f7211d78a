"""Single behaviours of the work queue."""

import asyncio

import pytest

from runtime.clock import LoopClock
from runtime.metrics import Metrics
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from runtime.testing.simloop import simulated
from runtime.workqueue import HEARTBEAT, LONGEST_DELAY, QueueShutDown, WorkQueue


def queue_at(clock, **settings):
    return WorkQueue("test", clock=clock, **settings)


def test_adds_while_processing_give_exactly_one_more_run():
    """Q1, RT24."""
    queue = queue_at(SimClock())
    queue.add("a")
    assert queue.get_nowait() == ("a", 0)
    queue.add("a")
    queue.add("a")
    assert queue.get_nowait() is None
    queue.done("a")
    assert queue.get_nowait() == ("a", 0)
    queue.done("a")
    assert queue.get_nowait() is None


def test_a_time_that_comes_during_processing_is_not_lost():
    """Q1, RT24."""
    clock = SimClock()
    queue = queue_at(clock)
    queue.add("a")
    queue.get_nowait()
    queue.add_after("a", 1)
    clock.advance(5)
    assert queue.get_nowait() is None
    queue.done("a")
    assert queue.get_nowait() == ("a", 0)


def test_done_without_get_is_refused():
    """Q1."""
    with pytest.raises(ValueError, match="not being processed"):
        queue_at(SimClock()).done("a")


def test_the_earliest_deadline_wins():
    """Q2."""
    clock = SimClock()
    queue = queue_at(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 2)
    queue.add_after("a", 30)
    clock.advance(2)
    assert queue.get_nowait() == ("a", 0)


def test_an_add_overtakes_a_delay_and_leaves_no_second_run():
    """Q2."""
    clock = SimClock()
    queue = queue_at(clock)
    queue.add_after("a", 10)
    queue.add("a")
    assert queue.get_nowait() == ("a", 0)
    queue.done("a")
    clock.advance(11)
    assert queue.get_nowait() is None


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), float("-inf")])
def test_a_delay_that_is_no_finite_number_is_refused(delay):
    """Q2."""
    with pytest.raises(ValueError, match="finite"):
        queue_at(SimClock()).add_after("a", delay)


def test_a_huge_delay_is_clamped_to_a_year():
    """Q2."""
    clock = SimClock()
    queue = queue_at(clock)
    queue.add_after("a", 1e300)
    clock.advance(LONGEST_DELAY - 1)
    assert queue.get_nowait() is None
    clock.advance(1)
    assert queue.get_nowait() == ("a", 0)


def test_backoff_doubles_per_key_up_to_its_cap_and_is_forgotten():
    """Q3."""
    clock = SimClock()
    queue = queue_at(clock)
    delays = []
    for _ in range(2000):
        queue.add_rate_limited("a")
        delays.append(queue._waiting["a"][0] - clock.monotonic())
        clock.advance(61)
        queue.get_nowait()
        queue.done("a")
    assert delays[:4] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert max(delays) == delays[-1] == pytest.approx(60.0)
    assert queue.retries("a") == 2000
    queue.forget("a")
    queue.forget("never seen")
    assert queue.retries("a") == 0


def test_backoff_of_one_key_does_not_slow_another():
    """Q3: there is no common bucket."""
    clock = SimClock()
    queue = queue_at(clock)
    for number in range(1000):
        queue.add_rate_limited(number)
    clock.advance(0.005)
    assert len(queue) == 1000


def test_a_raised_key_goes_to_the_end_of_its_new_level():
    """Q4, RT21."""
    queue = queue_at(SimClock())
    queue.add("low")
    queue.add("raised")
    queue.add("first at ten", 10)
    queue.add("raised", 10)
    queue.add("last at ten", 10)
    queue.add("raised", -5)  # never lowered
    order = [queue.get_nowait() for _ in range(4)]
    assert order == [("first at ten", 10), ("raised", 10), ("last at ten", 10), ("low", 0)]


def test_a_waiting_key_keeps_its_highest_priority():
    """Q4."""
    clock = SimClock()
    queue = queue_at(clock)
    queue.add_after("a", 5, 7)
    queue.add_after("a", 1, 0)
    queue.add("b")
    clock.advance(1)
    assert queue.get_nowait() == ("a", 7)


def test_a_delay_of_a_ready_key_can_raise_but_not_postpone_it():
    """Q4."""
    queue = queue_at(SimClock())
    queue.add("a")
    queue.add("b")
    queue.add_after("b", 100, 3)
    assert queue.get_nowait() == ("b", 3)


def test_repeated_raises_do_not_grow_the_indexes():
    """Q7: memory follows the number of keys, not of adds."""
    queue = queue_at(SimClock())
    for priority in range(5000):
        queue.add("a", priority)
        queue.add_after("b", 10_000 - priority)
    assert sum(map(len, queue._lines.values())) < 100
    assert len(queue._lines) < 100
    assert len(queue._timetable) < 100
    assert queue.get_nowait() == ("a", 4999)


@simulated
async def test_a_waiting_consumer_is_woken_when_a_delay_ends():
    """Q2."""
    clock = LoopClock()
    queue = queue_at(clock)
    begin = clock.monotonic()
    async with TaskScope() as scope:
        getting = scope.spawn(queue.get(), name="get")
        await clock.sleep(1)
        queue.add_after("late", 50)
        queue.add_after("early", 3)
    assert getting.result() == ("early", 0)
    assert clock.monotonic() - begin == pytest.approx(4, abs=0.01)
    assert await queue.get() == ("late", 0)
    assert clock.monotonic() - begin == pytest.approx(51, abs=0.01)


@simulated
async def test_a_consumer_looks_again_at_each_heartbeat_even_if_its_timer_was_lost():
    """Q2."""
    clock = LoopClock()
    queue = queue_at(clock)
    queue.add_after("a", 25)
    async with TaskScope() as scope:
        getting = scope.spawn(queue.get(), name="get")
        await clock.sleep(0.1)
        assert queue._timer.when() - clock.monotonic() <= HEARTBEAT
        queue._timetable[0] = (clock.monotonic() + 1, -1, "a", 0)  # due earlier than any timer knows
        queue._waiting["a"] = queue._timetable[0]
    assert getting.result() == ("a", 0)
    assert clock.monotonic() <= 1000 + HEARTBEAT + 0.2


@simulated
async def test_a_consumer_cancelled_with_its_wake_up_hands_it_on():
    """Q6, RT39."""
    queue = queue_at(LoopClock())
    async with TaskScope() as scope:
        first = scope.spawn(queue.get(), name="first")
        second = scope.spawn(queue.get(), name="second")
        await asyncio.sleep(0)
        queue.add("a")  # wakes the first
        first.cancel()  # in the same tick
        async with asyncio.timeout(1):
            await asyncio.wait({second})
    assert first.cancelled()
    assert second.result() == ("a", 0)


@simulated
async def test_a_cancelled_consumer_leaves_nothing_behind():
    """Q6."""
    queue = queue_at(LoopClock())
    async with TaskScope() as scope:
        getting = scope.spawn(queue.get(), name="get")
        await asyncio.sleep(0)
        getting.cancel()
    queue.add("a")
    assert await queue.get() == ("a", 0)


@simulated
async def test_shutdown_lets_the_queue_empty_and_then_wakes_every_getter():
    """Q6."""
    queue = queue_at(LoopClock())
    queue.add("a")
    queue.add_after("later", 10)
    queue.shutdown()
    queue.add("refused")
    queue.add_after("refused", 1)
    assert await queue.get() == ("a", 0)
    async with TaskScope() as scope:
        getters = [scope.spawn(_get_or_none(queue), name="get") for _ in range(3)]
    assert [getter.result() for getter in getters] == [None, None, None]


@simulated
async def test_getters_wait_for_a_dirty_key_in_processing_and_all_wake_after_it():
    """Q6."""
    queue = queue_at(LoopClock())
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.shutdown()
    async with TaskScope() as scope:
        getters = [scope.spawn(_get_or_none(queue), name="get") for _ in range(3)]
        await asyncio.sleep(1)
        assert not any(getter.done() for getter in getters)
        queue.done("a")
    assert sorted(str(getter.result()) for getter in getters) == ["('a', 0)", "None", "None"]


@simulated
async def test_a_drain_waits_for_processing_to_end():
    """Q6."""
    queue = queue_at(LoopClock())
    queue.add("a")
    await queue.get()
    async with TaskScope() as scope:
        draining = scope.spawn(queue.shutdown_with_drain(), name="drain")
        await asyncio.sleep(5)
        assert not draining.done()
        queue.done("a")
    assert draining.done()


@simulated
async def test_a_second_call_forces_the_drain_to_end():
    """Q6."""
    queue = queue_at(LoopClock())
    queue.add("a")
    queue.add("b")
    await queue.get()
    async with TaskScope() as scope:
        scope.spawn(queue.shutdown_with_drain(), name="drain")
        await asyncio.sleep(1)
        await queue.shutdown_with_drain()
    with pytest.raises(QueueShutDown):
        queue.get_nowait()
    queue.done("a")
    await queue.shutdown_with_drain()


@simulated
async def test_a_drain_after_a_shutdown_does_not_force():
    """Q6."""
    queue = queue_at(LoopClock())
    queue.add("a")
    queue.shutdown()
    async with TaskScope() as scope:
        draining = scope.spawn(queue.shutdown_with_drain(), name="drain")
        await asyncio.sleep(1)
        assert not draining.done()
        await queue.get()
        queue.done("a")


@simulated
async def test_a_cancelled_drain_can_be_repeated():
    """Q6, PY4."""
    queue = queue_at(LoopClock())
    queue.add("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await queue.shutdown_with_drain()
    await queue.get()
    queue.done("a")
    await queue.shutdown_with_drain()


def test_metrics_tell_depth_by_priority_and_durations():
    """Q7."""
    clock = SimClock()
    metrics = Metrics()
    queue = queue_at(clock, metrics=metrics)
    queue.add("a")
    queue.add("b", 5)
    value = metrics.registry.get_sample_value
    labels = {"name": "test", "controller": "test"}
    assert value("workqueue_depth", {**labels, "priority": "5"}) == 1
    clock.advance(2)
    queue.get_nowait()
    clock.advance(3)
    queue.add_rate_limited("c")
    assert value("workqueue_depth", {**labels, "priority": "0"}) == 1
    assert value("workqueue_depth", {**labels, "priority": "5"}) == 0
    assert value("workqueue_adds_total", labels) == 3
    assert value("workqueue_retries_total", labels) == 1
    assert value("workqueue_queue_duration_seconds_sum", labels) == 2
    assert value("workqueue_unfinished_work_seconds", labels) == 3
    assert value("workqueue_longest_running_processor_seconds", labels) == 3
    queue.done("b")
    assert value("workqueue_work_duration_seconds_sum", labels) == 3
    assert value("workqueue_work_duration_seconds_count", labels) == 1
    assert value("workqueue_longest_running_processor_seconds", labels) == 0


def test_the_priority_label_stays_bounded():
    """Q7: at most 25 values."""
    metrics = Metrics()
    queue = queue_at(SimClock(), metrics=metrics)
    for priority in range(100):
        queue.add(f"key {priority}", priority)
    depth = next(family for family in metrics.registry.collect() if family.name == "workqueue_depth")
    assert len(depth.samples) <= 25
    assert sum(sample.value for sample in depth.samples) == 100


async def _get_or_none(queue):
    try:
        return await queue.get()
    except QueueShutDown:
        return None


def test_a_key_that_was_passed_over_while_it_ran_comes_before_younger_ones():
    """Q1, Q4: what is given back takes its old place, also behind an older one that is given back later."""
    queue = queue_at(SimClock())
    for key in "ab":
        queue.add(key)
        assert queue.get_nowait() == (key, 0)
    for key in "abc":
        queue.add(key)
    assert queue.get_nowait() == ("c", 0)
    assert queue.get_nowait() is None
    queue.add("d")
    queue.done("b")
    queue.done("a")
    assert [queue.get_nowait() for _ in range(3)] == [("a", 0), ("b", 0), ("d", 0)]


def test_priorities_that_come_once_leave_nothing_behind():
    """Q7: memory follows the number of keys, not of priorities ever seen."""
    queue = queue_at(SimClock())
    for priority in range(5000):
        queue.add("a", priority)
        assert queue.get_nowait() == ("a", priority)
        queue.done("a")
    assert len(queue._lines) <= 16
