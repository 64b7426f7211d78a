"""Several calls to the store at a time; its answers, not our processor, are what takes the time (FZ3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable, List, TypeVar

WIDTH = 4
Item = TypeVar("Item")
Answer = TypeVar("Answer")


def each(function: Callable[[Item], Answer], items: Iterable[Item]) -> List[Answer]:
    """Call the function for every item, WIDTH at a time, and return the answers in order.

    Raises: what the first failed call, in order, raised; the others have ended by then.
    """
    listed = list(items)
    if len(listed) < 2:
        return [function(item) for item in listed]
    with ThreadPoolExecutor(max_workers=WIDTH, thread_name_prefix="store") as pool:
        return list(pool.map(function, listed))
