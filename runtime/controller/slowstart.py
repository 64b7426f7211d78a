"""Create many things carefully: one first, then twice as many each time (R7).

If the API refuses the first Pod (a quota, a webhook), it would refuse the other 499 as well; a batch that doubles
finds that out for the price of one request, and still needs only ten rounds for a thousand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from runtime.errors import RuntimeFault
from runtime.fence import LeadershipLost
from runtime.tasks import TaskScope

__all__ = ["BatchOutcome", "slow_start_batch"]

T = TypeVar("T")


class BatchOutcome(NamedTuple):
    """What became of the items; those neither done nor failed were skipped and count as not yet tried."""

    done: int
    errors: list[RuntimeFault]


async def slow_start_batch(
    items: Sequence[T], fn: Callable[[T], Awaitable[object]], *, initial: int = 1
) -> BatchOutcome:
    """Call `fn` for each item in batches of 1, 2, 4, 8…; stop after the first batch in which one failed.

    Guarantees: a batch is finished before the next begins; items are tried in order.
    Cancellation: cancels the batch in progress and waits for it.
    Raises: LeadershipLost as soon as a batch met it; what is not a RuntimeFault is a bug and ends the batch at once.
    """
    done = 0
    position, size = 0, max(1, initial)
    errors: list[RuntimeFault] = []

    async def attempt(item: T) -> None:
        nonlocal done
        try:
            await fn(item)
            done += 1
        except RuntimeFault as error:
            errors.append(error)

    while position < len(items) and not errors:
        async with TaskScope() as scope:
            for item in items[position : position + size]:
                scope.spawn(attempt(item), name="slow start")
        position += size
        size *= 2
    for error in errors:
        if isinstance(error, LeadershipLost):
            raise error
    return BatchOutcome(done, errors)
