"""A way to a pod's port by `kubectl port-forward`, which knows all that API servers and kubeconfigs ask for."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trainer_operator.cli.plugin.access import Access
from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.words import plain

PATIENCE = 30.0
_READY = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+) ")
_GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Forward:
    """A way that is open."""

    address: str
    pod: str
    process: asyncio.subprocess.Process

    async def closed(self) -> Complaint:
        """Wait until kubectl ends, and say so."""
        _, said = await self.process.communicate()
        return _failed(self.pod, said.decode(errors="replace"))


@asynccontextmanager
async def port_forward(
    access: Access, namespace: str, pod: str, port: int, remote: int
) -> AsyncIterator[Forward]:
    """Forward a port of this machine (0: any) to a pod's while the context lasts, and yield it.

    Raises: Complaint when kubectl is not there, or cannot.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise Complaint("kubectl is not on the PATH: give --url where the gateway can be reached without it")
    process = await asyncio.create_subprocess_exec(
        program,
        *_arguments(access, namespace, pod, port, remote),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Forward(f"http://127.0.0.1:{await _opened(process, pod)}", pod, process)
    finally:
        await _end(process)


def _arguments(access: Access, namespace: str, pod: str, port: int, remote: int) -> list[str]:
    arguments = ["port-forward", f"--namespace={namespace}", "--address=127.0.0.1"]
    if access.context is not None:
        arguments.append(f"--context={access.context}")
    if access.kubeconfig is not None:
        arguments.append(f"--kubeconfig={access.kubeconfig}")
    return [*arguments, f"pod/{pod}", f"{port or ''}:{remote}"]


async def _opened(process: asyncio.subprocess.Process, pod: str) -> int:
    """Return the port as soon as kubectl listens on it."""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = await process.stdout.readline()
            found = _READY.match(line)
            if found is not None:
                return int(found[1])
            said = (await process.stderr.read(4096)).decode(errors="replace")
    except TimeoutError:
        said = f"it said nothing for {PATIENCE:g} s"
    raise _failed(pod, said)


def _failed(pod: str, said: str) -> Complaint:
    words = plain(said.strip()[-300:]) or "it ended"
    return Complaint(f"kubectl port-forward to pod {pod} failed: {words}", ExitCode.UNREACHABLE)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
