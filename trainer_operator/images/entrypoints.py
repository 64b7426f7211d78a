"""Entry points of images, read in the background and remembered.

A reconcile never waits for a registry: it asks, gets what is known, and is woken when there is more. What was read is
kept: for good if the image is named by its digest, for a minute if only a tag says so. A failure is tried again with
growing delays.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from runtime.clock import Clock
from runtime.objects import ObjectKey
from runtime.tasks import TaskScope
from trainer_operator.images.reference import BadReference, Reference, parse_reference
from trainer_operator.images.registry import EntryPoint, RegistryError

BELIEVED = 60.0
FIRST_RETRY = 15.0
LAST_RETRY = 300.0
LIMIT = 1024
TIME_LIMIT = 30.0
"""Seconds for one image, all its requests together (IS11)."""
AT_ONCE = 32


class Reader(Protocol):
    """Reads one image's entry point."""

    async def entry_point(self, image: Reference) -> EntryPoint:
        """Read it, or raise RegistryError."""


@dataclass(slots=True)
class _Known:
    outcome: EntryPoint | str | None = None
    """What was read, or why it was not."""
    due: float = 0.0
    """When it is read again if somebody asks."""
    failures: int = 0
    reading: bool = False
    waiting: set[ObjectKey] = field(default_factory=set)


class EntryPoints:
    """What is known of the entry points of images; `run` reads them.

    Guarantees: one image is read once at a time, at most 32 at once, each in at most 30 s; memory is bounded.
    """

    def __init__(self, reader: Reader, clock: Clock, *, wake: Callable[[ObjectKey], None]) -> None:
        self._reader, self._clock, self._wake = reader, clock, wake
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._due: asyncio.Queue[str] = asyncio.Queue()

    def look_up(self, image: str, asked_by: ObjectKey) -> EntryPoint | str | None:
        """Return what is known of an image: its entry point, or in a sentence why it cannot be read, or nothing yet.

        `asked_by` is woken when there is news.
        """
        known = self._known.get(image) or self._add(image)
        if known is None:
            return None
        self._known.move_to_end(image)
        if known.reading or self._clock.monotonic() >= known.due:
            known.waiting.add(asked_by)
        if not known.reading and known.waiting:
            known.reading = True
            self._due.put_nowait(image)
        return known.outcome

    def _add(self, image: str) -> _Known | None:
        """Remember one more image in place of the one that was asked for least recently; None while all are read."""
        if len(self._known) >= LIMIT:
            oldest = next((name for name, known in self._known.items() if not known.reading), None)
            if oldest is None:
                return None
            del self._known[oldest]
        return self._known.setdefault(image, _Known())

    async def run(self) -> None:
        """Read what is asked for until cancelled."""
        async with TaskScope() as scope:
            for number in range(AT_ONCE):
                scope.spawn(self._work(), name=f"entry-points[{number}]")

    async def _work(self) -> None:
        while True:
            image = await self._due.get()
            outcome = await self._read(image)
            known = self._known[image]  # which is kept while it is read
            is_news = outcome != known.outcome
            known.outcome, known.reading = outcome, False
            known.failures = known.failures + 1 if isinstance(outcome, str) else 0
            known.due = self._clock.monotonic() + _delay(image, known.failures)
            waiting, known.waiting = known.waiting, set()
            if is_news:
                for each in waiting:
                    self._wake(each)

    async def _read(self, image: str) -> EntryPoint | str:
        try:
            reference = parse_reference(image)
            async with asyncio.timeout(TIME_LIMIT):
                return await self._reader.entry_point(reference)
        except TimeoutError:
            return f"registry {reference.registry} took longer than {TIME_LIMIT:.0f} s"
        except (BadReference, RegistryError) as error:
            return str(error)


def _delay(image: str, failures: int) -> float:
    if failures:
        return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))
    return float("inf") if "@" in image else BELIEVED
