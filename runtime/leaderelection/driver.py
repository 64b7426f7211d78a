"""Carries out what the election's state machine decides (L5, L7).

One thing at a time: the driver performs the last action that `step` returned, feeds the outcome back, and so on to
the end. Each attempt on the API has a timeout of its own, and a failure of whatever kind is just that: failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from runtime.backoff import Rng
from runtime.client.errors import AlreadyExists, Conflict, NotFound
from runtime.clock import Clock
from runtime.errors import RuntimeFault
from runtime.fence import Fence
from runtime.leaderelection.deadline import ProcessDeadline
from runtime.leaderelection.record import Lease
from runtime.leaderelection.step import (
    JITTER,
    Action,
    Candidate,
    Ended,
    Event,
    Extend,
    Failed,
    Follow,
    Found,
    Leader,
    Read,
    Refused,
    Releasing,
    Shut,
    Sleep,
    State,
    Stopped,
    Terms,
    Woken,
    Write,
    Written,
    step,
)
from runtime.logs import get_logger
from runtime.metrics import Metrics
from runtime.tasks import TaskScope

__all__ = ["ATTEMPT_TIMEOUT", "ElectionDriver", "LeaseStore"]

ATTEMPT_TIMEOUT = 5.0
"""Seconds that one read or write of the lease may take (L5)."""


class LeaseStore(Protocol):
    """Where the lease lives."""

    async def read(self) -> Lease | None:
        """Return the lease, or None if there is none.

        Raises: RuntimeFault when it could not be read.
        """

    async def write(self, lease: Lease) -> Lease:
        """Create the lease if it has no version, else update it at its version; return it as stored.

        Raises: Conflict, AlreadyExists when another party was faster; RuntimeFault when it could not be written.
        """


class ElectionDriver:
    """Runs one candidacy from its begin to its end, on the running loop.

    Guarantees: the fence is shut when `run` returns or is cancelled.
    """

    def __init__(
        self,
        terms: Terms,
        store: LeaseStore,
        *,
        name: str,
        fence: Fence,
        clock: Clock,
        rng: Rng,
        metrics: Metrics | None = None,
        on_acquired: Callable[[], None] = lambda: None,
        deadline: ProcessDeadline | None = None,
    ) -> None:
        self._terms = terms
        self._store = store
        self._name = name
        self._fence = fence
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._on_acquired = on_acquired
        self._deadline = deadline
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._is_announced = False
        self._log = get_logger("runtime.leaderelection", lease=name, identity=terms.identity)
        self._state: State = Candidate()
        self.renewed_at: float | None = None
        """When the last successful renewal was sent; None before the first."""
        if metrics is not None:
            metrics.declare_election(name)

    @property
    def is_leader(self) -> bool:
        """Whether the state machine leads; the fence may know better."""
        return isinstance(self._state, Leader)

    def stop(self) -> None:
        """Give the lease back and end; call it after everything the fence guards has ended (L7)."""
        self._stop.set()

    def look_again(self) -> None:
        """Read the lease now instead of after the pause, if a candidate; a hint that may come at any time (L7)."""
        self._hurry.set()

    async def run(self) -> Ended:
        """Stand for election, lead, and return when stopped or when leadership is lost.

        Cancellation: ends at once without giving the lease back, as a crash would.
        """
        event: Event = Woken()
        try:
            while True:
                before = self._state
                self._state, actions = step(self._terms, before, event, now=self._clock.monotonic())
                self._tell(before, self._state)
                event = await self._perform(actions)
                if isinstance(self._state, Ended):
                    self._log.info("election ended", reason=self._state.reason, lost=self._state.lost)
                    return self._state
        finally:
            self._fence.close("the election has ended")
            self._set_status(leading=False)

    async def _perform(self, actions: tuple[Action, ...]) -> Event:
        """Carry the actions out and return the outcome of the last, which is the one that waits."""
        outcome: Event = Woken()
        for action in actions:
            match action:
                case Extend(valid_until):
                    if self._deadline is not None:  # first, for no permission may outlast it
                        self._deadline.extend(valid_until + self._terms.in_flight_grace)
                    if not self._fence.open(valid_until, grace=self._terms.in_flight_grace):
                        return Refused()  # it expired between the step and here
                    self._announce()
                case Shut(reason):
                    self._fence.close(reason)
                case Follow(holder):
                    self._log.info("another process leads", holder=holder)
                case Sleep(seconds):
                    outcome = await self._unless_stopped(self._sleep(seconds))
                case Read():
                    outcome = await self._unless_stopped(self._attempt(self._read()))
                case Write(lease):
                    outcome = await self._unless_stopped(self._attempt(self._write(lease)))
        return outcome

    async def _sleep(self, seconds: float) -> Event:
        spread = 1.0 + (JITTER - 1.0) * self._rng.random() if seconds >= self._terms.retry_period else 1.0
        pause = min(seconds * spread, self._time_left())
        if not isinstance(self._state, Candidate):
            await self._clock.sleep(pause)
            return Woken()
        async with TaskScope() as scope:
            sleeping = scope.spawn(self._clock.sleep(pause), name="election pause")
            hurrying = scope.spawn(self._hurry.wait(), name="election hint")
            await asyncio.wait({sleeping, hurrying}, return_when=asyncio.FIRST_COMPLETED)
            scope.cancel()
        return Woken()

    async def _read(self) -> Event:
        self._hurry.clear()  # before the read: a hint that comes during it is about something newer
        try:
            return Found(await self._store.read())
        except NotFound:
            return Found(None)

    async def _write(self, lease: Lease) -> Event:
        # The time is taken before anything is sent: it bounds our permission from above (L6).
        sent_at = self._clock.monotonic()
        stored = await self._store.write(lease.stamped(self._clock.utcnow()))
        return Written(stored, sent_at)

    async def _attempt(self, request: Coroutine[Any, Any, Event]) -> Event:
        try:
            async with asyncio.timeout(min(ATTEMPT_TIMEOUT, self._time_left())):
                return await request
        except (Conflict, AlreadyExists, NotFound):
            return Failed(conflict=True)
        except (RuntimeFault, TimeoutError) as error:
            self._log.warning(
                "lease request failed, it will be tried again",
                error=str(error) or "no answer in time",
            )
            return Failed()

    def _time_left(self) -> float:
        """Return how long an action may take before a leader has to look at the clock again."""
        if isinstance(self._state, Leader):
            return max(0.0, self._state.valid_until - self._clock.monotonic())
        return float("inf")

    async def _unless_stopped(self, action: Coroutine[Any, Any, Event]) -> Event:
        """Return the action's outcome, or Stopped as soon as a stop is asked for; the action is then dropped.

        A write that was dropped may still take effect. The release reads first, and its update at the version it
        read lets only one of the two through (RT36).
        """
        if isinstance(self._state, Releasing):
            return await action
        async with TaskScope() as scope:
            acting = scope.spawn(action, name="election action")
            stopping = scope.spawn(self._stop.wait(), name="election stop")
            await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            is_stopped = stopping.done()
            scope.cancel()
        return Stopped() if is_stopped or acting.cancelled() else acting.result()

    def _tell(self, before: State, after: State) -> None:
        """Pass a change of state on to metrics, log and owner."""
        if isinstance(after, Leader):
            self.renewed_at = after.valid_until - self._terms.renew_deadline
            if after.slow and isinstance(before, Leader) and not before.slow and self._metrics is not None:
                self._metrics.leader_slowpath.labels(self._name).inc()
        if isinstance(before, Leader) and not isinstance(after, Leader):
            self._set_status(leading=False)

    def _announce(self) -> None:
        """Tell everybody, once, that the fence is open."""
        if self._is_announced:
            return
        self._is_announced = True
        self._set_status(leading=True)
        self._log.info("acquired the lease")
        self._on_acquired()

    def _set_status(self, *, leading: bool) -> None:
        if self._metrics is not None:
            self._metrics.leader_status.labels(self._name).set(1 if leading else 0)
