"""One run of a container: the node's side of `sandbox.py`.

No task belongs to a run. The event loop calls back when a stream has something to say; when all streams are closed
the run is over, for process 1 took everything in its PID namespace with it and the sandbox held the other ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import IO, Protocol

from trainer_operator.devcluster.node import sandbox
from trainer_operator.devcluster.node.containerstate import KILLED_EXIT_CODE, exit_code_of

_LAUNCHER = (sys.executable, "-I", "-S", sandbox.__file__)
_READ_SIZE = 64 * 1024


class StartRefused(Exception):
    """A run could not be started; `stage` is where: `sandbox`, `mount` or `exec`."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class Output(Protocol):
    """Where a run's streams go."""

    def feed(self, stream: str, data: bytes) -> None:
        """Take what `stdout` or `stderr` said."""

    def close(self) -> None:
        """Take nothing more."""


class Captured:
    """Keeps the first bytes of both streams, for exec probes."""

    def __init__(self, limit: int = 10 * 1024) -> None:
        self._limit = limit
        self.data = b""

    def feed(self, stream: str, data: bytes) -> None:  # noqa: ARG002 - both streams are one text to a probe
        """Take what a stream said."""
        self.data = (self.data + data)[: self._limit]

    def close(self) -> None:
        """Do nothing: what was captured stays."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the machine at a path of the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and in what."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    hostname: str = "localhost"
    base: str = ""
    """A folder that the root is assembled on; nothing is written to it."""
    mounts: Sequence[Bind] = field(default=())
    join: int | None = None
    """Process 1 of a container to enter, instead of making a new one."""

    def to_bytes(self) -> bytes:
        """Return what the sandbox reads."""
        return marshal.dumps(
            {
                "mode": "run" if self.join is None else "exec",
                "parent": os.getpid(),
                "pid": self.join,
                "argv": list(self.argv),
                "env": dict(self.env),
                "cwd": self.cwd,
                "hostname": self.hostname,
                "base": self.base,
                "mounts": [asdict(mount) for mount in self.mounts],
            }
        )


class ContainerRun:
    """A started container.

    Guarantees: `on_exit` is called once, from the event loop, after all output was fed and every process is gone.
    """

    def __init__(
        self, launcher: subprocess.Popen[bytes], output: Output, on_exit: Callable[[int], None]
    ) -> None:
        self._launcher = launcher
        self._output = output
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[int] = self._loop.create_future()
        self._reports = b""
        self._open = 0
        self._handle: int | None = None
        self.pid = 0
        """Process 1 of the container, as the machine counts."""
        self.exit_code: int | None = None

    @classmethod
    async def start(
        cls, order: Order, output: Output, *, on_exit: Callable[[int], None] = lambda _: None
    ) -> ContainerRun:
        """Start a run and return once its command was executed.

        Cancellation: the run is killed.
        Raises: StartRefused; the output is closed then.
        """
        control, control_end = os.pipe()
        try:
            launcher = _launch(order, control_end)
        except OSError as failure:
            os.close(control)
            output.close()
            raise StartRefused("sandbox", f"the sandbox cannot be started: {failure}") from failure
        finally:
            os.close(control_end)
        run = cls(launcher, output, on_exit)
        run._watch(os.fdopen(control, "rb", buffering=0), run._take_reports)
        for stream, pipe in (("stdout", launcher.stdout), ("stderr", launcher.stderr)):
            if pipe is not None:
                run._watch(pipe, partial(output.feed, stream))
        try:
            await run._started
        except asyncio.CancelledError:
            run.kill()
            raise
        return run

    def send_signal(self, number: int) -> None:
        """Send a signal to process 1; nothing happens when it is gone."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        """End every process of the container at once."""
        self.send_signal(signal.SIGKILL)
        if self._handle is None:
            self._launcher.kill()  # not started yet: process 1 dies with it

    def _watch(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        descriptor = pipe.fileno()
        os.set_blocking(descriptor, False)
        self._open += 1

        def readable() -> None:
            try:
                data = os.read(descriptor, _READ_SIZE)
            except BlockingIOError:
                return
            if data:
                take(data)
                return
            self._loop.remove_reader(descriptor)
            pipe.close()
            self._open -= 1
            if self._open == 0:
                self._finish()

        self._loop.add_reader(descriptor, readable)

    def _take_reports(self, data: bytes) -> None:
        *lines, self._reports = (self._reports + data).split(b"\n")
        for line in lines:
            kind, _, rest = line.decode().partition(" ")
            if kind == "started":
                self._take_start(int(rest))
            elif kind == "exited":
                self.exit_code = exit_code_of(int(rest))
            elif not self._started.done():
                stage, _, problem = rest.partition(" ")
                self._started.set_exception(StartRefused(stage, problem))

    def _take_start(self, pid: int) -> None:
        self.pid = pid
        with contextlib.suppress(ProcessLookupError):  # it may have ended in the meantime
            self._handle = os.pidfd_open(pid)
        if not self._started.done():
            self._started.set_result(pid)

    def _finish(self) -> None:
        self._launcher.wait()  # it closed its streams: it has ended or is about to
        self._output.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        if not self._started.done():
            self._started.set_exception(
                StartRefused("sandbox", f"the sandbox ended with code {self._launcher.returncode}")
            )
        elif not self._started.cancelled() and self._started.exception() is None:
            # Without a report the sandbox itself was killed, and process 1 with it.
            self.exit_code = KILLED_EXIT_CODE if self.exit_code is None else self.exit_code
            self._on_exit(self.exit_code)


def _launch(order: Order, control_end: int) -> subprocess.Popen[bytes]:
    """Start the sandbox; a couple of milliseconds, so the event loop does it itself.

    It has to be this thread anyway: the sandbox dies with the *thread* that started it.
    """
    with os.fdopen(os.memfd_create("order"), "w+b") as text:
        text.write(order.to_bytes())
        text.seek(0)
        return subprocess.Popen(
            [*_LAUNCHER, str(control_end)],
            stdin=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[control_end],
            start_new_session=True,
            env={},
        )


async def run_in(
    run: ContainerRun, argv: Sequence[str], *, env: Mapping[str, str], cwd: str, timeout: float
) -> tuple[int, bytes]:
    """Run a command inside a container; return its exit code and output.

    Raises: StartRefused when it cannot be started, TimeoutError when it takes too long (it is killed then).
    """
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    output = Captured()
    order = Order(argv=argv, env=env, cwd=cwd, join=run.pid)
    async with asyncio.timeout(timeout):
        inner = await ContainerRun.start(
            order, output, on_exit=lambda code: None if ended.done() else ended.set_result(code)
        )
        try:
            return await ended, output.data
        finally:
            inner.kill()


async def check_sandbox(base: str) -> str:
    """Return why this machine cannot run containers, empty when it can; `base` is an existing folder."""
    order = Order(argv=["true"], env={"PATH": os.defpath}, cwd="/", base=base)
    try:
        await ContainerRun.start(order, Captured())
    except StartRefused as refusal:
        return str(refusal)
    return ""
