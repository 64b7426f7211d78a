"""One training process in its own session and process group (AG1).

A thread sits in `waitid`, so an exit is seen in less than 10 ms. It looks without reaping first: as long as the
zombie is there its process group id cannot be reused, so what is left of the group can be killed safely.

What it writes passes through us, so that steps can be read from it (AG5): as it comes, piece by piece, and no faster than
our own streams take it. If one of them is closed, its output is read all the same and let go.
"""

from __future__ import annotations

import collections
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import IO, Any, Callable, Deque, List, Mapping, Optional, TextIO

from trainer_operator.agent.output import StepReader

TAIL_BYTES = 16 * 1024
_DRAIN = 1.0


class StartFailed(Exception):
    """The command could not be started; `code` is what a shell would report, 126 or 127."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Process:
    """A running or ended training process.

    Guarantees: `on_exit(self, code, signal)` is called exactly once, from the waiting thread, after every process of
    the group was killed; `code` is 128 + signal when a signal ended it.
    """

    def __init__(
        self,
        command: List[str],
        *,
        environment: Mapping[str, str],
        on_exit: Callable[["Process", int, int], None],
        on_step: Callable[[int], None] = lambda _step: None,
    ) -> None:
        """Start the command. `on_step` hears of the steps that it prints (AG5).

        Raises: StartFailed.
        """
        try:
            self._child = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            raise StartFailed(
                "cannot start %r: %s" % (command[0], error.strerror or error), 127 if missing else 126
            ) from error
        self.pid = self._child.pid
        self._on_exit, self._on_step = on_exit, on_step
        self._ended = threading.Event()
        self._tail: Deque[bytes] = collections.deque()
        self._tail_bytes = 0
        self.written = 0
        """Bytes that the process wrote to stderr so far."""
        self._readers = [
            threading.Thread(target=self._forward, args=streams, name=name, daemon=True)
            for name, *streams in (
                ("stdout", self._child.stdout, _number(sys.__stdout__)),
                ("stderr", self._child.stderr, _number(sys.__stderr__)),
            )
        ]
        self._waiter = threading.Thread(target=self._wait, name="waitpid", daemon=True)

    def watch(self) -> None:
        """Begin to watch; separate from the start, so that the owner knows the process before it can end."""
        for reader in self._readers:
            reader.start()
        self._waiter.start()

    @property
    def is_alive(self) -> bool:
        """Whether the exit was not yet reported."""
        return not self._ended.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Wait for the end; true once `on_exit` has returned."""
        return self._ended.wait(timeout)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; an ended one is left alone."""
        if self.is_alive:
            try:
                os.killpg(self.pid, number)
            except (ProcessLookupError, PermissionError):
                return

    def stop(self, budget: float) -> None:
        """End the process: SIGTERM, after `budget` seconds SIGKILL, for the whole group."""
        self.signal(signal.SIGTERM)
        if not self.wait(budget):
            self.signal(signal.SIGKILL)
            self.wait()

    def tail(self) -> str:
        """Return the end of what the process wrote to stderr."""
        return b"".join(list(self._tail))[-TAIL_BYTES:].decode("utf-8", "replace")

    def _wait(self) -> None:
        self._await_exit()
        try:
            os.killpg(self.pid, signal.SIGKILL)  # data loaders and the like that outlived their parent
        except (ProcessLookupError, PermissionError):
            pass
        status = self._child.wait()
        drained = time.monotonic() + _DRAIN
        for reader in self._readers:  # a stranger may hold the pipe open: do not wait for it
            reader.join(max(0.0, drained - time.monotonic()))
        if os.getpid() == 1:
            _reap_orphans()
        code, number = (status, 0) if status >= 0 else (128 - status, -status)
        try:
            self._on_exit(self, code, number)
        finally:
            self._ended.set()

    def _await_exit(self) -> None:
        """Return when the process is a zombie; as process 1 also reap orphans that others left to us."""
        if os.getpid() != 1:
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            return
        while True:
            found: Any = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            if found is None or found.si_pid == self.pid:
                return
            os.waitpid(found.si_pid, 0)

    def _forward(self, source: Optional[IO[bytes]], own: Optional[int]) -> None:
        if source is None:
            return
        steps = StepReader()
        with source:
            while True:
                data = os.read(source.fileno(), 65536)
                if not data:
                    return
                if source is self._child.stderr:
                    self._keep(data)
                if own is not None:
                    _write(own, data)
                step = steps.feed(data)
                if step is not None:
                    self._on_step(step)

    def _keep(self, data: bytes) -> None:
        self._tail.append(data)
        self.written += len(data)
        self._tail_bytes += len(data)
        while len(self._tail) > 1 and self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())


def _number(stream: Optional[TextIO]) -> Optional[int]:
    """Return the descriptor of one of our streams; None if it was closed before we began: the number is another's."""
    try:
        return stream.fileno() if stream is not None else None
    except (OSError, ValueError):
        return None


def _write(own: int, data: bytes) -> None:
    """Write all of it, however slowly it is taken; let it go if nobody is there to take it."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(own, left) :]
        except BlockingIOError:  # another program made the stream non-blocking: we wait all the same
            select.select([], [own], [])
        except (OSError, ValueError):
            return


def _reap_orphans() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
