"""A signal cancels the work and waits for what it has to put in order."""

import asyncio
import os
import signal

import pytest

from benchmarks.stock.interruption import finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_the_work_after_it_has_put_things_in_order(number):
    order = []

    async def work():
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            order.append("in order")

    assert not finished(work())
    assert order == ["in order"]


def test_work_that_ends_by_itself_is_finished_and_its_error_is_its_own():
    async def work(error):
        if error:
            raise error

    assert finished(work(None))
    with pytest.raises(ValueError, match="its own"):
        finished(work(ValueError("its own")))
    with pytest.raises(asyncio.CancelledError):
        finished(work(asyncio.CancelledError()))
