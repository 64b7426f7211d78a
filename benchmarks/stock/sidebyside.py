"""Works that mostly wait run side by side, but each begins alone.

A work is let in when the one before says that it only waits from now on, or has ended. So no start disturbs another,
nor what is being done before the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from runtime.tasks import TaskScope

__all__ = ["Work", "side_by_side"]

Work = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]
"""Gets what it calls once it only waits; to call it twice does nothing."""


async def side_by_side(works: Sequence[Work], *, at_most: int) -> None:
    """Run these works, in order, no more than so many at once.

    Guarantees: none runs any more on return.
    Cancellation: passed on to each, and waited for.
    Raises: ExceptionGroup when one fails; the others are cancelled first.
    """
    places, entrance = asyncio.Semaphore(at_most), _Entrance()

    async def done(work: Work) -> None:
        async with places, entrance.passed() as let_in:
            await work(let_in)

    async with TaskScope() as scope:
        for number, work in enumerate(works):
            scope.spawn(done(work), name=f"side by side {number}")


class _Entrance:
    """One at a time, in order."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[Callable[[], None]]:
        """Wait for one's turn, and get what lets in the next before the block ends."""
        await self._lock.acquire()
        is_open = False

        def let_in() -> None:
            nonlocal is_open
            if not is_open:
                is_open = True
                self._lock.release()

        try:
            yield let_in
        finally:
            let_in()
