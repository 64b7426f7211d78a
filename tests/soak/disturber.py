"""Random faults, one after the other and some at once, all drawn from one seed."""

import asyncio
import collections

from runtime.testing.faults import (
    Cut,
    Delay,
    EndAtOnce,
    Expire,
    Expired,
    HideBookmarks,
    Refuse,
    Stall,
    Twice,
)

WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Disturber:
    """Lets a proxy fail in every way it knows."""

    def __init__(self, proxy, *, rng):
        self._proxy = proxy
        self._rng = rng
        self.done = collections.Counter()
        self._menu = [
            self.cut,
            self.cut_within_a_line,
            self.end,
            self.silence,
            self.hold,
            self.vanish,
            self.break_connections,
            self.throttle,
            self.fail,
            self.fail_watches,
            self.refuse_credentials,
            self.expire,
            self.slow_down,
            self.stall_writes,
            self.lose_answers,
            self.duplicate_writes,
            self.hide_bookmarks,
            self.end_at_once,
        ]

    async def run(self):
        """Disturb until cancelled; heal what lasts now and then."""
        while True:
            fault = self._rng.choice(self._menu)
            self.done[fault.__name__] += 1
            await fault()
            await asyncio.sleep(self._rng.uniform(0.0, 1.5))
            if self._rng.random() < 0.3:
                self._proxy.heal()

    async def heal(self):
        """Undo what can be undone; connections that were broken or silenced stay so."""
        await self._proxy.come_back()
        self._proxy.heal()

    async def _for_a_while(self, fault, *verbs):
        rule = self._proxy.inject(fault, *verbs)
        await asyncio.sleep(self._rng.uniform(0.2, 2.0))
        rule.withdraw()

    def _some(self, fault, *verbs):
        self._proxy.inject(fault, *verbs, times=self._rng.randint(1, 5))

    async def cut(self):
        self._proxy.cut_watches()

    async def cut_within_a_line(self):
        self._proxy.cut_watches(within_line=True)

    async def end(self):
        self._proxy.end_watches()

    async def silence(self):
        self._proxy.silence_watches(marked_only=True)

    async def hold(self):
        hold = self._proxy.hold_watches()
        await asyncio.sleep(self._rng.uniform(0.2, 2.0))
        hold.release()

    async def vanish(self):
        await self._proxy.go_away()
        await asyncio.sleep(self._rng.uniform(0.1, 2.0))
        await self._proxy.come_back()

    async def break_connections(self):
        self._proxy.break_connections()

    async def throttle(self):
        await self._for_a_while(Refuse(429, "TooManyRequests", retry_after=self._rng.randint(1, 5)))

    async def fail(self):
        await self._for_a_while(Refuse(self._rng.choice([500, 503, 504]), "InternalError"))

    async def fail_watches(self):
        await self._for_a_while(Refuse(self._rng.choice([403, 429, 500]), ""), "WATCH")

    async def refuse_credentials(self):
        self._some(Refuse(401, "Unauthorized"), "WATCH", "LIST")

    async def expire(self):
        self._some(Expire(self._rng.choice(list(Expired))), "WATCH")
        self._proxy.cut_watches()

    async def slow_down(self):
        await self._for_a_while(Delay(self._rng.uniform(0.05, 0.5)))

    async def stall_writes(self):
        self._some(Stall(reaches_server=self._rng.random() < 0.5), *WRITES)

    async def lose_answers(self):
        self._some(Cut(reaches_server=self._rng.random() < 0.5), *WRITES)

    async def duplicate_writes(self):
        self._some(Twice(), *WRITES)

    async def hide_bookmarks(self):
        self._some(HideBookmarks(), "WATCH")
        self._proxy.cut_watches()

    async def end_at_once(self):
        await self._for_a_while(EndAtOnce(), "WATCH")
