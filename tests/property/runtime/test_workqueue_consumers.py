"""The queue under many consumers and producers that come, go and are cancelled, in simulated time."""

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.clock import LoopClock
from runtime.tasks import TaskScope
from runtime.testing.simloop import run_simulated
from runtime.workqueue import QueueShutDown, WorkQueue


@given(seed=st.integers(0, 2**32), consumers=st.integers(1, 5), writes=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_the_last_state_is_always_reconciled_whatever_the_bursts(seed, consumers, writes):
    """Q1, RT19, RT24."""
    rng = Random(seed)

    async def main():
        clock = LoopClock()
        queue = WorkQueue(clock=clock)
        truth, seen, running = {}, {}, set()

        async def consume():
            while True:
                try:
                    key, priority = await queue.get()
                except QueueShutDown:
                    return
                assert key not in running
                running.add(key)
                state = truth[key]
                await clock.sleep(rng.choice([0, 0.01, 0.5]))  # a slow API: the state may change meanwhile
                seen[key] = state
                running.discard(key)
                if rng.random() < 0.2:
                    queue.add_rate_limited(key, priority)
                queue.done(key)

        async def produce():
            for number in range(writes):
                key = rng.choice("abc")
                truth[key] = number
                queue.add_after(key, rng.choice([0, 0, 0.02]), rng.choice([-100, 0, 5]))
                await clock.sleep(rng.choice([0, 0.001, 0.05]))

        async with TaskScope() as scope:
            for number in range(consumers):
                scope.spawn(consume(), name=f"consumer {number}")
            await produce()
            await clock.sleep(120)
            queue.shutdown()
        assert seen == truth

    run_simulated(main())


@given(seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_shutdown_ends_all_consumers_while_some_are_cancelled_during_the_hand_over(seed):
    """Q6, RT22, RT39."""
    rng = Random(seed)

    async def main():
        clock = LoopClock()
        queue = WorkQueue(clock=clock)
        done = []

        async def consume():
            while True:
                try:
                    key, _ = await queue.get()
                except QueueShutDown:
                    return
                try:
                    await clock.sleep(rng.choice([0, 0.1]))
                    done.append(key)
                finally:
                    queue.done(key)

        async with TaskScope() as scope:
            tasks = [scope.spawn(consume(), name=f"consumer {number}") for number in range(6)]
            added = []
            for number in range(rng.randint(1, 20)):
                queue.add(number)
                added.append(number)
                if rng.random() < 0.2 and len(tasks) > 1:
                    # in the same tick as the hand-over: the wake-up must go to somebody else
                    tasks.pop(rng.randrange(len(tasks))).cancel()
                await asyncio.sleep(rng.choice([0, 0.01]))
            async with asyncio.timeout(60):
                await queue.shutdown_with_drain()
        assert len(queue) == 0
        cancelled_in_work = len(added) - len(done)
        assert 0 <= cancelled_in_work <= 5
        assert len(set(done)) == len(done)

    run_simulated(main())


def test_ten_thousand_keys_requeued_at_once_all_progress_and_no_producer_waits():
    """Q7, RT23."""

    async def main():
        clock = LoopClock()
        queue = WorkQueue(clock=clock)
        rounds = dict.fromkeys(range(10_000), 0)
        for key in rounds:
            for _ in range(10):  # mapped from ten children
                queue.add(key)
        assert len(queue) == 10_000
        for _ in range(30_000):
            key, _ = await queue.get()
            rounds[key] += 1
            queue.add(key)
            queue.done(key)
        assert set(rounds.values()) == {3}

    run_simulated(main())
