"""Waiting times that grow while things fail and start afresh after a spell of health (W10).

A :class:`Backoff` neither sleeps nor reads a clock: it is told the time and answers with a delay.
"""

import random
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Backoff", "Rng"]


class Rng(Protocol):
    """The source of chance a component was given."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


def _system_rng() -> Rng:
    return random.Random()


@dataclass(slots=True)
class Backoff:
    """Exponential delays with jitter.

    Guarantees: a delay lies in [d, d·(1+jitter)) with d = min(base·factorⁿ, cap); n returns to zero when two calls
    of :meth:`next` are more than `reset_after` seconds apart, whatever happened in between.
    """

    base: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    jitter: float = 1.0
    reset_after: float = 120.0
    rng: Rng = field(default_factory=_system_rng, repr=False)
    _delay: float = field(default=0.0, init=False, repr=False)
    _last: float | None = field(default=None, init=False, repr=False)

    def next(self, now: float) -> float:
        """Return the delay after a failure at `now`."""
        if self._last is not None and now - self._last > self.reset_after + self._delay * (1 + self.jitter):
            self.reset()
        self._last = now
        self._delay = min(self._delay * self.factor, self.cap) if self._delay else min(self.base, self.cap)
        return self._delay * (1.0 + self.jitter * self.rng.random())

    def reset(self) -> None:
        """Forget the failures so far."""
        self._delay = 0.0
        self._last = None
