"""A lock between processes that ends with its holder, however that came about."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_POLL = 0.01


class AlreadyLocked(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, *, waiting: Callable[[], None] | None = None, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of this file.

    `waiting` is called once when another process holds it, and then the lock is waited for; without `waiting` it is
    tried for `patience` seconds, which outlasts those who only look whether it is held. The file stays: removing it would let two processes lock two files of one name.

    Raises: AlreadyLocked when there is no `waiting` and another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            elif not _try_for(patience, descriptor):
                raise AlreadyLocked(str(path)) from None
        yield
    finally:
        os.close(descriptor)


def _try_for(seconds: float, descriptor: int) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False
