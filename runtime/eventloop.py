"""Keeping an event loop responsive while much is built at once (PY1).

The garbage collector walks over objects in proportion to how many are made. While a large collection is decoded or
stored, nothing it could reclaim is made, and its walks are what others wait for.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_held"]


@contextmanager
def collector_held() -> Iterator[None]:
    """Keep the garbage collector still for a block without awaits."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
