"""The only spawner."""

import asyncio

import pytest

from runtime.tasks import TaskBag, TaskScope, cancel_and_wait, run_all
from runtime.testing.simloop import simulated


@simulated
async def test_a_scope_ends_no_earlier_than_its_tasks():
    """P1."""
    done = []

    async def work(seconds):
        await asyncio.sleep(seconds)
        done.append(seconds)

    async with TaskScope() as scope:
        scope.spawn(work(2), name="slow")
        scope.spawn(work(1), name="quick")
        assert len(scope) == 2
    assert done == [1, 2]


@simulated
async def test_a_failing_task_cancels_its_siblings_and_fails_the_scope():
    """P1, PY5."""
    ended = []

    async def forever():
        try:
            await asyncio.sleep(1e9)
        finally:
            ended.append("sibling")

    async def fail():
        await asyncio.sleep(1)
        raise LookupError("gone")

    async def both():
        async with TaskScope() as scope:
            scope.spawn(forever(), name="sibling")
            scope.spawn(fail(), name="failing")

    with pytest.raises(ExceptionGroup) as failure:
        await both()
    assert failure.group_contains(LookupError)
    assert ended == ["sibling"]


@simulated
async def test_cancelling_a_scope_raises_nothing_for_it():
    """P1."""
    async with TaskScope() as scope:
        task = scope.spawn(asyncio.sleep(1e9), name="sleeper")
        await asyncio.sleep(0)
        scope.cancel()
    assert task.cancelled()


@simulated
async def test_results_come_in_the_order_of_the_coroutines():
    """P1."""

    async def after(seconds):
        await asyncio.sleep(seconds)
        return seconds

    assert await run_all(after(3), after(1), after(2)) == [3, 1, 2]


@simulated
async def test_cancel_and_wait_leaves_nothing_running_even_if_cancelled_itself():
    """PY4, RT39."""
    ended = []

    async def stubborn():
        try:
            await asyncio.sleep(1e9)
        finally:
            await asyncio.sleep(5)
            ended.append("stubborn")

    async with TaskScope() as scope:
        task = scope.spawn(stubborn(), name="stubborn")
        await asyncio.sleep(0)
        waiter = scope.spawn(cancel_and_wait(task), name="waiter")
        await asyncio.sleep(1)
        waiter.cancel()
        await asyncio.sleep(1)
        assert not waiter.done()
    assert ended == ["stubborn"]
    assert waiter.cancelled()


@simulated
async def test_cancel_and_wait_raises_a_failure_that_is_no_cancel():
    """PY4."""

    async def breaks():
        try:
            await asyncio.sleep(1e9)
        finally:
            raise LookupError("in the clean-up")

    async def stop_it():
        async with TaskScope() as scope:
            task = scope.spawn(breaks(), name="breaks")
            await asyncio.sleep(0)
            with pytest.raises(LookupError):
                await cancel_and_wait(task)

    with pytest.raises(ExceptionGroup):
        await stop_it()


async def test_a_bag_ends_all_its_tasks_when_it_is_closed():
    """P1."""
    bag, ended = TaskBag(), []

    async def forever(name):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    bag.spawn(forever("a"), name="a")
    bag.spawn(forever("b"), name="b")
    await asyncio.sleep(0)
    await bag.close()
    assert (sorted(ended), len(bag)) == (["a", "b"], 0)


async def test_a_failure_in_a_bag_is_told_and_takes_nothing_with_it():
    """P1, PY5."""
    told, bag = [], TaskBag()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))

    async def fail():
        raise LookupError("gone")

    other = bag.spawn(asyncio.Event().wait(), name="other")
    bag.spawn(fail(), name="failing")
    while not told:
        await asyncio.sleep(0)
    assert isinstance(told[0]["exception"], LookupError)
    assert not other.done()
    await bag.close()
