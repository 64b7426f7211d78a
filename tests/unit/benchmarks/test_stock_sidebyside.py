"""Works that wait run beside each other, begin alone, and end together when the run is interrupted."""

import asyncio

import pytest

from benchmarks.stock.sidebyside import side_by_side


class Works:
    """Works whose starts and waits end when the test says so; what happens is written down."""

    def __init__(self):
        self.told = []
        self.started, self.waited = {}, {}

    def work(self, name):
        self.started[name], self.waited[name] = asyncio.Event(), asyncio.Event()

        async def run(only_waits):
            self.told.append(f"{name} begins")
            try:
                await self.started[name].wait()
                only_waits()
                only_waits()
                await self.waited[name].wait()
            finally:
                self.told.append(f"{name} ends")

        return run


async def passed():
    """Let every task go on as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_next_begins_when_the_one_before_only_waits():
    works = Works()
    async with asyncio.TaskGroup() as group:
        group.create_task(side_by_side([works.work(name) for name in "abc"], at_most=6))
        await passed()
        assert works.told == ["a begins"]
        works.started["a"].set()
        await passed()
        assert works.told == ["a begins", "b begins"]
        works.waited["a"].set()
        await passed()
        assert works.told == ["a begins", "b begins", "a ends"]
        for name in "bc":
            works.started[name].set()
            works.waited[name].set()
    assert works.told[3:] in (["b ends", "c begins", "c ends"], ["c begins", "b ends", "c ends"])


async def test_one_that_ends_before_it_waits_lets_the_next_in():
    begun = []

    async def short(name, _):
        begun.append(name)

    await side_by_side([lambda _: short("a", _), lambda _: short("b", _)], at_most=6)
    assert begun == ["a", "b"]


async def test_no_more_than_so_many_run_at_once():
    works = Works()
    async with asyncio.TaskGroup() as group:
        group.create_task(side_by_side([works.work(name) for name in "abc"], at_most=2))
        for name in "abc":
            works.started[name].set()
        await passed()
        assert works.told == ["a begins", "b begins"]
        works.waited["a"].set()
        await passed()
        assert works.told == ["a begins", "b begins", "a ends", "c begins"]
        works.waited["b"].set()
        works.waited["c"].set()


async def test_an_interruption_ends_all_that_run_and_begins_no_other():
    works = Works()
    works_of_all = [works.work(name) for name in "abc"]
    works.started["a"].set()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(side_by_side(works_of_all, at_most=6))
        await passed()
        assert works.told == ["a begins", "b begins"]
        running.cancel()
    assert running.cancelled()
    assert works.told[:2] == ["a begins", "b begins"]
    assert sorted(works.told[2:]) == ["a ends", "b ends"]


async def test_a_failure_ends_the_others_and_is_not_lost():
    works = Works()

    async def failing(_):
        raise OSError("the disk is full")

    works_of_all = [works.work("a"), failing]
    works.started["a"].set()
    with pytest.raises(ExceptionGroup) as found:
        await side_by_side(works_of_all, at_most=6)
    assert found.group_contains(OSError, match="the disk is full")
    assert works.told == ["a begins", "a ends"]
