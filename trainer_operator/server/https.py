"""The operator's one TLS server: agent API now, webhooks beside it.

Plain aiohttp with the certificate of a folder (`tls.crt`, `tls.key`, optional `ca.crt`), as a mounted Secret of
cert-manager has it. On a fresh installation that Secret is often empty for a while: then the server waits for it, and
the process is alive but not ready, instead of ending and being started again and again (TR43).
"""

from collections.abc import Iterable
from pathlib import Path

import structlog
from aiohttp import web

from runtime.clock import Clock
from runtime.errors import ConfigurationInvalid
from runtime.listener import TlsListener
from runtime.webhook import CertificateWatcher

MAX_HEADER_BYTES = 8 * 1024
RETRY = 1.0
"""Seconds between two looks for a certificate that is not there yet."""
_log = structlog.get_logger("server")


class Authority:
    """The certificates that agents shall trust, as a folder has them.

    It is asked for every pod, and a look whether the file is still the same costs a tenth of reading it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ca.crt"
        self._read: tuple[int, int, int] | None = None
        self._pem = ""

    def pem(self) -> str:
        """Return them as PEM; empty when the folder names none."""
        try:
            found = self._path.stat()  # of the file behind the links of a mounted Secret
        except FileNotFoundError:
            self._read, self._pem = None, ""
            return self._pem
        read = found.st_ino, found.st_mtime_ns, found.st_size
        if read != self._read:
            self._pem, self._read = self._path.read_text(), read
        return self._pem


class HttpsServer:
    """A server that is started before the caches and stopped after everything else."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificate: CertificateWatcher,
        clock: Clock,
        routes: Iterable[web.RouteDef],
    ) -> None:
        self._host = host
        self.port = port
        self._certificate = certificate
        self._clock = clock
        self._problem: str | None = "it does not listen yet"
        application = web.Application(client_max_size=256 * 1024)
        application.add_routes(routes)
        self._listener = TlsListener(application, context=certificate.context, max_line_size=MAX_HEADER_BYTES)

    async def start(self) -> None:
        """Listen as soon as there is a certificate; with port 0 a free one is taken and `port` says which.

        Cancellation: nothing listens.
        """
        while (problem := self._load()) is not None:
            if problem != self._problem:
                _log.warning("the server waits for its certificate", problem=problem)
                self._problem = problem
            await self._clock.sleep(RETRY)
        await self._listener.start(self._host, self.port)
        self.port = self._listener.port
        self._problem = None

    async def stop(self) -> None:
        """Close the listener and give open requests two seconds."""
        await self._listener.stop()

    def check(self) -> str | None:
        """Return why nothing is served, or None."""
        return self._problem

    def _load(self) -> str | None:
        try:
            self._certificate.load()
        except ConfigurationInvalid as error:
            return f"{error}; put tls.crt and tls.key there, or name another folder with --certificate-folder"
        return None
