"""The supervisor's control socket: one JSON request and one JSON answer per connection.

A unix socket in the cluster's folder, which only its owner can enter: whoever may use the folder may use the cluster.
The path goes through `/proc/self/fd`, because a socket's path is limited to 107 bytes and home folders are not.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from trainer_operator.devcluster.errors import ClusterFault, ClusterNotRunning

SOCKET = "control.sock"
_LIMIT = 1 << 20  # bytes of one message

Message = dict[str, Any]  # Any: the JSON edge
Handler = Callable[[Message], Awaitable[Message]]


@asynccontextmanager
async def serving(folder: Path, handler: Handler) -> AsyncIterator[None]:
    """Answer requests with `handler` while the context lasts.

    A `ClusterFault` of the handler is the answer's `error`; malformed requests are refused and harm nothing.
    Assumptions: the caller holds the cluster's lock, so that a socket that is there is left over.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await _reply(await reader.readline(), handler)
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        except (OSError, ValueError):
            pass  # the client went away, or sent a line without end: it gets no answer
        finally:
            writer.close()

    with _short_path(folder) as path:
        (folder / SOCKET).unlink(missing_ok=True)
        server = await asyncio.start_unix_server(answer, path, limit=_LIMIT)
        try:
            yield
        finally:
            server.close()
            (folder / SOCKET).unlink(missing_ok=True)


def call(folder: Path, request: Message, *, timeout: float = 30.0) -> Message:
    """Send one request to the supervisor of this folder and return its answer.

    Raises: ClusterNotRunning when nobody listens; ClusterFault with the supervisor's own words, or when it is silent.
    """
    try:
        with _short_path(folder) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                line = stream.readline(_LIMIT)
    except TimeoutError:
        raise ClusterFault(f"the cluster's supervisor gave no answer within {timeout:.0f} s") from None
    except OSError:
        raise ClusterNotRunning(
            f"the cluster {folder.name} is not up: run `trainer-operator dev up`"
        ) from None
    answer = _decode(line)
    if answer is None:
        raise ClusterNotRunning(f"the supervisor of cluster {folder.name} ended before it answered")
    if "error" in answer:
        raise ClusterFault(str(answer["error"]))
    return answer


async def _reply(line: bytes, handler: Handler) -> Message:
    request = _decode(line)
    if request is None:
        return {"error": "the request is not a JSON object"}
    try:
        return await handler(request)
    except ClusterFault as fault:
        return {"error": str(fault)}


def _decode(line: bytes) -> Message | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
