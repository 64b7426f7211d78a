"""Patience with a hub: passing failures are repeated for as long as there is progress now and then."""

from __future__ import annotations

import random
from typing import Callable, TypeVar

from trainer_operator.agent.hub.errors import Passing

LIMIT = 120.0
"""Seconds without progress after which the container ends, and the operator decides: it counts, waits and tells."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
Answer = TypeVar("Answer")


class Patience:
    """How long one piece of work may go on failing. `clock` is monotonic; `pause` waits."""

    def __init__(
        self, *, clock: Callable[[], float], pause: Callable[[float], object], rng: random.Random
    ) -> None:
        self._clock, self._sleep, self._rng = clock, pause, rng
        self.progressed()

    def progressed(self) -> None:
        """Begin anew: something came."""
        self._since, self._pause = self._clock(), _FIRST_PAUSE

    def wait(self, error: Passing) -> None:
        """Wait before the next try.

        Raises: the error itself once nothing came for `LIMIT`.
        """
        if self._clock() - self._since >= LIMIT:
            raise error
        self._sleep(max(min(error.pause, LIMIT), self._pause * self._rng.uniform(0.5, 1.0)))
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Call until it does not fail in passing any more."""
        self.progressed()
        while True:
            try:
                return function()
            except Passing as error:
                self.wait(error)
