"""Connections to the API server: one TLS context, one session for calls, one for watches (K5, K8).

aiohttp sets no keepalive, and a proxy that swallows a stream keeps the socket open for ever (PY7). Sockets are
therefore made here: probes after 30 s of idleness, and data unacknowledged for 30 s ends the connection (W11).
"""

import asyncio
import hashlib
import os
import socket
import ssl
import tempfile
import weakref
from pathlib import Path
from typing import Any

import aiohttp

from runtime.client.config import ClientConfig
from runtime.errors import ConfigurationInvalid, RuntimeFault

__all__ = ["Transport", "keepalive_socket"]

_TLS_CHECK_PERIOD = 60.0


def keepalive_socket(address: Any) -> socket.socket:
    """Make a socket that notices a dead peer: idle 30 s, every 10 s, 3 probes, 30 s for unacknowledged data."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 30),
        ("TCP_KEEPINTVL", 10),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 30_000),
    ):
        if hasattr(socket, option):  # not every platform has all of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class Transport:
    """The two sessions of one client; belongs to one event loop.

    Guarantees: watches never take connections from calls; `close` cuts what the server is slow to end.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._context: ssl.SSLContext | None = None
        self._calls: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._fingerprint = b""
        self._checked_at = float("-inf")
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def open(self) -> None:
        """Make the TLS context and the sessions.

        Raises: ConfigurationInvalid when a certificate or key cannot be used.
        """
        if self._calls is not None:
            return
        if self._config.server.startswith("https://"):
            self._context = await asyncio.to_thread(_tls_context, self._config)
            self._fingerprint = await asyncio.to_thread(_fingerprint, self._config)
        self._calls = self._session(limit=self._config.in_flight)
        self._watches = self._session(limit=0)

    async def close(self) -> None:
        """Close both sessions; idempotent."""
        for session in (self._calls, self._watches):
            if session is not None:
                await session.close()
        self._calls = self._watches = None
        await self._cut_lingering()

    async def _cut_lingering(self) -> None:
        """End connections that still wait for the server's goodbye: TLS grants it 30 s, our loop may not live on."""
        for sock in tuple(self._sockets):
            if sock.fileno() >= 0:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:  # never connected, or cut by the other side
                    continue
        for _ in range(20):
            if all(sock.fileno() < 0 for sock in self._sockets):
                return
            await asyncio.sleep(0.001)

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        sock = keepalive_socket(address)
        self._sockets.add(sock)
        return sock

    @property
    def calls(self) -> aiohttp.ClientSession:
        """Return the session for ordinary requests."""
        return _opened(self._calls)

    @property
    def watches(self) -> aiohttp.ClientSession:
        """Return the session for watches; its pool has no limit, for each watch holds a connection."""
        return _opened(self._watches)

    async def refresh(self, now: float) -> None:
        """Load certificate files that changed into the context, for the connections to come (K1).

        A replaced CA stays trusted until the process ends: both are valid while a rotation lasts.
        """
        if self._context is None or now - self._checked_at < _TLS_CHECK_PERIOD:
            return
        self._checked_at = now
        fingerprint = await asyncio.to_thread(_fingerprint, self._config)
        if fingerprint and fingerprint != self._fingerprint:
            await asyncio.to_thread(_load, self._context, self._config)
            self._fingerprint = fingerprint

    def _session(self, *, limit: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=limit,
            ssl=self._context if self._context is not None else False,
            socket_factory=self._socket,
            keepalive_timeout=60,
        )
        session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": self._config.user_agent},
            timeout=aiohttp.ClientTimeout(
                total=self._config.timeouts.total,
                sock_connect=self._config.timeouts.connect,
                sock_read=self._config.timeouts.read,
            ),
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # aiohttp repeats PUT and DELETE by itself when a connection breaks, past the fence and unseen by our retry
        # (K2, L6). There is no public switch; a fault test notices if this one stops working.
        session._retry_connection = False
        return session


def _opened(session: aiohttp.ClientSession | None) -> aiohttp.ClientSession:
    if session is None:
        raise RuntimeFault("the client is not open; use it as `async with Client(config)`")
    return session


def _tls_context(config: ClientConfig) -> ssl.SSLContext:
    context = ssl.create_default_context() if not (config.ca_data or config.ca_file) else _bare_context()
    _load(context, config)
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _bare_context() -> ssl.SSLContext:
    """Make a context that trusts nobody yet: a cluster's CA replaces the machine's, it does not join them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, config: ClientConfig) -> None:
    try:
        if config.ca_data:
            context.load_verify_locations(cadata=config.ca_data.decode())
        elif config.ca_file:
            context.load_verify_locations(cafile=config.ca_file)
        if config.client_certificate_data and config.client_key_data:
            with tempfile.TemporaryDirectory() as directory:  # ssl reads certificates from files only
                certificate, key = _write_private(
                    directory, config.client_certificate_data, config.client_key_data
                )
                context.load_cert_chain(certificate, key)
        elif config.client_certificate_file:
            context.load_cert_chain(config.client_certificate_file, config.client_key_file)
    except (OSError, ValueError) as error:
        raise ConfigurationInvalid(f"certificates for {config.server} cannot be used: {error}") from error


def _write_private(directory: str, certificate: bytes, key: bytes) -> tuple[str, str]:
    paths = []
    for name, content in (("tls.crt", certificate), ("tls.key", key)):
        path = os.path.join(directory, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        paths.append(path)
    return paths[0], paths[1]


def _fingerprint(config: ClientConfig) -> bytes:
    """Hash the certificate files; empty when one cannot be read just now, so that the old ones stay in force."""
    digest = hashlib.sha256()
    for path in (config.ca_file, config.client_certificate_file, config.client_key_file):
        if path:
            try:
                digest.update(Path(path).read_bytes())
            except OSError:
                return b""
    return digest.digest()
