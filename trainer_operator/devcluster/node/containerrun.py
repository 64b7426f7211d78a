"""A container from its description to its end: what it is started with, its probes, its memory, its last words."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from runtime.objects import JsonObject, key_of
from trainer_operator.devcluster.node.container import Bind, ContainerRun, Order, StartRefused
from trainer_operator.devcluster.node.containerstate import Terminated, reason_of
from trainer_operator.devcluster.node.environment import (
    Facts,
    command_line,
    compose,
    sources_of,
)
from trainer_operator.devcluster.node.folders import (
    PodFolders,
    fresh_termination_log,
    mount_source,
    termination_message,
    write_hosts,
)
from trainer_operator.devcluster.node.host import Host
from trainer_operator.devcluster.node.logstore import LogWriter, last_words
from trainer_operator.devcluster.node.memory import private_bytes
from trainer_operator.devcluster.node.probes import ProbeKind, ProbeSettings, ProbeState, step
from trainer_operator.devcluster.node.probing import Subject, ask, check_probe
from trainer_operator.devcluster.node.quantity import parse_quantity
from trainer_operator.devcluster.node.storage import PodStorage
from trainer_operator.devcluster.node.volumes import mounts_of

DEFAULT_TERMINATION_LOG = "/dev/termination-log"
MEMORY_CHECK = 1.0
"""Seconds between two looks at a limited container's memory."""


class ContainerOwner(Protocol):
    """Whom a container reports to."""

    @property
    def host(self) -> Host:
        """The node."""

    @property
    def address(self) -> str:
        """The pod's address."""

    def container_ended(self, live: LiveContainer, end: Terminated) -> None:
        """Hear that the run is over."""

    def probe_turned(self, live: LiveContainer, kind: ProbeKind, *, passing: bool) -> None:
        """Hear of a probe's new verdict."""

    def probe_failed(self, live: LiveContainer, kind: ProbeKind, message: str) -> None:
        """Hear of one failed probe."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """Everything a run needs."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    hostname: str
    mounts: tuple[Bind, ...]


def refuse_unknown(container: JsonObject, host: Host) -> None:
    """Refuse what would otherwise be ignored in silence.

    Raises: StartRefused whose stage is the waiting reason; Unresolved.
    """
    name = container["name"]
    if host.sandbox_problem:
        raise StartRefused("CreateContainerError", host.sandbox_problem)
    if not container.get("command"):
        raise StartRefused(
            "ImageHasNoCommand",
            f'container "{name}" has no command: process nodes run no images, so the command must be given',
        )
    if container.get("restartPolicy") == "Always":
        raise StartRefused("CreateContainerError", f'"{name}" is a sidecar, which process nodes do not run')
    if container.get("lifecycle"):
        raise StartRefused(
            "CreateContainerError", f'"{name}" has lifecycle hooks, which process nodes do not run'
        )
    for kind in ProbeKind:
        if (probe := container.get(kind.value)) is not None:
            check_probe(probe, container)


async def prepare_run(
    container: JsonObject,
    pod: JsonObject,
    *,
    host: Host,
    facts: Facts,
    storage: PodStorage,
    paths: Mapping[str, str],
    folders: PodFolders,
) -> Preparation:
    """Compose environment, command and mounts.

    Raises: Unresolved; ApiError, TransportError.
    """
    spec: Mapping[str, Any] = pod.get("spec") or {}
    hostname = spec.get("hostname") or key_of(pod).name[:63].rstrip("-.")
    contents = await storage.contents(key_of(pod).namespace, sources_of(container))
    env = compose(container, pod, facts=facts, contents=contents, given=host.environment(hostname))
    folder = folders.container(container["name"])
    volumes = [
        Bind(mount_source(mount), mount.target, mount.read_only) for mount in mounts_of(container, env, paths)
    ]
    taken = {bind.target for bind in volumes}
    own = [
        Bind(
            str(fresh_termination_log(folder)),
            container.get("terminationMessagePath") or DEFAULT_TERMINATION_LOG,
        ),
        Bind(str(write_hosts(folder, address=facts.pod_ip, hostname=hostname)), "/etc/hosts"),
    ]
    return Preparation(
        argv=command_line(container, env),
        env=env,
        cwd=container.get("workingDir") or host.settings.working_dir,
        hostname=hostname,
        mounts=(*volumes, *(bind for bind in own if bind.target not in taken)),
    )


class LiveContainer:
    """One run of a container, with its timers and probes."""

    def __init__(
        self,
        container: JsonObject,
        prepared: Preparation,
        folders: PodFolders,
        *,
        restarts: int,
        worker: ContainerOwner,
    ) -> None:
        self.name: str = container["name"]
        self.container = container
        self.container_id = f"process://{uuid.uuid4().hex}"
        self.started_at: datetime = worker.host.clock.utcnow()
        self.end: Terminated | None = None
        """How the run ended, once it has."""
        self._prepared = prepared
        self._worker = worker
        self._folder: Path = folders.container(self.name)
        self._log = folders.log(self.name, restarts)
        self._run: ContainerRun | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._kill_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._out_of_memory = False

    async def start(self) -> None:
        """Start the command.

        Raises: StartRefused.
        """
        order = Order(
            argv=self._prepared.argv,
            env=self._prepared.env,
            cwd=self._prepared.cwd,
            hostname=self._prepared.hostname,
            base=str(self._folder / "base"),
            mounts=self._prepared.mounts,
        )
        output = LogWriter(self._log, clock=self._worker.host.clock)
        self._run = await ContainerRun.start(order, output, on_exit=self._ended)

    def watch(self) -> None:
        """Begin to probe, and to look at the memory."""
        scope = self._worker.host.scope
        for kind in ProbeKind:
            if kind.value in self.container and kind is not ProbeKind.STARTUP:
                if ProbeKind.STARTUP.value in self.container:
                    continue  # they begin once it has passed
                self._spawn_probe(kind)
        if ProbeKind.STARTUP.value in self.container:
            self._spawn_probe(ProbeKind.STARTUP)
        limit = ((self.container.get("resources") or {}).get("limits") or {}).get("memory")
        if limit is not None:
            self._tasks.append(
                scope.spawn(self._watch_memory(int(parse_quantity(limit))), name=f"memory of {self.name}")
            )

    def stop(self, grace: float) -> bool:
        """Send SIGTERM and set the time of SIGKILL, which a second call can only bring nearer.

        Returns True the first time.
        """
        if self._run is None:
            return False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        if self._kill_timer is None or deadline < self._kill_timer.when():
            if self._kill_timer is not None:
                self._kill_timer.cancel()
            self._kill_timer = loop.call_at(deadline, self.kill)
        first, self._stopping = not self._stopping, True
        if first:
            name = (self.container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
            self._run.send_signal(getattr(signal, name, signal.SIGTERM))
        return first

    def kill(self) -> None:
        """End every process of the container now."""
        if self._run is not None:
            self._run.kill()

    def probe_grace(self, kind: ProbeKind) -> float | None:
        """Return the grace that a probe sets for the end it causes."""
        return ProbeSettings.of(self.container.get(kind.value) or {}).grace

    def _ended(self, exit_code: int) -> None:
        for task in self._tasks:
            task.cancel()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        message = termination_message(self._folder)
        fallback = self.container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not message and fallback and exit_code != 0:
            message = last_words(self._log)
        self.end = Terminated(
            exit_code,
            reason_of(exit_code, out_of_memory=self._out_of_memory),
            message,
            self.started_at,
            self._worker.host.clock.utcnow(),
            self.container_id,
        )
        self._worker.container_ended(self, self.end)

    def _spawn_probe(self, kind: ProbeKind) -> None:
        scope = self._worker.host.scope
        self._tasks.append(scope.spawn(self._probe(kind), name=f"{kind.value} of {self.name}"))

    async def _probe(self, kind: ProbeKind) -> None:
        probe: Mapping[str, Any] = self.container[kind.value]
        settings = ProbeSettings.of(probe)
        state = ProbeState.initial(kind)
        clock, run = self._worker.host.clock, self._run
        if run is None:
            return
        subject = Subject(self.container, run, self._prepared.env, self._prepared.cwd, self._worker.address)
        await clock.sleep(settings.initial_delay)
        while True:
            answer = await ask(probe, subject, session=self._worker.host.session, timeout=settings.timeout)
            before, state = state, step(state, settings, success=answer.success)
            if not answer.success:
                self._worker.probe_failed(self, kind, answer.message)
            if state.passing != before.passing or state.failed != before.failed:
                self._worker.probe_turned(self, kind, passing=state.passing)
            if kind is ProbeKind.STARTUP and state.passing:
                for other in (ProbeKind.LIVENESS, ProbeKind.READINESS):
                    if other.value in self.container:
                        self._spawn_probe(other)
                return
            await clock.sleep(settings.period)

    async def _watch_memory(self, limit: int) -> None:
        while self._run is not None:
            await self._worker.host.clock.sleep(MEMORY_CHECK)
            if private_bytes(self._run.pid) > limit:
                self._out_of_memory = True
                self._run.kill()
                return
