"""One pod on this node: carries out what `podplan` decides and tells `podstatus` what is known.

`sync` is level-triggered: it looks at the pod and at what runs, does the next thing and returns. Whatever happens in
between (a container ends, a probe's verdict turns, a timer fires) only changes a record and asks for another sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from runtime.clock import parse_time
from runtime.errors import RuntimeFault
from runtime.objects import PODS, JsonObject, key_of, uid_of
from runtime.tasks import run_all
from trainer_operator.devcluster.node.container import StartRefused
from trainer_operator.devcluster.node.containerrun import (
    LiveContainer,
    Preparation,
    prepare_run,
    refuse_unknown,
)
from trainer_operator.devcluster.node.containerstate import (
    START_ERROR,
    START_ERROR_EXIT_CODE,
    ContainerRecord,
    Running,
    Terminated,
    Waiting,
    recorded,
)
from trainer_operator.devcluster.node.environment import Facts, Unresolved
from trainer_operator.devcluster.node.host import Host
from trainer_operator.devcluster.node.podplan import CRASH_LOOP, Hold, plan
from trainer_operator.devcluster.node.podstatus import PodFacts, is_terminal, pod_status
from trainer_operator.devcluster.node.probes import ProbeKind
from trainer_operator.devcluster.node.restart import CrashBackoff, should_restart
from trainer_operator.devcluster.node.storage import PodStorage

RETRY_MISSING = 2.0
"""Seconds until a start is tried again that lacked something; nothing tells us when it appears."""
RETRY_REFUSED = 10.0
RETRY_FAULT = 0.2
FORCED_GRACE = 1.0
"""Seconds for containers of a pod whose object is gone already, as the kubelet's least."""
DEFAULT_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a sync found."""

    status: dict[str, Any]
    wake: float | None
    """Seconds until the next sync is due without any news."""
    ended: bool
    """Nothing runs and nothing will be started."""


class PodWorker:
    """The containers of one pod.

    Assumptions: `sync` is never called twice at once.
    """

    def __init__(self, pod: JsonObject, host: Host, *, wake: Callable[[], None]) -> None:
        self.uid = uid_of(pod)
        self._pod = pod
        self._host = host
        self._wake = wake
        self._folders = host.folders(self.uid)
        self._storage = PodStorage(
            host.client, self._folders, pod=self.uid, attachments=host.attachments, clock=host.clock
        )
        now = host.clock.utcnow()
        status = pod.get("status") or {}
        # A status that tells of containers was written before this process began: they are gone.
        entries = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
        self.records: dict[str, ContainerRecord] = {
            entry["name"]: recorded(entry, now=now) for entry in entries
        }
        self._live: dict[str, LiveContainer] = {}
        self._holds: dict[str, Hold] = {}
        self._backoffs: dict[str, CrashBackoff] = {}
        self._ended_at: dict[str, float] = {}
        self._expired = False
        own_address = not (pod.get("spec") or {}).get("hostNetwork")
        # A pod keeps the address it has shown: the API server merges addresses, and refuses a second one.
        self._address = (
            (status.get("podIP") or host.network.allocate())
            if own_address and not is_terminal(status)
            else ""
        )
        self._facts = PodFacts(
            host_ip=host.network.address,
            pod_ip=self._address or status.get("podIP") or host.network.address,
            started_at=now,
        )

    @property
    def ended(self) -> bool:
        """Tell whether the last sync found that nothing runs and nothing will."""
        return self._facts.ended

    async def sync(self, pod: JsonObject | None) -> Outcome:
        """Do the next thing for the pod; None says that its object is gone."""
        gone = pod is None
        self._pod = pod = self._pod if pod is None else pod
        clock = self._host.clock
        stopping = gone or bool((pod.get("metadata") or {}).get("deletionTimestamp")) or self._is_expired()
        terminal = is_terminal(pod.get("status") or {})
        decision = plan(
            pod.get("spec") or {},
            self.records,
            self._holds,
            stopping=stopping or terminal,
            now=clock.monotonic(),
        )
        for name in decision.stop:
            self.stop_container(name, grace=self._grace(gone=gone), why="Stopping container")
        for name, waiting in decision.held:
            self._hold_back(name, waiting)
        if decision.start:
            await self._start_all(decision.start)
        self._facts = replace(self._facts, stopping=stopping, ended=decision.ended)
        if decision.ended and self._address:
            self._host.network.release(self._address)
            self._address = ""
        if decision.ended:
            await self._storage.release()
        await self._refresh(running=not decision.ended)
        status = pod_status(pod, self.records, self._facts, now=clock.utcnow())
        return Outcome(status, self._next_wake(decision.wake, again=bool(decision.start)), decision.ended)

    def stop_container(self, name: str, *, grace: float, why: str) -> None:
        """Ask a container to end, and make it end after the grace."""
        live = self._live.get(name)
        if live is not None and live.stop(grace):
            self._event("Normal", "Killing", f"{why} {name}")

    def kill(self) -> None:
        """End all processes of the pod now."""
        for live in self._live.values():
            live.kill()

    def close(self) -> None:
        """Forget the pod: kill what is left, delete its folders and free its address."""
        self.kill()
        if self._address:
            self._host.network.release(self._address)
        self._folders.remove()

    # -- starting ----------------------------------------------------------------------------------------------

    async def _start_all(self, names: tuple[str, ...]) -> None:
        """Start containers side by side, once the pod's volumes are there."""
        try:
            paths = await self._storage.prepare(self._pod, self._environment_facts())
        except Unresolved as problem:
            for name in names:
                waiting = Waiting("ContainerCreating", str(problem))
                self._refuse(name, waiting, RETRY_MISSING, event="FailedMount")
        except (RuntimeFault, ExceptionGroup) as failure:
            # The API server is away, or its Node authorizer has not heard of this pod yet.
            for name in names:
                self._hold(name, Waiting("ContainerCreating", _text(failure)), RETRY_FAULT)
        else:
            await run_all(*(self._start(name, paths) for name in names))

    async def _start(self, name: str, paths: Mapping[str, str]) -> None:
        spec = self._pod.get("spec") or {}
        every = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        container = next(entry for entry in every if entry["name"] == name)
        try:
            refuse_unknown(container, self._host)
            prepared = await prepare_run(
                container,
                self._pod,
                host=self._host,
                facts=self._environment_facts(),
                storage=self._storage,
                paths=paths,
                folders=self._folders,
            )
        except Unresolved as problem:
            self._refuse(name, Waiting("CreateContainerConfigError", str(problem)), RETRY_MISSING)
        except StartRefused as refusal:
            self._refuse(name, Waiting(refusal.stage, str(refusal)), RETRY_REFUSED)
        except (RuntimeFault, ExceptionGroup) as failure:
            self._hold(name, Waiting("ContainerCreating", _text(failure)), RETRY_FAULT)
        else:
            await self._launch(name, container, prepared)

    def _environment_facts(self) -> Facts:
        return Facts(self._facts.pod_ip, self._facts.host_ip, self._host.settings.capacity())

    async def _launch(self, name: str, container: JsonObject, prepared: Preparation) -> None:
        before = self.records.get(name) or ContainerRecord(name, Waiting("ContainerCreating"))
        last = before.state if isinstance(before.state, Terminated) else before.last
        restarts = before.restarts + (1 if before.ever_ran else 0)
        if name in self._ended_at:
            backoff = self._backoffs.get(name) or CrashBackoff()
            self._backoffs[name] = backoff.restarted(self._ended_at[name], now=self._host.clock.monotonic())
        live = LiveContainer(container, prepared, self._folders, restarts=restarts, worker=self)
        self._live[name] = live
        self._holds.pop(name, None)
        try:
            await live.start()
        except StartRefused as refusal:
            del self._live[name]
            if refusal.stage != "exec":
                self._refuse(name, Waiting("CreateContainerError", str(refusal)), RETRY_REFUSED)
                return
            self._event("Warning", "Failed", f"Error: {refusal}")
            now = self._host.clock.utcnow()
            end = Terminated(START_ERROR_EXIT_CODE, START_ERROR, str(refusal), now, now, live.container_id)
            self._take_end(ContainerRecord(name, end, last, restarts))
            return
        self._event("Normal", "Started", f"Started container {name}")
        running = Running(live.started_at, live.container_id)
        record = ContainerRecord(name, running, last, restarts)
        if self._live.get(name) is live:
            started = "startupProbe" not in container
            ready = started and "readinessProbe" not in container
            self.records[name] = replace(record, started=started, ready=ready)
            live.watch()
        elif live.end is not None:  # it ended before this task was woken
            self._take_end(replace(record, state=live.end))

    def _refuse(self, name: str, waiting: Waiting, delay: float, *, event: str = "Failed") -> None:
        self._event("Warning", event, f"Error: {waiting.message}")
        self._hold(name, waiting, delay)

    def _hold(self, name: str, waiting: Waiting, delay: float) -> None:
        self._holds[name] = Hold(self._host.clock.monotonic() + delay, waiting)
        self._hold_back(name, waiting)

    def _hold_back(self, name: str, waiting: Waiting) -> None:
        record = self.records.get(name) or ContainerRecord(name, waiting)
        last = record.state if isinstance(record.state, Terminated) else record.last
        self.records[name] = replace(record, state=waiting, last=last, ready=False, started=False)

    # -- what containers report --------------------------------------------------------------------------------

    def container_ended(self, live: LiveContainer, end: Terminated) -> None:
        """Take note of the end of a run."""
        if self._live.get(live.name) is live:
            del self._live[live.name]
        record = self.records.get(live.name)
        if record is not None and isinstance(record.state, Running):
            self._take_end(replace(record, state=end, ready=False, started=False))
        self._wake()

    def probe_turned(self, live: LiveContainer, kind: ProbeKind, *, passing: bool) -> None:
        """Take note of a probe's new verdict; liveness and startup probes that fail end the container."""
        record = self.records.get(live.name)
        if record is None or self._live.get(live.name) is not live:
            return
        if kind is ProbeKind.READINESS:
            self.records[live.name] = replace(record, ready=passing)
        elif not passing:
            grace = live.probe_grace(kind)
            word = "liveness" if kind is ProbeKind.LIVENESS else "startup"
            self.stop_container(
                live.name,
                grace=self._grace() if grace is None else grace,
                why=f"Failed {word} probe, stopping container",
            )
        elif kind is ProbeKind.STARTUP:
            ready = "readinessProbe" not in live.container
            self.records[live.name] = replace(record, started=True, ready=ready)
        self._wake()

    def probe_failed(self, live: LiveContainer, kind: ProbeKind, message: str) -> None:
        """Tell of one failed probe."""
        word = kind.value.removesuffix("Probe").capitalize()
        self._event("Warning", "Unhealthy", f"{word} probe of container {live.name} failed: {message}")

    @property
    def host(self) -> Host:
        """The node this pod runs on."""
        return self._host

    @property
    def address(self) -> str:
        """The pod's address."""
        return self._facts.pod_ip

    def _take_end(self, record: ContainerRecord) -> None:
        name = record.name
        self.records[name] = record
        now = self._host.clock.monotonic()
        self._ended_at[name] = now
        policy = (self._pod.get("spec") or {}).get("restartPolicy") or "Always"
        end = record.state
        if not isinstance(end, Terminated) or not should_restart(policy, end.exit_code):
            return
        backoff = self._backoffs.get(name) or CrashBackoff()
        if delay := backoff.remaining(now, now=now):
            key = key_of(self._pod)
            message = (
                f"back-off {_duration(delay)} restarting failed container={name} "
                f"pod={key.name}_{key.namespace}({self.uid})"
            )
            self._holds[name] = Hold(now + delay, Waiting(CRASH_LOOP, message))
            self._event("Warning", "BackOff", f"Back-off restarting failed container {name}")

    # -- timing ------------------------------------------------------------------------------------------------

    def _is_expired(self) -> bool:
        """Tell whether `activeDeadlineSeconds` has passed; once it has, the pod has failed for that reason."""
        if not self._expired and self._until_deadline() <= 0:
            self._expired = True
            self._facts = replace(
                self._facts,
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
            )
        return self._expired

    def _until_deadline(self) -> float:
        seconds = (self._pod.get("spec") or {}).get("activeDeadlineSeconds")
        begun = (self._pod.get("status") or {}).get("startTime")
        if seconds is None or self._expired or is_terminal(self._pod.get("status") or {}):
            return math.inf
        start = parse_time(begun) if begun else self._facts.started_at
        if start is None:
            return math.inf
        return (start + timedelta(seconds=seconds) - self._host.clock.utcnow()).total_seconds()

    def _grace(self, *, gone: bool = False) -> float:
        metadata: Mapping[str, Any] = self._pod.get("metadata") or {}
        if gone:
            return FORCED_GRACE
        if metadata.get("deletionTimestamp"):
            return max(FORCED_GRACE, float(metadata.get("deletionGracePeriodSeconds") or 0))
        grace = (self._pod.get("spec") or {}).get("terminationGracePeriodSeconds")
        return DEFAULT_GRACE if grace is None else float(grace)

    async def _refresh(self, *, running: bool) -> None:
        if not running or self._host.clock.monotonic() < self._storage.refresh_at:
            return
        try:
            await self._storage.refresh(self._pod, self._environment_facts())
        except (Unresolved, RuntimeFault, ExceptionGroup) as failure:
            self._event("Warning", "FailedMount", f"Volumes stay as they were: {_text(failure)}")

    def _next_wake(self, wake: float | None, *, again: bool) -> float | None:
        if self._facts.ended:
            return None
        now = self._host.clock.monotonic()
        moments = [hold.until - now for hold in self._holds.values()] if again else []
        moments += [self._storage.refresh_at - now, self._until_deadline()]
        soonest = min([*moments, math.inf if wake is None else wake])
        return None if math.isinf(soonest) else max(0.0, soonest)

    def _event(self, kind: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._host.events.event(self._pod, type=kind, reason=reason, message=message, resource=PODS)


def _text(failure: BaseException) -> str:
    if isinstance(failure, BaseExceptionGroup):
        return "; ".join(_text(part) for part in failure.exceptions)
    return str(failure) or type(failure).__name__


def _duration(seconds: float) -> str:
    """Write seconds as Go does: `10s`, `2m40s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
