"""The elector: an election in a thread, an event loop and a session of its own (L5, L8-L10).

The main loop may stall, on a collection or on one large list (PY2); renewals must not wait for it, and the fence must
shut in time although nobody on the main loop could shut it. Only plain events cross between the two threads.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from runtime.client.config import ClientConfig
from runtime.client.errors import NotFound
from runtime.client.rest import Client
from runtime.clock import Clock, SystemClock
from runtime.errors import RuntimeFault
from runtime.fence import Fence
from runtime.leaderelection.deadline import ProcessDeadline
from runtime.leaderelection.driver import ElectionDriver
from runtime.leaderelection.record import Lease, lease_from_object, lease_to_object
from runtime.leaderelection.release import watch_releases
from runtime.leaderelection.step import Ended, Terms
from runtime.metrics import Metrics
from runtime.objects import LEASES
from runtime.tasks import TaskScope

__all__ = ["ApiLeaseStore", "LeaderElectionConfig", "LeaderElector", "new_identity"]

STALE_GRACE = 20.0
"""Seconds beyond the lease duration after which a leader that does not renew is not live (L8)."""

RELEASE_DEADLINE = 5.0
"""Seconds that giving the lease back may take; after that it is left to expire."""


def new_identity() -> str:
    """Return an identity that no other process has: the pod's name, which is its host name, and a uuid (L10)."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Which lease to hold, and for how long; durations in seconds, the defaults are client-go's."""

    namespace: str
    name: str
    identity: str | None = None
    """None asks for a new one; two processes must never share one."""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class ApiLeaseStore:
    """The lease as an object of the API server."""

    def __init__(self, client: Client, *, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    async def read(self) -> Lease | None:
        """Return the lease, or None if there is none."""
        try:
            return lease_from_object(await self._client.get(LEASES, self._name, self._namespace))
        except NotFound:
            return None

    async def write(self, lease: Lease) -> Lease:
        """Create the lease if it has no version, else update it at its version.

        Raises: AlreadyExists, Conflict when another party was faster.
        """
        body = lease_to_object(lease, namespace=self._namespace, name=self._name)
        if lease.version:
            return lease_from_object(await self._client.replace(LEASES, body))
        return lease_from_object(await self._client.create(LEASES, body, namespace=self._namespace))


class LeaderElector:
    """One candidacy for one lease; start it once, on the main loop.

    Guarantees: the fence is shut whenever the election is over, for whatever reason, a crash of the elector's own
    thread included.
    Raises: ConfigurationInvalid when the durations cannot keep two leaders apart (L1).
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        namespace: str,
        name: str,
        fence: Fence,
        identity: str | None = None,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._namespace = namespace
        self._name = name
        self._fence = fence
        self._terms = Terms(identity or new_identity(), lease_duration, renew_deadline, retry_period)
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._acquired = asyncio.Event()
        self._ended = asyncio.Event()
        self._outcome: Ended | None = None
        self._main: asyncio.AbstractEventLoop | None = None
        self._own: asyncio.AbstractEventLoop | None = None
        self._driver: ElectionDriver | None = None
        self._task: asyncio.Task[Ended] | None = None
        self._is_stopping = False
        self._deadline: ProcessDeadline | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"elector {name}", daemon=True)

    @property
    def identity(self) -> str:
        """The name under which this process holds the lease."""
        return self._terms.identity

    @property
    def is_leader(self) -> bool:
        """Whether this process may write now."""
        return self._fence.is_open

    @property
    def outcome(self) -> Ended | None:
        """How the election ended; None while it goes on."""
        return self._outcome

    def end_process_with_lease(self) -> None:
        """Have the kernel end this process if it still holds on to writes when a rival may begin (L6, L9).

        Call it before `start`, on the main loop's thread, in a process of one's own: it ends with
        `deadline.EXIT_CODE`, without unwinding. `release` calls it off.
        """
        self._deadline = ProcessDeadline()

    def start(self) -> None:
        """Begin; returns at once.

        Raises: RuntimeError when started twice (from `threading`), or without a running loop.
        """
        self._main = asyncio.get_running_loop()
        self._thread.start()

    async def wait_acquired(self) -> None:
        """Wait until this process leads; for ever, if it never does."""
        await self._acquired.wait()

    async def wait_ended(self) -> Ended:
        """Wait until the election is over: lost, given back, or broken."""
        await self._ended.wait()
        assert self._outcome is not None
        return self._outcome

    async def release(self) -> Ended | None:
        """Shut the fence, give the lease back and end the thread (L7).

        Call it after everything the fence guards has ended. Returns None if the API server did not answer within
        RELEASE_DEADLINE; the lease then expires by itself.
        Cancellation: the thread ends without giving the lease back.
        """
        if self._deadline is not None:
            self._deadline.call_off()
        if self._main is None:
            return None
        with self._lock:
            self._is_stopping = True
            if self._driver is not None:
                self._call(self._driver.stop)
        try:
            async with asyncio.timeout(RELEASE_DEADLINE):
                return await self.wait_ended()
        except TimeoutError:
            return None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Shut the fence and end the thread without giving the lease back, as a crash would. Idempotent."""
        self._fence.close("the election was abandoned")
        with self._lock:
            self._is_stopping = True
            if self._task is not None:
                self._call(self._task.cancel)

    def check(self) -> str | None:
        """Return why the process should be restarted, or None: a leader must renew (L8)."""
        driver = self._driver
        if driver is None or driver.renewed_at is None or not driver.is_leader:
            return None
        age = self._clock.monotonic() - driver.renewed_at
        if age > self._terms.lease_duration + STALE_GRACE:
            return f"leader, but the last renewal of the lease is {age:.0f} s old"
        return None

    def _call(self, function: Callable[[], object]) -> None:
        """Call a function on the elector's loop, if that still runs. The caller holds the lock."""
        if self._own is not None:
            self._own.call_soon_threadsafe(function)

    def _run(self) -> None:
        outcome = Ended("the elector's thread broke off", lost=True)
        try:
            outcome = asyncio.run(self._elect())
        except asyncio.CancelledError:
            outcome = Ended("the election was abandoned", lost=False)
        except RuntimeFault as error:  # what a client needs to open cannot be read
            outcome = Ended(f"the elector could not start: {error}", lost=True)
        finally:
            self._fence.close("the election has ended")
            self._outcome = outcome
            self._signal(self._ended.set)

    async def _elect(self) -> Ended:
        try:
            async with (
                Client(self._config, clock=self._clock, metrics=self._metrics) as client,
                TaskScope() as scope,
            ):
                driver = ElectionDriver(
                    self._terms,
                    ApiLeaseStore(client, namespace=self._namespace, name=self._name),
                    name=self._name,
                    fence=self._fence,
                    clock=self._clock,
                    rng=random.SystemRandom(),
                    metrics=self._metrics,
                    on_acquired=lambda: self._lead(watching),
                    deadline=self._deadline,
                )
                watching = scope.spawn(
                    watch_releases(
                        client,
                        namespace=self._namespace,
                        name=self._name,
                        clock=self._clock,
                        on_release=driver.look_again,
                    ),
                    name="election watch",
                )
                with self._lock:
                    self._own = asyncio.get_running_loop()
                    self._task = asyncio.current_task()
                    self._driver = driver
                    if self._is_stopping:
                        driver.stop()
                outcome = await driver.run()
                scope.cancel()
                return outcome
        finally:
            with self._lock:
                self._own = None
                self._task = None

    def _lead(self, watching: asyncio.Task[None]) -> None:
        """Tell the main loop; whoever leads has nothing more to wait for."""
        watching.cancel()
        self._signal(self._acquired.set)

    def _signal(self, function: Callable[[], object]) -> None:
        """Call a function on the main loop; a main loop that is gone needs no telling."""
        assert self._main is not None
        try:
            self._main.call_soon_threadsafe(function)
        except RuntimeError:  # the loop was closed
            return
