"""Several calls to the store at a time; its answers, not our processor, are what takes the time (FZ3)."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Callable, Iterable, List, TypeVar

WIDTH = 4
"""For pieces of data: so many of 16 MiB are in memory at a time."""
RECORD_WIDTH = 32
"""For small records, of which a checkpoint of 1,024 shards has 2,048: at 20 ms each that is 1.3 s (KT6)."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


def each(function: Callable[[Item], Answer], items: Iterable[Item], *, width: int = WIDTH) -> List[Answer]:
    """Call the function for every item, `width` at a time, and return the answers in order.

    Guarantees: an item is taken only when a call of those before it has ended or was never begun, so that what is made
    while it is asked for is in memory `width` + 1 times at most; after a failure no more are taken.
    Raises: what the first failed call, in order, raised; the others have ended by then.
    """
    source = iter(items)
    first = list(islice(source, 2))
    if len(first) < 2:
        return [function(item) for item in first]
    free, failed = threading.Semaphore(width), threading.Event()

    def call(item: Item) -> Answer:
        try:
            return function(item)
        except BaseException:
            failed.set()
            raise
        finally:
            free.release()

    calls: "List[Future[Answer]]" = []
    with ThreadPoolExecutor(max_workers=width, thread_name_prefix="store") as pool:
        for item in chain(first, source):
            free.acquire()
            if failed.is_set():
                break
            calls.append(pool.submit(call, item))
    return [done.result() for done in calls]
