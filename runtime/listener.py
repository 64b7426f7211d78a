"""A TLS listener that owns its connections from the first packet on (ATK7, section 4 of the runtime's rules).

An event loop's own TLS server forgets a connection that is still shaking hands, and offers no way to end it: a stopped
server then leaves sockets behind, and a client that sends nothing holds one for ever. Here handshakes are tasks with a
deadline and a greatest number, a connection has to bring a request in time, and `stop` ends all of them.

    accept ──▶ handshake (10 s, 256 at once) ──▶ first request within 10 s ──▶ aiohttp's keep-alive rules
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from runtime.logs import get_logger
from runtime.tasks import TaskBag

__all__ = ["BODY_DEADLINE", "TlsListener"]

HANDSHAKE_DEADLINE = 10.0
"""Seconds for the client's part of the handshake."""

FIRST_REQUEST_DEADLINE = 10.0
"""Seconds from the handshake to the end of the first request's headers."""

BODY_DEADLINE = 10.0
"""Seconds for the body of a request to arrive, for handlers to use; the API server waits as long for a webhook."""

LATE = 0.1
"""Seconds by which a timer must be late for the loop to have stood still; all deadlines then grow by as much."""

FAREWELL = 1.0
"""Seconds that a closed connection waits for the client's closing alert."""

MAX_HANDSHAKES = 256
"""Handshakes at once; others wait in the kernel's backlog. One costs about 1.5 ms of processor time."""

FULL_RETRY = 1.0
"""Seconds after which a full listener looks whether a connection has ended; nothing tells it."""

MAX_CONNECTIONS = 16_384
"""Open connections; more than all agents of the largest Trainer and its standby operators need."""


class TlsListener:
    """Accepts connections for an application and serves them.

    Guarantees: after `stop` no socket, task or timer of it is left, whatever state its clients were in.
    """

    def __init__(
        self,
        application: web.Application,
        *,
        context: ssl.SSLContext,
        shutdown_timeout: float = 2.0,
        max_line_size: int = 8190,
        max_field_size: int = 32 * 1024,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        application.middlewares.append(self._note_request)
        self._context = context
        self._max_connections = max_connections
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=shutdown_timeout,
            max_line_size=max_line_size,
            max_field_size=max_field_size,
        )
        self._socket: socket.socket | None = None
        self._reading = False
        self._handshakes = TaskBag()
        self._accepted: set[socket.socket] = set()
        self._open: dict[asyncio.BaseProtocol, asyncio.Transport] = {}
        self._look_at = 64
        self._retry: asyncio.TimerHandle | None = None
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        self._log = get_logger("runtime.listener")

    @property
    def port(self) -> int:
        """The port in use, 0 while not listening."""
        return 0 if self._socket is None else int(self._socket.getsockname()[1])

    async def start(self, host: str, port: int) -> None:
        """Begin to listen.

        Raises: OSError when the address cannot be bound.
        """
        await self._runner.setup()
        try:
            self._socket = _bind(host, port)
        except OSError:
            await self._runner.cleanup()
            raise
        self._listen()

    async def stop(self) -> None:
        """Stop to accept, let requests in progress end, then close everything. Idempotent."""
        listening, self._socket = self._socket, None
        if listening is None:
            return
        if self._reading:
            asyncio.get_running_loop().remove_reader(listening)
            self._reading = False
        listening.close()
        await self._handshakes.close()
        for connection in self._accepted:  # cancelled before its first step, a task has no chance to close it
            connection.close()
        self._accepted.clear()
        await self._runner.cleanup()
        for timer in (*self._silent.values(), *([self._retry] if self._retry is not None else [])):
            timer.cancel()
        self._silent.clear()
        # Closed, a TLS connection still waits for the peer's farewell; nothing is under way on it any more.
        for transport in self._open.values():
            transport.abort()
        self._open.clear()
        await asyncio.sleep(0)  # transports close their sockets in the next round of the loop
        await asyncio.sleep(0)

    def _listen(self) -> None:
        """Accept while there is room; the kernel keeps the others waiting."""
        if self._socket is None:
            return
        has_room = self._has_room()
        loop = asyncio.get_running_loop()
        if has_room and not self._reading:
            loop.add_reader(self._socket, self._accept)
        elif not has_room and self._reading:
            loop.remove_reader(self._socket)
        self._reading = has_room
        if not has_room and self._retry is None:
            self._retry = loop.call_later(FULL_RETRY, self._look_again)

    def _look_again(self) -> None:
        self._retry = None
        self._listen()

    def _has_room(self) -> bool:
        """Whether one more connection may be accepted.

        The server's list of connections is asked only when ours has doubled since, or says that all places are taken:
        with ten thousand agents it would otherwise be copied at each of ten thousand handshakes.
        """
        server = self._runner.server
        if server is not None and len(self._open) >= min(self._look_at, self._max_connections):
            self._open = {each: self._open[each] for each in server.connections if each in self._open}
            self._look_at = 2 * len(self._open) + 64
        return len(self._handshakes) < MAX_HANDSHAKES and len(self._open) < self._max_connections

    def _accept(self) -> None:
        if self._socket is None:
            return
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # out of file descriptors: those that end make room again
            self._log.error("cannot accept a connection", error=str(error))
            return
        connection.setblocking(False)
        self._accepted.add(connection)
        self._handshakes.spawn(self._shake_hands(connection), name="tls-handshake")
        self._listen()

    async def _shake_hands(self, connection: socket.socket) -> None:
        self._accepted.discard(connection)
        server = self._runner.server
        if server is None:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, protocol = await loop.connect_accepted_socket(
                server,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_DEADLINE,
                ssl_shutdown_timeout=FAREWELL,
            )
        except (OSError, ssl.SSLError) as error:  # a scan, a probe, a client that trusts somebody else
            connection.close()
            self._log.debug("no handshake", error=str(error) or type(error).__name__)
        else:
            self._open[protocol] = transport
            self._expect_request(protocol, FIRST_REQUEST_DEADLINE)
        finally:
            loop.call_soon(self._listen)  # after this task has left the bag

    def _expect_request(self, protocol: asyncio.BaseProtocol, within: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + within
        self._silent[protocol] = loop.call_at(due, self._drop_silent, protocol, due)

    def _drop_silent(self, protocol: asyncio.BaseProtocol, due: float) -> None:
        late = asyncio.get_running_loop().time() - due
        if late > LATE:  # the request may have come while the loop stood still, and be handled next (TX5)
            self._expect_request(protocol, min(late, FIRST_REQUEST_DEADLINE))
            return
        self._silent.pop(protocol, None)
        transport = self._open.pop(protocol, None)
        if transport is not None:
            transport.abort()
        self._listen()

    @web.middleware
    async def _note_request(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        timer = self._silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await handler(request)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=host == "::")
    listening.setblocking(False)
    return listening
