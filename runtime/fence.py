"""The fence: a token that says until when this process may write (L6, L9).

A leader that stalls must not write after another process has taken over. The elector extends the fence after
each renewal; the client asks the fence before each mutating request and caps that request where a rival may write
at the earliest: at ``valid_until`` plus the grace that the lease's terms leave. A process that is stopped between
the check and the send is ended by the kernel at that same moment (`leaderelection.deadline`). The fence lives below
the client so that the client can check it without knowing of elections.

A fence goes through three states and never back::

    shut (never opened) --open--> open (valid_until, extended by later open) --close or expiry--> closed for good

There is no re-election in one process, so closed is final. That an expired fence counts as closed, even if a late
renewal would have succeeded, keeps the answer the same for whoever asked first.

All methods are safe to call from any thread: the elector runs in its own.
"""

from __future__ import annotations

import threading
from typing import Protocol

from runtime.clock import Clock
from runtime.errors import RuntimeFault


class LeadershipLost(RuntimeFault):
    """A write was refused because this process is not, or no longer, the leader."""


class WriteFence(Protocol):
    """What the client needs to know of a fence."""

    def check(self) -> None:
        """Return if writing is allowed.

        Raises: LeadershipLost otherwise.
        """

    def remaining(self, now: float) -> float:
        """Return for how many seconds from `now` writing stays allowed; 0.0 if it is not."""

    def time_to_end(self, now: float) -> float:
        """Return within how many seconds from `now` a write that begins now must have ended (L6)."""


class Fence:
    """A write permission with an end, shared between the elector's thread and all clients.

    Guarantees: once it has refused anybody it refuses everybody, for good, whatever arrives late (L6, L9).
    Assumptions: the clock is monotonic and goes on while the process is stopped.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._valid_until: float | None = None
        self._grace = 0.0
        self._closed_because: str | None = None

    def open(self, valid_until: float, *, grace: float = 0.0) -> bool:
        """Allow writing until `valid_until` (monotonic); extend if already open.

        `grace` is for how many seconds after that no rival can write yet, so that a write begun in time may end.

        Guarantees: never shortens the permission and never re-opens a closed or expired fence.
        Returns False when the fence is closed for good, which the caller must treat as lost leadership.
        """
        with self._lock:
            if self._shut(self._clock.monotonic()):
                return False
            if self._valid_until is None or valid_until > self._valid_until:
                self._valid_until = valid_until
                self._grace = max(0.0, grace)
            return True

    def close(self, reason: str = "the fence was closed") -> None:
        """Forbid writing for good. Idempotent; the first reason is kept."""
        with self._lock:
            if self._closed_because is None:
                self._closed_because = reason

    def check(self) -> None:
        """Return if writing is allowed.

        Raises: LeadershipLost when the fence was never opened, has expired or was closed.
        """
        with self._lock:
            if self._shut(self._clock.monotonic()):
                raise LeadershipLost(f"write refused, this process does not lead: {self._closed_because}")
            if self._valid_until is None:
                raise LeadershipLost(
                    "write refused, this process does not lead: it has not acquired the lease"
                )

    def remaining(self, now: float) -> float:
        """Return for how many seconds from `now` writing stays allowed; 0.0 if it is not."""
        with self._lock:
            if self._valid_until is None or self._closed_because is not None:
                return 0.0
            return max(0.0, self._valid_until - now)

    def time_to_end(self, now: float) -> float:
        """Return within how many seconds from `now` a write that begins now must have ended (L6)."""
        with self._lock:
            grace = self._grace
        return self.remaining(now) + grace

    @property
    def is_open(self) -> bool:
        """Whether a write would be allowed now."""
        with self._lock:
            return not self._shut(self._clock.monotonic()) and self._valid_until is not None

    def _shut(self, now: float) -> bool:
        """Latch expiry, then tell whether the fence is closed for good. The caller holds the lock."""
        if self._closed_because is None and self._valid_until is not None and now >= self._valid_until:
            self._closed_because = "the lease was not renewed in time"
        return self._closed_because is not None


class AlwaysOpen:
    """The fence of a process that runs without leader election."""

    def check(self) -> None:
        """Return: writing is always allowed."""

    def remaining(self, now: float) -> float:
        """Return infinity: writing never ends, whatever `now` is."""
        del now
        return float("inf")

    def time_to_end(self, now: float) -> float:
        """Return infinity: only the client's own limits hold."""
        del now
        return float("inf")
