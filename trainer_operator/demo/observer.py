"""Watches the cluster as its administrator and writes down what is to be seen.

Watches tell of objects at once; step logs, processes and leaders are looked at every tenth of a second or so. The
functions that turn an object into a record are pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.cache.informers import Informers
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.objects import EVENTS, LEASES, NODES, PODS, JsonObject, Resource, uid_of
from runtime.tasks import TaskScope
from trainer_operator.api import names
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS
from trainer_operator.api.status import TrainerStatus
from trainer_operator.demo.operators import Operators
from trainer_operator.demo.processes import training_processes
from trainer_operator.demo.steplog import StepLogs
from trainer_operator.demo.timeline import (
    CheckpointSeen,
    EventSeen,
    LeadersSeen,
    LeaseSeen,
    NodeSeen,
    PodSeen,
    ProcessId,
    ProcessSeen,
    Record,
    StatusSeen,
    Timeline,
)

STEP_INTERVAL = 0.1
PROCESS_INTERVAL = 0.25
LEADER_INTERVAL = 0.5


class Observer:
    """Fills a timeline for as long as it runs."""

    def __init__(
        self,
        timeline: Timeline,
        *,
        clock: Clock,
        origin: float,
        namespace: str,
        trainer: str,
        operators: Operators,
        operator_namespace: str,
    ) -> None:
        self._timeline = timeline
        self._clock = clock
        self._origin = origin
        self._namespace = namespace
        self._trainer = trainer
        self._operators = operators
        self._operator_namespace = operator_namespace
        self._processes: dict[str, ProcessId] = {}
        self.step_logs: StepLogs | None = None
        """Set as soon as it is known where they are."""
        self.trainer_uid = ""

    @property
    def now(self) -> float:
        """Seconds since the demo began."""
        return self._clock.monotonic() - self._origin

    async def run(self, client: Client) -> None:
        """Observe until cancelled."""
        informers = Informers(client, clock=self._clock)
        own = [self._namespace]
        self._watch(informers, TRAINERS, self._see_trainer, namespaces=own)
        self._watch(informers, PODS, pod_seen, namespaces=own, labels=names.trainer_selector(self._trainer))
        self._watch(informers, CHECKPOINTS, checkpoint_seen, namespaces=own)
        self._watch(informers, EVENTS, event_seen, namespaces=own)
        self._watch(informers, LEASES, lease_seen, namespaces=[self._operator_namespace])
        self._watch(informers, NODES, node_seen)
        async with TaskScope() as scope:
            scope.spawn(informers.run(), name="watches")
            scope.spawn(self._every(STEP_INTERVAL, self._look_at_steps), name="step logs")
            scope.spawn(self._every(PROCESS_INTERVAL, self._look_at_processes), name="processes")
            scope.spawn(self._look_at_leaders(), name="leaders")

    def _watch(
        self,
        informers: Informers,
        resource: Resource,
        seen: Callable[..., Record | None],
        *,
        namespaces: list[str] | None = None,
        labels: str | None = None,
    ) -> None:
        informer = informers.informer(resource, namespaces=namespaces, labels=labels)
        informer.add_handler(_Recorder(self, seen))

    def record(self, record: Record | None) -> None:
        """Write a record down."""
        if record is not None:
            self._timeline.add(record)

    def _see_trainer(self, obj: JsonObject, *, at: float, is_gone: bool) -> StatusSeen | None:
        if obj["metadata"]["name"] != self._trainer or is_gone:
            return None
        self.trainer_uid = uid_of(obj)
        return status_seen(obj, at=at)

    async def _every(self, interval: float, look: Callable[[], None]) -> None:
        while True:
            look()
            await self._clock.sleep(interval)

    def _look_at_steps(self) -> None:
        if self.step_logs is not None:
            self._timeline.extend(self.step_logs.read(at=self.now))

    def _look_at_processes(self) -> None:
        if not self.trainer_uid:
            return
        found = training_processes(self.trainer_uid)
        for member in self._processes.keys() | found.keys():
            if self._processes.get(member) != found.get(member):
                self.record(ProcessSeen(self.now, member, found.get(member)))
        self._processes = found

    async def _look_at_leaders(self) -> None:
        while True:
            leaders = await self._operators.leaders()
            self.record(LeadersSeen(self.now, leaders))
            await self._clock.sleep(LEADER_INTERVAL)


class _Recorder:
    """An informer's handler that turns each change into a record."""

    def __init__(self, observer: Observer, seen: Callable[..., Record | None]) -> None:
        self._observer = observer
        self._seen = seen

    def on_add(self, obj: JsonObject, *, initial: bool) -> None:  # noqa: ARG002 - what was there is news to us
        """Record an object."""
        self._observer.record(self._seen(obj, at=self._observer.now, is_gone=False))

    def on_update(self, old: JsonObject, new: JsonObject) -> None:
        """Record a change."""
        if old is not new:
            self._observer.record(self._seen(new, at=self._observer.now, is_gone=False))

    def on_delete(self, obj: JsonObject, *, final_state_unknown: bool) -> None:  # noqa: ARG002
        """Record a deletion."""
        self._observer.record(self._seen(obj, at=self._observer.now, is_gone=True))


def status_seen(obj: JsonObject, *, at: float) -> StatusSeen:
    """Read a Trainer's status."""
    status = TrainerStatus.read(obj.get("status") or {})
    rollback, recovery, membership = status.last_rollback, status.recovery, status.membership
    return StatusSeen(
        at=at,
        phase=str(status.phase or ""),
        step=status.global_step,
        data_epochs=status.epochs_completed,
        epoch=membership.epoch,
        server_epoch=membership.ps_epoch,
        world=membership.world,
        ready_workers=status.ready_workers or "",
        ready_servers=status.ready_servers or "",
        failures=status.failures,
        disruptions=status.disruptions,
        restarts=status.restarts,
        rollbacks=status.rollbacks,
        rollback=(rollback.from_step, rollback.to_step) if rollback is not None else None,
        recovering=tuple(recovery.members) if recovery is not None else (),
        changing=status.pending_change is not None,
        accuracy=status.metrics.get("accuracy"),
        message=status.message or (recovery.message if recovery is not None else ""),
    )


def pod_seen(obj: JsonObject, *, at: float, is_gone: bool) -> PodSeen | None:
    """Read a member's pod; None when it is no member's."""
    metadata, labels = obj["metadata"], obj["metadata"].get("labels") or {}
    role, index = labels.get(names.ROLE_LABEL), labels.get(names.INDEX_LABEL)
    if not role or not index or role in {names.JANITOR_ROLE, names.NOTEBOOK_ROLE}:
        return None
    attempt = labels.get(names.ATTEMPT_LABEL, "0")
    return PodSeen(
        at=at,
        name=metadata["name"],
        member=f"{role}-{index}",
        attempt=int(attempt) if attempt.isdecimal() else 0,
        node=(obj.get("spec") or {}).get("nodeName") or "",
        phase=(obj.get("status") or {}).get("phase") or "Pending",
        is_ending=bool(metadata.get("deletionTimestamp")),
        is_gone=is_gone,
    )


def checkpoint_seen(obj: JsonObject, *, at: float, is_gone: bool) -> CheckpointSeen:
    """Read a checkpoint."""
    status: dict[str, Any] = obj.get("status") or {}
    aborted = any(
        c.get("type") == "Aborted" and c.get("status") == "True" for c in status.get("conditions") or ()
    )
    return CheckpointSeen(
        at=at,
        name=obj["metadata"]["name"],
        step=int(status.get("step") or 0),
        state="GarbageCollected"
        if is_gone
        else ("Aborted" if aborted else str(status.get("state") or "Pending")),
        reason=str((obj.get("spec") or {}).get("reason") or ""),
    )


def event_seen(obj: JsonObject, *, at: float, is_gone: bool) -> EventSeen | None:
    """Read an Event about a Trainer or a checkpoint; None for others."""
    about = obj.get("involvedObject") or {}
    if is_gone or about.get("kind") not in {TRAINERS.kind, CHECKPOINTS.kind}:
        return None
    return EventSeen(
        at=at,
        warning=obj.get("type") == "Warning",
        reason=str(obj.get("reason") or ""),
        message=str(obj.get("message") or ""),
        about=f"{about.get('kind')}/{about.get('name')}",
    )


def lease_seen(obj: JsonObject, *, at: float, is_gone: bool) -> LeaseSeen | None:
    """Read the operators' lease."""
    spec = obj.get("spec") or {}
    if is_gone:
        return None
    return LeaseSeen(at, str(spec.get("holderIdentity") or ""), int(spec.get("leaseTransitions") or 0))


def node_seen(obj: JsonObject, *, at: float, is_gone: bool) -> NodeSeen:
    """Read a node."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return NodeSeen(at, obj["metadata"]["name"], ready and not is_gone)
