"""Several calls to the store at a time; its answers, not our processor, are what takes the time (FZ3)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable, List, TypeVar

WIDTH = 4
"""For pieces of data: so many of 16 MiB are in memory at a time."""
RECORD_WIDTH = 32
"""For small records, of which a checkpoint of 1,024 shards has 2,048: at 20 ms each that is 1.3 s (KT6)."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


def each(function: Callable[[Item], Answer], items: Iterable[Item], *, width: int = WIDTH) -> List[Answer]:
    """Call the function for every item, `width` at a time, and return the answers in order.

    Raises: what the first failed call, in order, raised; the others have ended by then.
    """
    listed = list(items)
    if len(listed) < 2:
        return [function(item) for item in listed]
    with ThreadPoolExecutor(max_workers=width, thread_name_prefix="store") as pool:
        return list(pool.map(function, listed))
