"""Asking a container how it is: exec, HTTP and TCP probes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp

from runtime.objects import JsonObject
from trainer_operator.devcluster.node.container import ContainerRun, StartRefused, run_in
from trainer_operator.devcluster.node.environment import Unresolved

USER_AGENT = "kube-probe/1.36"
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe found."""

    success: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a probe asks."""

    container: JsonObject
    run: ContainerRun
    env: Mapping[str, str]
    cwd: str
    address: str


def check_probe(probe: JsonObject, container: JsonObject) -> None:
    """Find out before the start what would never work.

    Raises: Unresolved for a probe of an unknown kind or a port name that the container does not have.
    """
    action = probe.get("httpGet") or probe.get("tcpSocket")
    if action is not None:
        port_of(action, container)
    elif "exec" not in probe:
        raise Unresolved("process nodes do exec, httpGet and tcpSocket probes only")


def port_of(action: JsonObject, container: JsonObject) -> int:
    """Return the port of an action, by number or by name.

    Raises: Unresolved when the container has no port of that name.
    """
    port = action.get("port")
    for entry in container.get("ports") or ():
        if entry.get("name") == port:
            return int(entry["containerPort"])
    try:
        return int(str(port))
    except ValueError:
        raise Unresolved(f'container "{container.get("name")}" has no port named "{port}"') from None


async def ask(
    probe: JsonObject, subject: Subject, *, session: aiohttp.ClientSession, timeout: float
) -> Answer:
    """Ask once. Whatever goes wrong on the way is a failed probe."""
    try:
        async with asyncio.timeout(timeout):
            if (command := probe.get("exec")) is not None:
                return await _ask_command(command, subject, timeout)
            if (http := probe.get("httpGet")) is not None:
                return await _ask_http(http, subject, session)
            return await _ask_tcp(probe.get("tcpSocket") or {}, subject)
    except TimeoutError:
        return Answer(False, f"no answer within {timeout:g} s")
    except (OSError, aiohttp.ClientError, StartRefused, ValueError) as failure:
        return Answer(False, str(failure) or type(failure).__name__)


async def _ask_command(action: JsonObject, subject: Subject, timeout: float) -> Answer:
    code, output = await run_in(
        subject.run, action.get("command") or (), env=subject.env, cwd=subject.cwd, timeout=timeout
    )
    text = output[:_SHOWN].decode(errors="replace").strip()
    return Answer(code == 0, text if code == 0 else f"exit code {code}: {text}")


async def _ask_http(action: JsonObject, subject: Subject, session: aiohttp.ClientSession) -> Answer:
    host = action.get("host") or subject.address
    path = action.get("path") or "/"
    url = (
        f"{(action.get('scheme') or 'HTTP').lower()}://{host}:{port_of(action, subject.container)}"
        f"{path if path.startswith('/') else '/' + path}"
    )
    headers = {"User-Agent": USER_AGENT} | {
        header["name"]: header["value"] for header in action.get("httpHeaders") or ()
    }
    async with session.get(url, headers=headers, allow_redirects=False, ssl=False) as response:
        text = (await response.content.read(_SHOWN)).decode(errors="replace")
        return Answer(response.status < 400, f"HTTP status {response.status}: {text.strip()}")


async def _ask_tcp(action: JsonObject, subject: Subject) -> Answer:
    host = action.get("host") or subject.address
    _, writer = await asyncio.open_connection(host, port_of(action, subject.container))
    writer.close()
    with contextlib.suppress(OSError):  # it was open, which is all that was asked
        await writer.wait_closed()
    return Answer(True)
