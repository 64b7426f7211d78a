"""Forgives agents the silence in which the operator itself could not listen (TX5).

A process that was stopped, or whose event loop was busy, finds beats waiting in its sockets. Without this it would
judge the ages of the records first and declare everybody lost.
"""

from runtime.clock import Clock
from trainer_operator.topology.members import Members

PERIOD = 0.5
"""Seconds between two looks."""


class Listening:
    """Looks at the clock twice a second, and moves all records forward by as much as it came too late."""

    def __init__(self, members: Members, *, clock: Clock) -> None:
        self._members = members
        self._clock = clock

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            before = self._clock.monotonic()
            await self._clock.sleep(PERIOD)
            late = self._clock.monotonic() - before - PERIOD
            if late > self._members.heartbeat / 2:
                self._members.forgive(late)
