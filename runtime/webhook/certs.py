"""The serving certificate, exchanged under a running server (CT5).

What triggers an exchange is the content of the files, not their time: a mounted Secret is swapped by renaming a link.
A new pair is first tried in a scratch context, for a live context that was given half of it could serve nobody. The
two files are swapped one after the other, so a pair that does not match is looked at again shortly after; the old
pair serves meanwhile. Handshakes that begin after the exchange use the new pair, open connections are left alone.
"""

import hashlib
import ssl
import tempfile
from pathlib import Path

from cryptography import x509

from runtime.clock import Clock
from runtime.errors import ConfigurationInvalid
from runtime.logs import get_logger
from runtime.metrics import Metrics

__all__ = ["CertificateWatcher"]

PERIOD = 10.0
"""Seconds between two looks, as controller-runtime's; the kubelet takes a minute to bring a new Secret."""


class CertificateWatcher:
    """A TLS context that follows a certificate and a key file.

    Guarantees: once loaded there is always a complete, matching pair in `context`; TLS 1.2 is the least.
    """

    def __init__(self, certificate: Path, key: Path, *, clock: Clock, metrics: Metrics) -> None:
        self.context = _new_context()
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._metrics = metrics
        self._digest = b""
        self._log = get_logger("runtime.webhook", certificate=str(certificate))

    def load(self) -> None:
        """Load the first pair.

        Raises: ConfigurationInvalid saying what is wrong with it.
        """
        problem = self._exchange()
        if problem is not None:
            raise ConfigurationInvalid(f"cannot serve with {self._certificate}: {problem}")

    def check(self) -> str | None:
        """Look at the files, take over a new pair, and return what is wrong with it if it was refused."""
        problem = self._exchange()
        if problem is not None:
            self._log.error("new certificate refused, the old one is kept", problem=problem)
        return problem

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await self._clock.sleep(PERIOD)
            self.check()

    def _exchange(self) -> str | None:
        self._metrics.certificate_reads.inc()
        problem: str | None
        try:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
        except OSError as error:
            problem = f"{error.filename or 'a file'} cannot be read: {error.strerror}"
        else:
            digest = hashlib.sha256(hashlib.sha256(pair[0]).digest() + pair[1]).digest()
            if digest == self._digest:
                return None
            problem = self._take(*pair)
            if problem is None:
                self._digest = digest
                return None
        self._metrics.certificate_read_errors.inc()
        return problem

    def _take(self, certificate: bytes, key: bytes) -> str | None:
        try:
            expires = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
        except ValueError:
            return "it is no PEM certificate"
        if expires <= self._clock.utcnow():
            return f"it expired at {expires:%Y-%m-%d %H:%M:%S} UTC"
        # Files of our own, since ssl reads from files only and the ones we read may have been swapped since.
        with tempfile.TemporaryDirectory() as folder:
            copies = Path(folder, "tls.crt"), Path(folder, "tls.key")
            for copy, content in zip(copies, (certificate, key), strict=True):
                copy.touch(mode=0o600)
                copy.write_bytes(content)
            try:
                _new_context().load_cert_chain(*copies, password=_no_password)
                self.context.load_cert_chain(*copies, password=_no_password)
            except (ssl.SSLError, ValueError) as error:
                return f"certificate and key do not fit together: {getattr(error, 'reason', None) or error}"
        return None


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _no_password() -> str:
    """Answer for an encrypted key; without this, ssl would ask on the terminal and block."""
    return ""
