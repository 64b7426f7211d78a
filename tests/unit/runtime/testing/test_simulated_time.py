"""Simulated time: the tests' own instrument is tested, too."""

import asyncio
import time

import pytest

from runtime.clock import Clock, LoopClock
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from runtime.testing.simloop import SimulationStalled, TasksLeaked, run_simulated, simulated


def test_an_hour_passes_at_once_and_exactly():
    """P3."""

    async def main():
        clock = LoopClock()
        begin = clock.monotonic()
        await asyncio.sleep(3600)
        return clock.monotonic() - begin

    started = time.monotonic()
    assert run_simulated(main()) == pytest.approx(3600)
    assert time.monotonic() - started < 1


@simulated
async def test_timers_fire_in_order_of_their_deadlines():
    """P3."""
    order = []

    async def wait(seconds):
        await asyncio.sleep(seconds)
        order.append(seconds)

    async with TaskScope() as scope:
        for seconds in (5, 0.1, 60, 2):
            scope.spawn(wait(seconds), name=str(seconds))
    assert order == [0.1, 2, 5, 60]


@simulated
async def test_a_timeout_cuts_a_wait_in_simulated_time():
    """P3."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.sleep(100)
    assert asyncio.get_running_loop().time() == pytest.approx(1010)


@simulated
async def test_threads_are_waited_for_when_no_timer_is_left():
    """P3."""
    assert await asyncio.to_thread(lambda: 7) == 7


def test_waiting_for_ever_is_reported_instead_of_hanging(monkeypatch):
    """P3."""
    monkeypatch.setattr("runtime.testing.simloop.OUTSIDE_WAIT", 0.05)

    async def main():
        await asyncio.Event().wait()

    with pytest.raises(SimulationStalled, match="wait for ever"):
        run_simulated(main())


def test_a_task_left_running_fails_the_run():
    """Style §8."""
    kept = []

    async def main():
        scope = TaskScope()
        await scope.__aenter__()
        kept.append(scope.spawn(asyncio.sleep(100), name="forgotten"))

    with pytest.raises(TasksLeaked, match="forgotten"):
        run_simulated(main())
    assert kept[0].cancelled()


def test_an_error_in_the_run_comes_out():
    """P3."""

    async def main():
        raise KeyError("inside")

    with pytest.raises(KeyError):
        run_simulated(main())


def test_a_sim_clock_stands_still_until_it_is_moved():
    """P3."""
    clock: Clock = SimClock(start=5)
    before = clock.utcnow()
    assert clock.monotonic() == 5
    clock.advance(2.5)
    assert clock.monotonic() == 7.5
    assert (clock.utcnow() - before).total_seconds() == 2.5
    with pytest.raises(ValueError, match="never goes back"):
        clock.advance(-1)


def test_the_wall_clock_jumps_without_the_monotonic_one():
    """L2, RT34."""
    clock = SimClock(start=5)
    before = clock.utcnow()
    clock.jump_wall_clock(-3600)
    assert clock.monotonic() == 5
    assert (clock.utcnow() - before).total_seconds() == -3600


@simulated
async def test_a_sleeper_wakes_when_the_sim_clock_passes_its_time():
    """P3."""
    clock = SimClock()
    woken = []

    async def sleeper(seconds):
        await clock.sleep(seconds)
        woken.append(seconds)

    async with TaskScope() as scope:
        for seconds in (3, 1, 0):
            scope.spawn(sleeper(seconds), name="sleeper")
        cancelled = scope.spawn(sleeper(2), name="cancelled")
        await asyncio.sleep(0.1)
        assert woken == [0]
        cancelled.cancel()
        clock.advance(1)
        await asyncio.sleep(0.1)
        assert woken == [0, 1]
        clock.advance(10)
    assert woken == [0, 1, 3]
