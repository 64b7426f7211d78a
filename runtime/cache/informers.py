"""All caches of a process, each selection once (S7)."""

import asyncio
import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from runtime.backoff import Rng
from runtime.cache.errors import CacheNotSynced
from runtime.cache.informer import Informer
from runtime.cache.listwatch import Cause
from runtime.cache.projection import Projection
from runtime.cache.reflector import Selection, Source
from runtime.cache.streaming import StreamingLists
from runtime.cache.telemetry import CacheMetrics, Uncounted
from runtime.cache.transform import codec_for
from runtime.clock import Clock, SystemClock
from runtime.errors import RuntimeFault
from runtime.eventloop import collect_by_time
from runtime.objects import JsonObject, Resource
from runtime.tasks import TaskScope

__all__ = ["Informers"]

P = TypeVar("P", bound=Projection)


@dataclass(frozen=True, slots=True)
class _Identity:
    resource: Resource
    namespaces: frozenset[str] | None
    labels: str | None
    fields: str | None
    projection: type[Projection] | None


class Informers:
    """Makes informers, shares them and runs them.

    Guarantees: the same question gets the same informer; one asked for while running starts at once.

    With `streaming`, caches begin with a streaming list where the server offers it, which saves both sides from
    holding a whole collection in one piece; where it does not work, ordinary lists take its place (W13).
    """

    def __init__(
        self,
        source: Source,
        *,
        clock: Clock | None = None,
        metrics: CacheMetrics | None = None,
        rng: Rng | None = None,
        on_error: Callable[[Selection, RuntimeFault | None, Cause], None] | None = None,
        streaming: bool = False,
    ) -> None:
        self._source = source
        self._clock = clock or SystemClock()
        self._metrics = metrics or Uncounted()
        self._rng = rng
        self._on_error = on_error
        self._streaming = StreamingLists(allowed=streaming)
        self._informers: dict[_Identity, Informer[Any]] = {}
        self._scope: TaskScope | None = None
        self._is_frozen = False

    @overload
    def informer(
        self,
        resource: Resource,
        *,
        namespaces: Iterable[str] | None = None,
        labels: str | None = None,
        fields: str | None = None,
        projection: type[P],
    ) -> Informer[P]: ...

    @overload
    def informer(
        self,
        resource: Resource,
        *,
        namespaces: Iterable[str] | None = None,
        labels: str | None = None,
        fields: str | None = None,
        projection: None = None,
    ) -> Informer[JsonObject]: ...

    def informer(
        self,
        resource: Resource,
        *,
        namespaces: Iterable[str] | None = None,
        labels: str | None = None,
        fields: str | None = None,
        projection: type[Projection] | None = None,
    ) -> Informer[Any]:
        """Return the informer of a selection; `namespaces` None means all.

        A field selector on `metadata.namespace` narrows the address instead, which any kind supports (S8).

        Raises: ValueError when no namespace at all is left.
        """
        chosen = None if namespaces is None or not resource.namespaced else frozenset(namespaces)
        chosen, fields = _narrow(chosen, fields)
        if chosen is not None and not chosen:
            raise ValueError(f"informer of {resource} over no namespaces would be empty for ever")
        identity = _Identity(resource, chosen, labels or None, fields, projection)
        informer = self._informers.get(identity)
        if informer is None:
            informer = Informer(
                self._source,
                resource,
                namespaces=chosen,
                labels=labels or None,
                fields=fields,
                codec=codec_for(resource, projection),
                clock=self._clock,
                metrics=self._metrics,
                rng=self._rng,
                on_error=self._on_error,
                streaming=self._streaming,
            )
            self._informers[identity] = informer
            if self._scope is not None:
                self._start(self._scope, informer)
        return informer

    async def run(self) -> None:
        """Run all informers until cancelled.

        Raises: ExceptionGroup holding WatchRejected when the server refuses a selection.
        """
        async with TaskScope() as scope:
            self._scope = scope
            try:
                for informer in self._informers.values():
                    self._start(scope, informer)
                await (
                    asyncio.get_running_loop().create_future()
                )  # even without informers, only a cancel ends this
            finally:
                self._scope, self._is_frozen = None, False

    @property
    def has_synced(self) -> bool:
        """Tell whether every informer has been filled."""
        return all(informer.has_synced for informer in self._informers.values())

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Return when every informer has been filled.

        Raises: CacheNotSynced naming those that were not in time (S9).
        """
        try:
            async with asyncio.timeout(timeout):
                for informer in tuple(self._informers.values()):
                    await informer.synced()
        except TimeoutError:
            late = [informer for informer in self._informers.values() if not informer.has_synced]
            names = ", ".join(str(selection) for informer in late for selection in informer.selections)
            raise CacheNotSynced(f"not filled within {timeout:g} s: {names}") from None

    def freeze(self) -> None:
        """Take what is cached now out of the garbage collector's walks, for the whole process (S10, PY1).

        Collecting first matters: garbage that is alive at the freeze is never reclaimed. What replaces the frozen
        objects is walked over again, so while the informers run full collections also come by time alone.
        """
        gc.collect()
        gc.freeze()
        if self._scope is not None and not self._is_frozen:
            self._is_frozen = True
            self._scope.spawn(collect_by_time(self._clock), name="full collections")

    def _start(self, scope: TaskScope, informer: Informer[Any]) -> None:
        scope.spawn(informer.run(), name=f"informer {informer.resource}")


def _narrow(
    namespaces: frozenset[str] | None, fields: str | None
) -> tuple[frozenset[str] | None, str | None]:
    """Turn a field selector's namespace into part of the scope."""
    kept: list[str] = []
    for term in (fields or "").split(","):
        name, sign, value = term.partition("=")
        if name.strip() == "metadata.namespace" and sign and not value.startswith("!"):
            wanted = frozenset({value.removeprefix("=").strip()})
            namespaces = wanted if namespaces is None else namespaces & wanted
        elif term.strip():
            kept.append(term.strip())
    return namespaces, ",".join(kept) or None
