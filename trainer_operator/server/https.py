"""The operator's one TLS server: agent API now, webhooks beside it.

Plain aiohttp with an SSL context from a certificate folder (`tls.crt`, `tls.key`, optional `ca.crt`), as a mounted
Secret of cert-manager has it.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

from aiohttp import web

from runtime.errors import RuntimeFault
from runtime.listener import TlsListener

MAX_HEADER_BYTES = 8 * 1024


class CertificateMissing(RuntimeFault):
    """A file of the certificate folder is not there or not readable."""


def tls_context(folder: Path) -> ssl.SSLContext:
    """Load `tls.crt` and `tls.key`; TLS 1.2 and newer.

    Raises: CertificateMissing with the path.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise CertificateMissing(
            f"cannot load tls.crt and tls.key from {folder}: {error}; put the certificate there or name another "
            "folder with --certificate-folder"
        ) from error
    return context


class HttpsServer:
    """A server that is started before the caches and stopped after everything else."""

    def __init__(
        self, host: str, port: int, *, context: ssl.SSLContext, routes: Iterable[web.RouteDef]
    ) -> None:
        self._host = host
        self.port = port
        application = web.Application(client_max_size=256 * 1024)
        application.add_routes(routes)
        self._listener = TlsListener(application, context=context, max_line_size=MAX_HEADER_BYTES)

    async def start(self) -> None:
        """Listen; with port 0 a free one is taken and `port` says which."""
        await self._listener.start(self._host, self.port)
        self.port = self._listener.port

    async def stop(self) -> None:
        """Close the listener and give open requests two seconds."""
        await self._listener.stop()
