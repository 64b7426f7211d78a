"""Looks up host names that tenants chose, on threads of its own.

A name server that does not answer holds a thread for half a minute. On the event loop's own threads eight such names
would stop whatever else runs there, the reading of the API server's token among it.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 8


class NameThreads(AbstractResolver):
    """aiohttp's resolver for connections to foreign hosts; names that find no free thread wait, and nothing else does."""

    def __init__(self, look_up: Callable[..., list[Any]] = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a name.

        Raises: OSError when it has none.
        """
        ask = partial(
            self._look_up, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Let the threads end once they are idle, without waiting for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
