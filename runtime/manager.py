"""The manager: what starts in which order, and what stops (P2, S9, C9, L6, L7).

Start::

    1 health server, not ready    2 servers (webhooks, agent API)    3 caches, synced, memory frozen
    4 runnables of all replicas   5 ready, stand for election         6 leading: hooks, then workers

Servers come before caches because our own LIST may call our own conversion webhook. Queues are filled from step 3 on,
so that a standby takes over warm.

Stop, on a signal::

    1 not ready, queues refuse    2 reconciles end, events flushed    3 fence shut, lease given back
    4 runnables, caches, sessions 5 servers, health server

Each level is a scope around the next, so that a failure anywhere unwinds in the same order, with cancels in place of
drains. A lost lease cancels the workers at once and ends the process with a code other than zero.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from runtime.cache.informers import Informers
from runtime.cache.listwatch import Cause
from runtime.cache.reflector import Selection
from runtime.client.config import ClientConfig
from runtime.client.rest import Client
from runtime.clock import Clock, SystemClock
from runtime.controller import Controller
from runtime.errors import RuntimeFault
from runtime.events import EventRecorder
from runtime.fence import AlwaysOpen, Fence
from runtime.health import HealthServer, LoopLag
from runtime.leaderelection import LeaderElectionConfig, LeaderElector, new_identity
from runtime.logs import get_logger
from runtime.metrics import Metrics
from runtime.tasks import TaskScope

__all__ = ["LeaderHook", "Manager", "Runnable", "Server", "run_manager"]

SYNC_DEADLINE = 120.0
"""Seconds for all caches to fill; then start-up fails naming those that did not (S9)."""

DRAIN_DEADLINE = 30.0
"""Seconds for reconciles in progress to end; with the rest well within a pod's grace of 45 s."""

FLUSH_DEADLINE = 2.0
"""Seconds for events to be written."""

CLEANUP_DEADLINE = 5.0
"""Seconds for one server to stop."""

OK = 0
FAILED = 1

LeaderHook = Callable[[], Awaitable[None]]
"""Called on acquiring the lease, before any worker starts."""


class Runnable(Protocol):
    """Something that runs beside the controllers."""

    async def run(self) -> None:
        """Run until cancelled; to end earlier counts as dying and makes the process not live."""


class Server(Protocol):
    """Something that serves before the caches are filled."""

    async def start(self) -> None:
        """Listen; return when requests are answered."""

    async def stop(self) -> None:
        """Stop listening. Idempotent."""


class Manager:
    """Holds the parts of one process together.

    Guarantees: no worker runs before all caches are synced and the fence is open; the lease is given back only after
    every worker has ended; the process is not live once a part that should run for ever has died.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        leader_election: LeaderElectionConfig | None = None,
        health_address: tuple[str, int] | None = ("", 8081),
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        component: str = "controller",
        freeze_memory: bool = True,
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self.metrics = metrics or Metrics()
        self._fence: Fence | AlwaysOpen = AlwaysOpen()
        self._elector: LeaderElector | None = None
        identity = new_identity()
        if leader_election is not None:
            identity = leader_election.identity or identity
            self._fence = Fence(self.clock)
            self._elector = LeaderElector(
                config,
                namespace=leader_election.namespace,
                name=leader_election.name,
                identity=identity,
                fence=self._fence,
                lease_duration=leader_election.lease_duration,
                renew_deadline=leader_election.renew_deadline,
                retry_period=leader_election.retry_period,
                clock=self.clock,
                metrics=self.metrics,
            )
        self.identity = identity
        self.client = Client(config, fence=self._fence, clock=self.clock, metrics=self.metrics)
        self.informers = Informers(
            self.client,
            clock=self.clock,
            metrics=self.metrics,
            streaming=True,
            on_error=self._watch_failed,
        )
        self.events = EventRecorder(
            self.client, component=component, instance=identity, clock=self.clock, metrics=self.metrics
        )
        self.health: HealthServer | None = None
        if health_address is not None:
            self.health = HealthServer(*health_address, metrics=self.metrics)
        self._freeze_memory = freeze_memory
        self._controllers: list[Controller] = []
        self._runnables: list[tuple[str, Runnable, bool]] = []
        self._servers: list[Server] = []
        self._hooks: list[LeaderHook] = []
        self._dead: dict[str, str] = {}
        self._is_ready = False
        self._is_stopping = False
        self._leading = asyncio.Event()
        self._log = get_logger("runtime.manager", identity=identity)

    # Assembly

    def add_controller(self, controller: Controller) -> None:
        """Run the controller's workers while this process leads."""
        self._controllers.append(controller)

    def add_runnable(self, runnable: Runnable, *, leader_only: bool = False, name: str = "") -> None:
        """Run something from the moment caches are synced, on every replica or only on the leader."""
        self._runnables.append((name or type(runnable).__name__, runnable, leader_only))

    def add_server(self, server: Server) -> None:
        """Start a server before the caches and stop it after them."""
        self._servers.append(server)

    def add_leader_hook(self, hook: LeaderHook) -> None:
        """Await `hook` on acquiring the lease, before workers start; if it raises, the process ends."""
        self._hooks.append(hook)

    def end_process_with_lease(self) -> None:
        """Have the kernel end the process should it stand still until a rival may write; see `LeaderElector`."""
        if self._elector is not None:
            self._elector.end_process_with_lease()

    # State

    @property
    def is_leader(self) -> bool:
        """Whether this process leads and its leader hooks are done; without election true once workers run."""
        return (
            self._leading.is_set()
            and not self._is_stopping
            and (self._elector is None or self._elector.is_leader)
        )

    @property
    def is_ready(self) -> bool:
        """Whether servers answer and caches are synced."""
        return self._is_ready and not self._is_stopping

    async def wait_leading(self) -> None:
        """Wait until this process leads."""
        await self._leading.wait()

    # Life

    async def run(self, stop: asyncio.Event | None = None) -> int:
        """Run until `stop` is set, the lease is lost or a part fails; return the exit code.

        Cancellation: unwinds as after a failure; the lease is given back.
        """
        try:
            return await self._run(stop or asyncio.Event())
        except ExceptionGroup as failure:
            self._log.error("the process ends because a part of it failed", exc_info=failure)
            return FAILED

    async def _run(self, stop: asyncio.Event) -> int:
        async with TaskScope() as scope:
            await self._serve_health(scope)
            try:
                return await self._with_servers(stop)
            finally:
                scope.cancel()
                if self.health is not None:
                    await self._cleanly(self.health.stop(), "health server")

    async def _serve_health(self, scope: TaskScope) -> None:
        lag = LoopLag(clock=self.clock, metrics=self.metrics)
        scope.spawn(self._guard("loop lag", lag.run()), name="loop lag")
        if self.health is None:
            return
        self.health.add_check("event loop", lag.check, kind="live")
        self.health.add_check("tasks", self._check_tasks, kind="live")
        if self._elector is not None:
            self.health.add_check("leader election", self._elector.check, kind="live")
        self.health.add_check("manager", self._check_ready, kind="ready")
        await self.health.start()

    async def _with_servers(self, stop: asyncio.Event) -> int:
        started: list[Server] = []
        try:
            for server in self._servers:
                started.append(server)
                if await _first_of(stop.wait(), server.start()) == 0:  # it may wait for its certificate
                    return OK
            async with self.client:
                return await self._with_caches(stop)
        finally:
            self._begin_stop()
            for server in reversed(started):
                await self._cleanly(server.stop(), type(server).__name__)

    async def _with_caches(self, stop: asyncio.Event) -> int:
        async with TaskScope() as scope:
            scope.spawn(self._guard("informers", self.informers.run()), name="informers")
            scope.spawn(self._guard("events", self.events.run()), name="events")
            if await _first_of(stop.wait(), self._synced()) == 0:
                self._begin_stop()
                scope.cancel()
                return OK
            if self._freeze_memory:
                self.informers.freeze()
            for name, runnable, leader_only in self._runnables:
                if not leader_only:
                    scope.spawn(self._guard(name, runnable.run()), name=name)
            self._is_ready = True
            self._log.info("ready")
            code = await self._with_lease(stop)
            scope.cancel()
        return code

    async def _synced(self) -> None:
        """Wait until all caches are filled and what they hold was delivered to the queues."""
        await self.informers.wait_synced(SYNC_DEADLINE)
        while not all(controller.has_synced for controller in self._controllers):
            await self.clock.sleep(0.01)

    async def _with_lease(self, stop: asyncio.Event) -> int:
        elector = self._elector
        if elector is None:
            return await self._lead(stop, _never())
        elector.start()
        try:
            first = await _first_of(stop.wait(), elector.wait_ended(), elector.wait_acquired())
            if first == 2:
                return await self._lead(stop, elector.wait_ended())
            return OK if first == 0 else FAILED
        finally:
            self._begin_stop()
            outcome = await elector.release()
            if outcome is None:
                self._log.warning("the lease was not given back in time, it will expire")
            elif outcome.lost:
                self._log.error("leadership lost, the process ends", reason=outcome.reason)

    async def _lead(self, stop: asyncio.Event, lost: Coroutine[Any, Any, object]) -> int:
        """Run hooks and workers until told to stop, or until `lost` returns."""
        async with TaskScope() as scope:
            losing = scope.spawn(lost, name="leadership")
            if await _first_of(stop.wait(), _ended(losing), self._run_hooks()) == 2:
                workers = self._start_workers(scope)
                await _first_of(stop.wait(), _ended(losing))
                self._begin_stop()
                if not losing.done():
                    await self._drain(workers)
            code = FAILED if losing.done() else OK
            scope.cancel()
        return code

    async def _run_hooks(self) -> None:
        for hook in self._hooks:
            await hook()

    def _start_workers(self, scope: TaskScope) -> list[asyncio.Task[None]]:
        self._leading.set()
        for name, runnable, leader_only in self._runnables:
            if leader_only:
                scope.spawn(self._guard(name, runnable.run()), name=name)
        self._log.info("leading", controllers=[controller.name for controller in self._controllers])
        return [
            scope.spawn(self._guard(controller.name, controller.run()), name=controller.name)
            for controller in self._controllers
        ]

    async def _drain(self, workers: list[asyncio.Task[None]]) -> None:
        """Let reconciles in progress end and write the events they left."""
        if workers:
            _, late = await asyncio.wait(workers, timeout=DRAIN_DEADLINE)
            if late:
                names = sorted(task.get_name() for task in late)
                self._log.warning("reconciles did not end in time and are cancelled", controllers=names)
        await self.events.flush(timeout=FLUSH_DEADLINE)

    def _begin_stop(self) -> None:
        self._is_stopping = True
        for controller in self._controllers:
            controller.shutdown()

    def _watch_failed(self, selection: Selection, error: RuntimeFault | None, cause: Cause) -> None:
        """Say why a cache lags behind; the reflector goes on trying, with backoff (W16)."""
        self._log.warning(
            "cannot list or watch, trying again",
            what=str(selection),
            reason=cause.value,
            error=str(error or ""),
        )

    async def _guard(self, name: str, running: Coroutine[Any, Any, None]) -> None:
        """Run a part that should run for ever, and note if it does not (W16)."""
        try:
            await running
        finally:
            task = asyncio.current_task()
            if not self._is_stopping and task is not None and not task.cancelling():
                self._dead[name] = "ended unexpectedly"
                self._log.error("a task that should run for ever has ended", task=name)

    async def _cleanly(self, stopping: Coroutine[Any, Any, None], name: str) -> None:
        try:
            async with asyncio.timeout(CLEANUP_DEADLINE):
                await stopping
        except TimeoutError:
            self._log.warning("a server did not stop in time and is left", server=name)

    def _check_tasks(self) -> str | None:
        return "; ".join(f"{name} {told}" for name, told in self._dead.items()) or None

    def _check_ready(self) -> str | None:
        if self._is_stopping:
            return "the process is stopping"
        return None if self._is_ready else "caches are not synced yet"


def run_manager(factory: Callable[[], Manager | Awaitable[Manager]], *, uvloop: bool = True) -> int:
    """Build a manager on a new event loop, run it until SIGTERM or SIGINT, and return the exit code.

    A second signal ends the process at once, whatever the loop is doing: after the first one, the signal's default
    action is in place again. A leader that stands still until a rival may write is ended by the kernel, with exit
    code 64.
    """

    async def main() -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            get_logger("runtime.manager").info("stopping", signal=number.name)
            for each in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(each)
                signal.signal(each, signal.SIG_DFL)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        built = factory()
        manager = await built if inspect.isawaitable(built) else built
        manager.end_process_with_lease()
        return await manager.run(stop)

    with asyncio.Runner(loop_factory=_uvloop_factory() if uvloop else None) as runner:
        return runner.run(main())


def _uvloop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    import uvloop

    return uvloop.new_event_loop


async def _first_of(*waits: Coroutine[Any, Any, object]) -> int:
    """Await several things at once and return the position of the first that is over, the lowest if several are.

    Cancellation: cancels all of them and waits for it.
    Raises: what the one that came first raised.
    """
    async with TaskScope() as scope:
        tasks = [scope.spawn(wait, name=f"wait {number}") for number, wait in enumerate(waits)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        first = next(number for number, task in enumerate(tasks) if task.done())
        scope.cancel()
    return first


async def _ended(task: asyncio.Task[object]) -> None:
    """Wait for a task without cancelling it when the wait is cancelled."""
    await asyncio.wait({task})


async def _never() -> None:
    await asyncio.Event().wait()
