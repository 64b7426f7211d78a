"""PodGroups as the API server has them: whether a kind is installed, and a cache from the first Trainer on that asks.

    nobody asks ──a Trainer names the scheduler──▶ one list: not installed ──after 30 s, if one asks──▶ once more
                                                      └── installed ──▶ cache and watch, while the process runs

So a cluster without such a scheduler costs nothing, and one with it a watch of our own groups (TR39).
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from runtime.cache.index import OWNER_UID
from runtime.client.errors import Forbidden, NotFound
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import JsonObject, Resource
from trainer_operator.api.trainer import Trainer
from trainer_operator.trainer.podgroup import RECHECK, group_view, kind_of
from trainer_operator.trainer.views import PodGroupView


class GroupCache(Protocol):
    """The part of an informer that is used here."""

    @property
    def has_synced(self) -> bool:
        """Whether it has been filled."""

    def by_index(self, index: str, value: str) -> Iterable[JsonObject]:
        """Return the objects under an index value."""


class PodGroups:
    """Finds the PodGroup of a Trainer.

    Guarantees: no request for a Trainer whose scheduler knows no PodGroups; one in `RECHECK` seconds for a kind that
    cannot be used, while Trainers ask for it.
    """

    def __init__(self, client: Client, clock: Clock, *, start: Callable[[Resource], GroupCache]) -> None:
        self._client = client
        self._clock = clock
        self._start = start
        """Begins to cache and watch our PodGroups of a kind."""
        self._caches: dict[Resource, GroupCache] = {}
        self._faults: dict[Resource, tuple[str, float]] = {}
        """Why a kind cannot be used, and until when that is believed."""

    async def is_ready(self, trainer: Trainer) -> bool:
        """Whether it is known which PodGroup the Trainer has; if not, it will be within moments.

        Raises: ApiError, TransportError where another try may do.
        """
        kind = kind_of(trainer)
        if kind is None:
            return True
        resource = kind.resource
        if resource not in self._caches:
            if self._clock.monotonic() < self._faults.get(resource, ("", 0.0))[1]:
                return True
            fault = await self._ask(resource)
            if fault:
                self._faults[resource] = (fault, self._clock.monotonic() + RECHECK)
                return True
            if resource not in self._caches:  # another Trainer may have asked meanwhile
                self._caches[resource] = self._start(resource)
        return self._caches[resource].has_synced

    def fault(self, trainer: Trainer) -> str:
        """Return why the kind that the Trainer's scheduler knows cannot be used; empty where nothing is wrong."""
        kind = kind_of(trainer)
        if kind is None or kind.resource in self._caches:
            return ""
        return self._faults.get(kind.resource, ("", 0.0))[0]

    def find(self, uid: str) -> PodGroupView | None:
        """Return the PodGroup that a Trainer owns, of whichever kind."""
        for resource, cache in self._caches.items():
            for group in cache.by_index(OWNER_UID, uid):
                return group_view(resource, group)
        return None

    async def _ask(self, resource: Resource) -> str:
        try:
            await self._client.fetch_page(resource, None, params={"limit": "1"})
        except NotFound:
            return "is not installed"
        except Forbidden:
            return "the operator may not list"
        return ""
