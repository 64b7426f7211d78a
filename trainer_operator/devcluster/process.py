"""A child process that never outlives us.

Every program of the development cluster is started here. Each runs in a session of its own, so that Ctrl-C in the
terminal reaches only the supervisor, which then stops the rest in order; and each is tied to this process by
`tether.py`, so that it ends even when this process is killed with SIGKILL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")


class Process:
    """A started program with its log file.

    Guarantees: a tethered program is gone when this process is gone, however that came about.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str] | None = None,
        directory: Path | None = None,
        tethered: bool = True,
    ) -> None:
        """Start the program; both output streams are appended to `log`.

        An untethered program goes on when this process ends, as the supervisor of `dev up` has to.

        Raises: RuntimeError outside the main thread, because the tie to us would end with that thread.
        """
        if tethered and threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                f"start {name} from the main thread: the kernel ends it with the thread that started it"
            )
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        tether = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid())] if tethered else []
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*tether, *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ if environ is None else environ),
                cwd=directory,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process ID; the tether keeps its own when it becomes the program."""
        return self._popen.pid

    def exit_code(self) -> int | None:
        """Return how the program ended (negative: by this signal), or None while it runs."""
        return self._popen.poll()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when the program has ended."""
        self._popen.send_signal(number)

    async def stop(self, *, grace: float) -> None:
        """End the program: SIGTERM, and SIGKILL after `grace` seconds.

        Guarantees: the program has ended and is reaped on return.
        Cancellation: the program is killed at once.
        """
        try:
            if grace > 0 and self.exit_code() is None:
                self.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self._popen.wait, grace)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the program and what it started in its own session, at once, and reap it."""
        if self.exit_code() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()

    def tail(self, *, lines: int = 3, limit: int = 4096) -> str:
        """Return the last lines of the log, for error messages."""
        try:
            with self.log.open("rb") as stream:
                stream.seek(0, os.SEEK_END)
                stream.seek(max(0, stream.tell() - limit))
                text = stream.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])
