"""A cached kind: its store, the reflectors that fill it, and the handlers that hear of it (S1–S8).

The store changes first, then each handler's own queue; one task a handler delivers, so that none holds up another
and a handler that comes late is caught up from the store. Handlers are plain functions and must not block.
"""

import asyncio
import builtins
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from runtime.backoff import Rng
from runtime.cache.errors import NotCached
from runtime.cache.listwatch import Cause
from runtime.cache.reflector import Reflector, Selection, Source
from runtime.cache.store import Added, Deleted, Delta, Store, Updated
from runtime.cache.streaming import StreamingLists
from runtime.cache.telemetry import CacheMetrics
from runtime.cache.transform import Codec
from runtime.clock import Clock
from runtime.errors import RuntimeFault
from runtime.objects import ObjectKey, Resource
from runtime.tasks import TaskScope

__all__ = ["Handler", "Informer", "Registration"]

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

RESYNC_PERIOD = 10 * 3600.0
_DELIVERIES_PER_TURN = 100


class Handler(Protocol[T_contra]):
    """Hears what changed in a cache, each object's changes in order."""

    def on_add(self, obj: T_contra, *, initial: bool) -> None:
        """Hear of an object; `initial` for those that were there when the handler joined or the cache began."""
        ...

    def on_update(self, old: T_contra, new: T_contra) -> None:
        """Hear of a change; `old is new` on a resync (S6)."""
        ...

    def on_delete(self, obj: T_contra, *, final_state_unknown: bool) -> None:
        """Hear of a deletion; the object is the last state known."""
        ...


class _InitialEnd:
    """Marks the end of the initial batch in a handler's queue."""


_INITIAL_END = _InitialEnd()


class Registration(Generic[T]):
    """One handler's place at an informer.

    Guarantees: the handler hears each object's changes in order, and of what was cached before anything newer;
    another handler that has much to hear delays it by a hundred deliveries at most (S5).
    """

    def __init__(self, handler: Handler[T]) -> None:
        self._handler = handler
        self._pending: deque[tuple[Delta[T], bool] | _InitialEnd] = deque()
        self._wake = asyncio.Event()
        self._removed = False
        self.has_synced = False
        """True once the whole initial batch has been delivered, not merely queued (S5)."""

    def remove(self) -> None:
        """Deliver nothing more; idempotent."""
        self._removed = True
        self._pending.clear()
        self._wake.set()

    @property
    def is_removed(self) -> bool:
        """Tell whether the handler has left."""
        return self._removed

    def notify(self, deltas: Iterable[Delta[T]], *, initial: bool) -> None:
        """Queue changes for delivery."""
        if not self._removed:
            for delta in deltas:
                self._pending.append((delta, initial))
            self._wake.set()

    def end_initial(self) -> None:
        """Queue the mark after which the handler counts as synced."""
        self._pending.append(_INITIAL_END)
        self._wake.set()

    async def deliver(self) -> None:
        """Deliver until removed or cancelled, yielding to the loop between turns."""
        while not self._removed:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                for _ in range(min(len(self._pending), _DELIVERIES_PER_TURN)):
                    if self._pending:  # a handler may have removed itself
                        self._deliver_one()
                await asyncio.sleep(0)

    def _deliver_one(self) -> None:
        entry = self._pending.popleft()
        if isinstance(entry, _InitialEnd):
            self.has_synced = True
            return
        match entry:
            case Added(obj), initial:
                self._handler.on_add(obj, initial=initial)
            case Updated(old, new), _:
                self._handler.on_update(old, new)
            case Deleted(obj, final_state_unknown), _:
                self._handler.on_delete(obj, final_state_unknown=final_state_unknown)


class Informer(Generic[T]):
    """The cache of one selection of one kind.

    Guarantees: a reader between two awaits sees one snapshot; cached objects are shared and must not be changed (S4).
    """

    def __init__(
        self,
        source: Source,
        resource: Resource,
        *,
        namespaces: frozenset[str] | None,
        labels: str | None,
        fields: str | None,
        codec: Codec[T],
        clock: Clock,
        metrics: CacheMetrics,
        rng: Rng | None = None,
        on_error: Callable[[Selection, RuntimeFault | None, Cause], None] | None = None,
        streaming: StreamingLists | None = None,
    ) -> None:
        self.resource = resource
        self._namespaces = namespaces
        self._clock = clock
        self._metrics = metrics
        self._rng = rng or random.Random()
        self._store: Store[T] = Store(codec)
        self._counted = -1
        self._registrations: list[Registration[T]] = []
        self._scope: TaskScope | None = None
        self._synced = asyncio.Event()
        scopes: builtins.list[str | None] = [None] if namespaces is None else [*sorted(namespaces)]
        self._unlisted = set(scopes)
        self._reflectors = {
            scope: Reflector(
                source,
                Selection(resource, scope, labels, fields),
                codec=codec,
                sink=self,
                clock=clock,
                metrics=metrics,
                rng=self._rng,
                on_error=on_error,
                streaming=streaming,
            )
            for scope in scopes
        }
        metrics.cache_lag(
            kind=resource.kind, seconds=lambda: max(each.lag for each in self._reflectors.values())
        )

    # Reading

    def get(self, key: ObjectKey) -> T | None:
        """Return an object, None when it does not exist.

        Raises: NotCached when its namespace is outside the scope.
        """
        self._require(key.namespace)
        return self._store.get(key)

    def list(self, namespace: str | None = None) -> builtins.list[T]:
        """Return all cached objects, or those of a namespace.

        Raises: NotCached when the namespace is outside the scope.
        """
        if namespace is not None:
            self._require(namespace)
        return self._store.objects(namespace)

    def by_index(self, index: str, value: str) -> builtins.list[T]:
        """Return the objects that have a value in an index.

        Raises: KeyError naming the index that does not exist.
        """
        return self._store.by_index(index, value)

    def add_index(self, name: str, values_of: Callable[[T], Iterable[str]]) -> None:
        """Index by a function of an object, now and from now on; the function must not fail."""
        self._store.add_index(name, values_of)

    def has_uid(self, key: ObjectKey, uid: str) -> bool:
        """Tell whether the object of that name is the one with this uid."""
        return self._store.has_uid(key, uid)

    def __len__(self) -> int:
        return len(self._store)

    @property
    def selections(self) -> builtins.list[Selection]:
        """Return what is listed and watched."""
        return [reflector.selection for reflector in self._reflectors.values()]

    # Progress

    @property
    def has_synced(self) -> bool:
        """Tell whether every part has been listed once."""
        return not self._unlisted

    async def synced(self) -> None:
        """Return when every part has been listed once."""
        await self._synced.wait()

    @property
    def last_version(self) -> str:
        """Return the version up to which the cache is complete; "" when it has several parts, ask `seen_version`."""
        return next(iter(self._reflectors.values())).seen if len(self._reflectors) == 1 else ""

    def seen_version(self, namespace: str) -> str:
        """Return the version up to which the cache of a namespace is complete (R2)."""
        self._require(namespace)
        return self._reflectors[None if self._namespaces is None else namespace].seen

    # Handlers

    def add_handler(self, handler: Handler[T]) -> Registration[T]:
        """Let a handler hear of everything cached, then of every change (S5)."""
        registration = Registration(handler)
        registration.notify([Added(obj) for obj in self._store.objects()], initial=True)
        if self.has_synced:
            registration.end_initial()
        self._registrations = [known for known in self._registrations if not known.is_removed] + [
            registration
        ]
        if self._scope is not None:
            self._scope.spawn(registration.deliver(), name=f"deliver {self.resource}")
        return registration

    async def run(self) -> None:
        """Fill the cache and deliver until cancelled.

        Raises: ExceptionGroup holding WatchRejected when the server refuses the selection.
        """
        async with TaskScope() as scope:
            self._scope = scope
            try:
                for registration in self._registrations:
                    scope.spawn(registration.deliver(), name=f"deliver {self.resource}")
                for reflector in self._reflectors.values():
                    scope.spawn(reflector.run(), name=f"reflect {reflector.selection}")
                await self._resync()
            finally:
                self._scope = None

    async def _resync(self) -> None:
        """Deliver everything again from time to time, without asking the server (S6)."""
        while True:
            await self._clock.sleep(max(1.0, RESYNC_PERIOD * (0.9 + 0.2 * self._rng.random())))
            self._tell([Updated(obj, obj) for obj in self._store.objects()], initial=False)

    # As the sink of its reflectors

    def replace(self, objects: Iterable[T], *, namespace: str | None) -> None:
        """Take a list's content."""
        first = namespace in self._unlisted
        deltas = self._store.replace(objects, namespace=namespace)
        self._tell(deltas, initial=first)
        if first:
            self._unlisted.discard(namespace)
            if not self._unlisted:
                for registration in self._registrations:
                    registration.end_initial()
                self._synced.set()

    def put(self, obj: T) -> None:
        """Take an object that appeared or changed."""
        self._tell(self._store.put(obj), initial=False)

    def remove(self, obj: T) -> None:
        """Drop an object that was deleted."""
        self._tell(self._store.remove(obj), initial=False)

    def _tell(self, deltas: builtins.list[Delta[T]], *, initial: bool) -> None:
        if deltas:
            for registration in self._registrations:
                registration.notify(deltas, initial=initial)
            if len(self._store) != self._counted:
                self._counted = len(self._store)
                self._metrics.cache_size(kind=self.resource.kind, objects=self._counted)

    def _require(self, namespace: str) -> None:
        if self._namespaces is not None and namespace not in self._namespaces:
            raise NotCached(
                f"namespace {namespace!r} of {self.resource} is not cached, only {', '.join(sorted(self._namespaces))}"
            )
