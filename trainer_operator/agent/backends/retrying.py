"""Patience with a store, in one place: passing failures are repeated, and a create is told apart from its own echo (DE2)."""

from __future__ import annotations

import random
from typing import Callable, Sequence, TypeVar

from trainer_operator.agent.backends.errors import Conflict, Exists, NotFound, Passing, TooLarge
from trainer_operator.agent.backends.protocol import Content, Page, Store

TRIES = 7
PATIENCE = 45.0
"""Seconds after which no further try is begun: a start of a process may wait for the answer."""
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
"""Seven tries with these pauses take at most 11 s beside the store's own time."""
Answer = TypeVar("Answer")


class RetryingStore:
    """A store whose passing failures are repeated with growing, random pauses.

    Guarantees: `create` returns only when the key holds exactly this content, and raises Exists only when it holds
    another one: an earlier try of ours that had succeeded is our success, whatever its answer was.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], float],
        pause: Callable[[float], object],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._clock, self._pause = clock, pause
        self._rng = rng

    @property
    def address(self) -> str:
        """Where the store is."""
        return self._store.address

    def create(self, key: str, data: Content) -> None:
        """Create, or find the same content."""
        self._patiently(lambda: self._create(key, data))

    def put(self, key: str, data: bytes) -> None:
        """Set or replace a content."""
        self._patiently(lambda: self._store.put(key, data))

    def get(self, key: str, *, limit: int) -> bytes:
        """Return a content."""
        return self._patiently(lambda: self._store.get(key, limit=limit))

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Return a part of a content."""
        return self._patiently(lambda: self._store.get_range(key, start=start, length=length))

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """Return a page of keys."""
        return self._patiently(lambda: self._store.list(prefix, cursor=cursor, shallow=shallow))

    def delete_many(self, keys: Sequence[str]) -> int:
        """Delete keys."""
        return self._patiently(lambda: self._store.delete_many(keys))

    def sweep(self, prefix: str) -> None:
        """Remove what is no object."""
        self._patiently(lambda: self._store.sweep(prefix))

    def _create(self, key: str, data: Content) -> None:
        try:
            self._store.create(key, data)
        except Exists:
            try:
                same = self._store.get(key, limit=len(data)) == data
            except TooLarge:
                same = False
            except NotFound as error:  # "exists" of what is not there is a conflict that nobody won (FC09)
                raise Conflict("%s was said to exist, but does not; two writers met" % key) from error
            if not same:
                raise

    def _patiently(self, call: Callable[[], Answer]) -> Answer:
        pause, began = _FIRST_PAUSE, self._clock()
        for _ in range(TRIES - 1):
            try:
                return call()
            except Passing:
                if self._clock() - began >= PATIENCE:
                    raise
                self._pause(pause * self._rng.uniform(0.5, 1.0))
                pause = min(_LONGEST_PAUSE, pause * 2)
        return call()
