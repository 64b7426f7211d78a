"""The ConfigMap `trainer-topology` in the operator's own namespace: levels that the administrator names (TP6)."""

from runtime.client.errors import Forbidden, NotFound
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import CONFIGMAPS
from trainer_operator.trainer.levels import BUILT_IN, CONFIG_MAP, Level, configured

FRESH = 5.0
"""Seconds for which one answer serves all Trainers that start."""


class LevelMap:
    """Reads the levels of topology when a Trainer starts that asks for one.

    Guarantees: where no Trainer asks, nothing is read; what changes counts for the starts that follow.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._known: tuple[Level, ...] | str = BUILT_IN
        self._until = -1e9

    async def read(self) -> tuple[Level, ...] | str:
        """Return the levels, or why they cannot be known, as a sentence.

        Raises: ApiError, TransportError where another try may do.
        """
        if self._clock.monotonic() >= self._until:
            self._known = await self._read()
            self._until = self._clock.monotonic() + FRESH
        return self._known

    async def _read(self) -> tuple[Level, ...] | str:
        place = f"ConfigMap {CONFIG_MAP} in namespace {self._namespace}"
        try:
            found = await self._client.get(CONFIGMAPS, CONFIG_MAP, self._namespace)
        except NotFound:
            return BUILT_IN
        except Forbidden:
            return f"{place} cannot be read: let the operator get it, as the role in deploy/base does"
        try:
            return configured(found.get("data") or {})
        except ValueError as fault:
            return f"{place} cannot be used: {fault}"
