"""One service's queue and the task that empties it (NT3, NT4).

A destination that is away or asks for time holds up its own queue only. Messages keep their order; what cannot be
delivered within an hour of its time is given up, counted, and told on the Trainer.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.clock import Clock
from runtime.logs import get_logger
from trainer_operator.notify.counters import NotifyCounters
from trainer_operator.notify.message import Message
from trainer_operator.notify.outcome import Delivered, Later, Outcome, Refused, Send
from trainer_operator.notify.pace import Pace

CAPACITY = 1000
SEND_DEADLINE = 20.0
"""Seconds for one try."""
FIRST_BACKOFF = 2.0
LAST_BACKOFF = 60.0
GIVE_UP = 3600.0
"""Seconds after a message was due until it is given up."""
NOT_LEADING_PAUSE = 1.0
Settle = Callable[[Message, str], None]
"""Told of each message that is done with, and why it was given up, or nothing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast a service takes messages; Slack's own limit is one a second."""

    per_second: float = 1.0
    burst: int = 5


@dataclass(slots=True)
class _State:
    queue: dict[tuple[str, str, str], Message] = field(default_factory=dict)
    in_flight: Message | None = None
    failures: int = 0
    pause_until: float = 0.0


class Destination:
    """Sends to one service.

    Guarantees: `offer` never blocks; one message at a time; nothing goes out while this process does not lead.
    """

    def __init__(
        self,
        name: str,
        send: Send,
        *,
        limits: Limits,
        clock: Clock,
        counters: NotifyCounters,
        settle: Settle,
        is_leader: Callable[[], bool],
    ) -> None:
        self._name = name
        self._send = send
        self._clock = clock
        self._counters = counters
        self._settle = settle
        self._is_leader = is_leader
        self._pace = Pace(per_second=limits.per_second, burst=limits.burst, now=clock.monotonic())
        self._state = _State()
        self._news = asyncio.Event()
        self._log = get_logger("notify", service=name)

    def offer(self, message: Message) -> None:
        """Queue a message; a newer one of its slot takes its place, one that is queued already changes nothing."""
        state = self._state
        if state.in_flight is not None and state.in_flight.key == message.key:
            return
        known = state.queue.get(message.slot)
        if known is not None and known.key == message.key:
            return
        if known is None and len(state.queue) >= CAPACITY:
            self._drop(message, "queue full", f"{CAPACITY} messages wait for this service")
            return
        state.queue[message.slot] = message
        self._counters.waiting(self._name, len(state.queue))
        self._news.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            message = self._next()
            wait = self._wait(message)
            if message is None or wait > 0:
                await self._pause(wait)
                continue
            if not self._is_leader():
                await self._clock.sleep(NOT_LEADING_PAUSE)
                continue
            await self._step(message)

    def _next(self) -> Message | None:
        return min(self._state.queue.values(), key=lambda each: each.due, default=None)

    def _wait(self, message: Message | None) -> float:
        if message is None:
            return float("inf")
        now = self._clock.monotonic()
        due = (message.due - self._clock.utcnow()).total_seconds()
        return max(due, self._state.pause_until - now, self._pace.wait(now))

    async def _pause(self, seconds: float) -> None:
        """Wait for the time or for another message, whichever is first."""
        self._news.clear()
        if seconds == float("inf"):
            await self._news.wait()
            return
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _step(self, message: Message) -> None:
        state = self._state
        if (self._clock.utcnow() - message.due).total_seconds() > GIVE_UP:
            self._remove(message)
            self._drop(message, "too late", f"it could not be delivered within {GIVE_UP:.0f} s")
            return
        self._pace.take(self._clock.monotonic())
        state.in_flight = message
        try:
            outcome = await self._attempt(message)
        finally:
            state.in_flight = None
        match outcome:
            case Delivered():
                state.failures = 0
                self._remove(message)
                self._counters.sent(self._name)
                self._settle(message, "")
            case Refused(why):
                self._remove(message)
                self._drop(message, "refused", why)
            case Later(why, after):
                backoff = min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(state.failures, 8))
                state.failures += 1
                state.pause_until = self._clock.monotonic() + max(after, backoff)
                self._counters.put_off(self._name)
                self._log.warning("a message is put off", reason=why, seconds=max(after, backoff))

    async def _attempt(self, message: Message) -> Outcome:
        try:
            async with asyncio.timeout(SEND_DEADLINE):
                return await self._send(message)
        except TimeoutError:
            return Later(f"no answer within {SEND_DEADLINE:.0f} s")

    def _remove(self, message: Message) -> None:
        queued = self._state.queue.get(message.slot)
        if queued is not None and queued.key == message.key:
            del self._state.queue[message.slot]
        self._counters.waiting(self._name, len(self._state.queue))

    def _drop(self, message: Message, reason: str, why: str) -> None:
        self._counters.dropped(self._name, reason)
        self._log.warning("a message is given up", reason=why, key=message.key)
        self._settle(message, why)
