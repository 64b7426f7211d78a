"""Writes events in the background (R8, RT29).

`event` puts a value into a bounded queue and returns; one task judges and writes. When the API stalls the queue fills
up, further events are dropped and counted, and reconciles notice nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from enum import Enum
from typing import Any, Literal, Protocol

from runtime.client.errors import (
    AlreadyExists,
    ApiError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
)
from runtime.client.rest import PatchKind
from runtime.clock import Clock, format_time
from runtime.errors import RuntimeFault
from runtime.events.correlator import LONGEST_REASON, Bump, Correlator, Create, Drop, Happening, shorten
from runtime.events.reference import ObjectReference, reference_to
from runtime.fence import LeadershipLost
from runtime.logs import get_logger
from runtime.metrics import Metrics
from runtime.objects import EVENTS, AnyObject, JsonObject, Resource

__all__ = ["EventRecorder", "EventSink"]

QUEUE_SIZE = 1000
TRIES = 12
RETRY_PAUSE = 10.0
"""Seconds between tries, as client-go; a stalled API needs no more pressure."""
NAME_LIMIT = 253


class _Outcome(Enum):
    """What became of one try; the value is the label of a drop."""

    WRITTEN = "written"
    RETRY = "out of tries"
    NOT_LEADER = "not the leader"
    REFUSED = "refused"


class EventSink(Protocol):
    """The part of the client that writing events needs."""

    async def create(
        self, resource: Resource, body: JsonObject, *, namespace: str | None = None
    ) -> dict[str, Any]:
        """Create an object."""

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        namespace: str | None = None,
        kind: PatchKind = ...,
    ) -> dict[str, Any]:
        """Patch an object."""


class EventRecorder:
    """Records events about objects.

    Guarantees: `event` never blocks and never raises for want of room; memory is bounded.
    """

    def __init__(
        self,
        client: EventSink,
        *,
        component: str,
        instance: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._clock = clock
        self._metrics = metrics
        self._correlator = Correlator()
        self._queue: deque[tuple[Happening, float]] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._log = get_logger("runtime.events")

    def event(
        self,
        obj: AnyObject | ObjectReference,
        *,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        resource: Resource | None = None,
    ) -> None:
        """Record an event about an object; `resource` names its kind if the object does not.

        Raises: ValueError when the object's kind is unknown, which is a mistake of the caller.
        """
        about = obj if isinstance(obj, ObjectReference) else reference_to(obj, resource)
        if len(self._queue) >= QUEUE_SIZE:
            self._drop("queue full")
            return
        happening = Happening(about, type, shorten(reason, LONGEST_REASON), message, self._clock.utcnow())
        self._queue.append((happening, self._clock.monotonic()))
        self._idle.clear()
        self._filled.set()

    async def run(self) -> None:
        """Write events until cancelled.

        Cancellation: what is still queued is lost; call `flush` before.
        """
        while True:
            await self._filled.wait()
            while self._queue:
                happening, at = self._queue.popleft()
                await self._write(happening, at)
            self._filled.clear()
            self._idle.set()

    async def flush(self, *, timeout: float) -> bool:
        """Wait until everything queued was written, at most `timeout` seconds; tell whether it was."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            self._log.warning("events were not flushed in time and are lost", left=len(self._queue))
            return False
        return True

    async def _write(self, happening: Happening, now: float) -> None:
        verdict = self._correlator.judge(happening, now=now)
        if isinstance(verdict, Drop):
            self._drop("object over its rate")
            return
        name = _new_name(happening.about)
        outcome = _Outcome.RETRY
        for attempt in range(TRIES):
            if attempt:
                await self._clock.sleep(RETRY_PAUSE)
            outcome = await self._attempt(happening, verdict, name)
            if outcome is not _Outcome.RETRY:
                break
        if outcome is not _Outcome.WRITTEN:
            self._drop(outcome.value)

    async def _attempt(self, happening: Happening, verdict: Create | Bump, name: str) -> _Outcome:
        try:
            await self._send(happening, verdict, name)
        except LeadershipLost:
            return _Outcome.NOT_LEADER
        except (TransportError, TooManyRequests, ServiceUnavailable):
            return _Outcome.RETRY
        except RuntimeFault as error:
            if isinstance(error, ApiError) and error.status >= 500:
                return _Outcome.RETRY
            # A namespace that terminates, an object that was refused: trying again cannot help.
            self._log.debug("event refused", reason=happening.reason, error=str(error))
            return _Outcome.REFUSED
        return _Outcome.WRITTEN

    async def _send(self, happening: Happening, verdict: Create | Bump, name: str) -> None:
        about = happening.about
        namespace = about.namespace or "default"
        moment = format_time(happening.at)
        count, first = 1, moment
        if isinstance(verdict, Bump):
            count, first = verdict.count, format_time(verdict.first)
            change = {"count": count, "lastTimestamp": moment, "message": verdict.message}
            try:
                await self._client.patch(
                    EVENTS, verdict.name, change, namespace=namespace, kind=PatchKind.MERGE
                )
            except NotFound:
                self._correlator.forget(verdict)
            else:
                self._correlator.wrote(verdict, name=verdict.name, at=happening.at)
                return
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about.to_json(),
            "type": happening.type,
            "reason": happening.reason,
            "message": verdict.message,
            "source": {"component": self._component, "host": self._instance},
            "reportingComponent": self._component,
            "reportingInstance": shorten(self._instance, 128),
            "firstTimestamp": first,
            "lastTimestamp": moment,
            "count": count,
        }
        try:
            await self._client.create(EVENTS, body, namespace=namespace)
        except AlreadyExists:
            pass  # the name is ours alone: an earlier try took effect though its answer was lost
        self._correlator.wrote(verdict, name=name, at=happening.at)

    def _drop(self, reason: str) -> None:
        self._metrics.events_dropped.labels(reason).inc()


def _new_name(about: ObjectReference) -> str:
    suffix = f".{uuid.uuid4().hex[:16]}"
    return about.name[: NAME_LIMIT - len(suffix)].rstrip(".-") + suffix
