"""Slow start: the price of finding out that the API refuses."""

import asyncio

import pytest

from runtime.controller.slowstart import slow_start_batch
from runtime.errors import RuntimeFault
from runtime.fence import LeadershipLost
from runtime.testing.simloop import simulated


class Creator:
    def __init__(self, *, failing=(), error=RuntimeFault):
        self.failing = set(failing)
        self.error = error
        self.batches = []
        self.running = 0

    async def __call__(self, item):
        if self.running == 0:
            self.batches.append([])
        self.batches[-1].append(item)
        self.running += 1
        await asyncio.sleep(1)
        self.running -= 1
        if item in self.failing:
            raise self.error(f"item {item}")


@simulated
async def test_batches_double_until_all_is_done():
    """R7."""
    create = Creator()
    outcome = await slow_start_batch(range(20), create)
    assert [len(batch) for batch in create.batches] == [1, 2, 4, 8, 5]
    assert outcome == (20, [])


@simulated
async def test_the_first_failing_batch_is_the_last_and_what_was_skipped_shows():
    """R7."""
    create = Creator(failing=[4])
    done, errors = await slow_start_batch(range(500), create)
    assert sum(map(len, create.batches)) == 7
    assert done == 6
    assert [str(error) for error in errors] == ["item 4"]


@simulated
async def test_if_everything_is_refused_one_request_is_made():
    """R7."""
    create = Creator(failing=range(500))
    done, errors = await slow_start_batch(range(500), create)
    assert (done, len(errors), len(create.batches)) == (0, 1, 1)


@simulated
async def test_nothing_to_do_is_done():
    """R7."""
    assert await slow_start_batch([], Creator()) == (0, [])


@simulated
async def test_lost_leadership_is_raised_and_not_counted():
    """R7, L6."""
    with pytest.raises(LeadershipLost):
        await slow_start_batch([1, 2], Creator(failing=[2], error=LeadershipLost))


@simulated
async def test_a_bug_is_not_taken_for_a_refusal():
    """R7, style §7."""
    with pytest.raises(ExceptionGroup):
        await slow_start_batch([1, 2, 3], Creator(failing=[1], error=TypeError))
