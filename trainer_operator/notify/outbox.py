"""The outbox in a Trainer's status: what is still to be sent, and what was told when (NT3). Pure.

A trigger has one message at least every `FLOOR` seconds at most. What happens sooner waits, and what happens again
while it waits becomes one message with it, which says how many it stands for: nothing is left out, nothing floods.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from runtime.clock import format_microtime, parse_time
from trainer_operator.notify.notice import Notice, try_read
from trainer_operator.notify.triggers import Happening, Severity, Trigger

FLOOR = 300.0
"""Least seconds between two messages of one trigger."""
MOST = 32
"""So many messages of one Trainer wait at most; the least severe and oldest give way."""
MOST_TOLD = 64


class Outbox:
    """The outbox while a decision is being made."""

    def __init__(self, outbox: Iterable[str], told: Iterable[str]) -> None:
        self._notices = {notice.slot: notice for line in outbox if (notice := try_read(line)) is not None}
        self._told = dict(pair for line in told if (pair := _read_told(line)) is not None)
        self.crowded_out: list[Notice] = []
        """Messages that found no room."""

    def settle(self, uid: str, settled: Mapping[str, str]) -> list[tuple[Notice, str]]:
        """Take out what is done with; return what was given up, and why."""
        given_up = []
        for notice in tuple(self._notices.values()):
            why = settled.get(notice.key(uid))
            if why is not None:
                del self._notices[notice.slot]
                if why:
                    given_up.append((notice, why))
        return given_up

    def keep_services(self, names: frozenset[str]) -> None:
        """Take out what goes to services that no longer exist."""
        for notice in tuple(self._notices.values()):
            if notice.service not in names:
                del self._notices[notice.slot]

    def keep_subjects(self, trigger: Trigger, names: Iterable[str]) -> None:
        """Forget what was told of things that are no more."""
        kept = {_subject(trigger, name) for name in names}
        start = _subject(trigger, "")
        self._told = {
            what: at for what, at in self._told.items() if not what.startswith(start) or what in kept
        }

    def add(self, happening: Happening, routes: Mapping[str, Severity], now: datetime) -> None:
        """Put in one message for each service that hears of this."""
        trigger = happening.trigger
        if happening.subject:
            known = _subject(trigger, happening.subject)
            if known in self._told or len(self._told) >= MOST_TOLD:
                return
            self._told[known] = now
        services = [service for service, least in routes.items() if trigger.severity >= least]
        if not services:
            return
        due = self._told.get(trigger)
        if due is None or due <= now:
            self._told[trigger] = max(now, due + timedelta(seconds=FLOOR)) if due is not None else now
        for service in services:
            old = self._notices.pop((trigger, service), None)
            count = old.count + 1 if old is not None else 1
            text = happening.text
            self._notices[trigger, service] = Notice(trigger, service, now, count, happening.transition, text)
        while len(self._notices) > MOST:
            least = min(self._notices.values(), key=lambda each: (each.trigger.severity, each.at))
            self.crowded_out.append(self._notices.pop(least.slot))

    def lines(self) -> tuple[list[str], list[str]]:
        """Return what the status holds: the messages, and what was told when."""
        told = [f"{what} {format_microtime(at)}" for what, at in self._told.items()]
        return [notice.line() for notice in self._notices.values()], told


def due_times(outbox: Iterable[str], told: Iterable[str]) -> list[tuple[Notice, datetime]]:
    """Return the messages of a stored outbox and when each may be sent."""
    known = dict(pair for line in told if (pair := _read_told(line)) is not None)
    notices = (notice for line in outbox if (notice := try_read(line)) is not None)
    return [(notice, known.get(notice.trigger, notice.at)) for notice in notices]


def _subject(trigger: Trigger, name: str) -> str:
    return f"{trigger}:{name}"


def _read_told(line: str) -> tuple[str, datetime] | None:
    what, _, at = line.rpartition(" ")
    try:
        return (what, parse_time(at)) if what else None
    except ValueError:
        return None
