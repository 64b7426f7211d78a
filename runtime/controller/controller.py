"""The controller: workers that take keys from a queue and call a reconciler (C1-C3, C8, C9).

What an answer means::

    answer                          queue                             label `result`
    None, Result()                  forget                            success
    Result(requeue_after=t)         forget, add after t               requeue_after
    raises TerminalError            forget                            error (and terminal errors)
    raises anything else            add rate-limited                  error
    takes longer than the timeout   add rate-limited                  error (and timeouts)
    raises LeadershipLost           ends the controller: somebody else leads
    is cancelled                    ends the worker

This module holds the only `except Exception` of the runtime: one bad object must not stop all others.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import structlog

from runtime.clock import Clock
from runtime.controller.mapping import Mapping, own_key
from runtime.controller.predicate import Predicate
from runtime.controller.reconciler import Reconciler, Request, Result, TerminalError
from runtime.controller.source import ChannelSource, InformerSource, Newcomer, Patience
from runtime.errors import RuntimeFault
from runtime.fence import LeadershipLost
from runtime.logs import get_logger
from runtime.metrics import Metrics
from runtime.objects import ObjectKey, Resource
from runtime.tasks import TaskScope
from runtime.tracing import NO_TRACING, Tracer
from runtime.workqueue import QueueShutDown, WorkQueue

__all__ = ["Controller", "Watchable"]

_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
    UnicodeError,
)
"""What only a mistake in the code raises; counted as upstream counts panics."""


class Watchable(Protocol):
    """The part of an informer that a controller needs."""

    @property
    def resource(self) -> Resource:
        """The kind it watches."""

    def add_handler(self, handler: Any) -> Any:
        """Deliver changes to `handler`; return a registration that knows `has_synced`."""


class Controller:
    """Runs a reconciler over the objects that its sources name.

    Guarantees: a key is never reconciled twice at once; an exception ends neither a worker nor the controller,
    except LeadershipLost.
    """

    def __init__(
        self,
        name: str,
        reconciler: Reconciler,
        *,
        clock: Clock,
        metrics: Metrics,
        workers: int = 16,
        reconcile_timeout: float | None = None,
        base_delay: float = 0.005,
        max_delay: float = 60.0,
        tracer: Tracer = NO_TRACING,
    ) -> None:
        if workers < 1:
            raise ValueError(f"controller {name!r} needs at least one worker, got {workers}")
        self.name = name
        self.queue: WorkQueue[ObjectKey] = WorkQueue(
            name, clock=clock, metrics=metrics, base_delay=base_delay, max_delay=max_delay
        )
        self._reconciler = reconciler
        self._clock = clock
        self._metrics = metrics
        self._workers = workers
        self._timeout = reconcile_timeout
        self._tracer = tracer
        self._registrations: list[Any] = []
        self._reasons: dict[ObjectKey, str] = {}
        self._log = get_logger("runtime.controller", controller=name)
        metrics.declare_controller(name, workers=workers)

    def watch(
        self,
        informer: Watchable,
        *,
        mapping: Mapping = own_key,
        predicate: Predicate | None = None,
        patience: Patience | None = None,
        newcomer: Newcomer | None = None,
    ) -> None:
        """Queue what `mapping` names for each change of the informer's objects that `predicate` lets pass.

        `patience` says how long the look may wait, so that changes which come together cost one, or that it must not.
        Of the objects that are there when the process starts, those that `newcomer` names go before the others.
        """
        source = InformerSource(
            informer.resource.kind,
            self._enqueue,
            mapping=mapping,
            predicate=predicate,
            patience=patience,
            newcomer=newcomer,
        )
        self._registrations.append(informer.add_handler(source))

    def watch_channel(self, channel: ChannelSource) -> None:
        """Queue what other code notifies through `channel`."""
        channel.attach(self._enqueue)

    def trigger(self, key: ObjectKey, after: float = 0.0, *, priority: int = 0) -> None:
        """Ask for a look at `key` in `after` seconds."""
        self._enqueue(key, after=after, priority=priority, reason="triggered")

    @property
    def has_synced(self) -> bool:
        """Whether the initial objects of every watched informer were delivered to the queue (S5, S9)."""
        return all(registration.has_synced for registration in self._registrations)

    def shutdown(self) -> None:
        """Refuse new keys and drop the ready ones; reconciles in progress go on to their end.

        Dropping loses nothing: whoever leads next observes every object anew, and sooner if we do not linger.
        """
        self.queue.shutdown()
        self.queue.shutdown()

    async def run(self) -> None:
        """Run the workers until `shutdown`, then return when the last reconcile has ended.

        Cancellation: cancels the reconciles in progress and waits for them.
        Raises: ExceptionGroup with LeadershipLost when a reconcile ran into the closed fence.
        """
        async with TaskScope() as scope:
            for number in range(self._workers):
                scope.spawn(self._work(), name=f"{self.name} worker {number}")

    def _enqueue(self, key: ObjectKey, *, after: float = 0.0, priority: int = 0, reason: str) -> None:
        if self.queue.is_shut_down:
            return
        self._reasons[key] = reason
        self.queue.add_after(key, after, priority)

    async def _work(self) -> None:
        while True:
            try:
                key, priority = await self.queue.get()
            except QueueShutDown:
                return
            try:
                await self._process(key, priority)
            finally:
                self.queue.done(key)

    async def _process(self, key: ObjectKey, priority: int) -> None:
        reason = self._reasons.pop(key, "")
        started = self._clock.monotonic()
        active = self._metrics.active_workers.labels(self.name)
        active.inc()
        bound = {
            "reconcile_id": uuid.uuid4().hex,
            "controller": self.name,
            "namespace": key.namespace,
            "name": key.name,
        }
        with structlog.contextvars.bound_contextvars(**bound):
            try:
                self._log.debug("reconcile started", reason=reason, priority=priority)
                await self._attempt(key, priority, bound)
            finally:
                active.dec()
                self._metrics.reconcile_time.labels(self.name).observe(self._clock.monotonic() - started)

    async def _attempt(self, key: ObjectKey, priority: int, bound: dict[str, str]) -> None:
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                with self._tracer.span("reconcile", **bound):
                    result = await self._reconciler.reconcile(Request(key))
        except TerminalError as error:
            self._metrics.terminal_errors.labels(self.name).inc()
            self._count_error(error)
            self.queue.forget(key)
        except LeadershipLost:
            raise
        except TimeoutError as error:
            if limit.expired():
                self._metrics.reconcile_timeouts.labels(self.name).inc()
            self._retry(key, priority, error)
        except Exception as error:
            lost = error.subgroup(LeadershipLost) if isinstance(error, ExceptionGroup) else None
            if lost is not None:
                raise next(_leaves(lost)) from error
            self._retry(key, priority, error)
        else:
            self._settle(key, priority, result or Result())

    def _settle(self, key: ObjectKey, priority: int, result: Result) -> None:
        self.queue.forget(key)
        outcome = "success"
        if result.requeue_after is not None:
            outcome = "requeue_after"
            wanted = priority if result.priority is None else result.priority
            if not self.queue.is_shut_down:
                self._reasons.setdefault(key, "asked to come back")
            self.queue.add_after(key, result.requeue_after, wanted)
        self._metrics.reconcile_total.labels(self.name, outcome).inc()

    def _retry(self, key: ObjectKey, priority: int, error: Exception) -> None:
        self._count_error(error)
        if not self.queue.is_shut_down:
            self._reasons.setdefault(key, "failed before")
        self.queue.add_rate_limited(key, priority)

    def _count_error(self, error: Exception) -> None:
        self._metrics.reconcile_errors.labels(self.name).inc()
        self._metrics.reconcile_total.labels(self.name, "error").inc()
        if isinstance(error, _BUGS):
            self._metrics.reconcile_panics.labels(self.name).inc()
        # The message of a typed fault says it all; of anything else we want to know where it came from.
        self._log.warning(
            "reconcile failed",
            error=str(error) or type(error).__name__,
            error_type=type(error).__name__,
            exc_info=None if isinstance(error, RuntimeFault) else error,
        )


def _leaves(group: BaseExceptionGroup[LeadershipLost]) -> Iterator[LeadershipLost]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
