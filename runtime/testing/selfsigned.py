"""A certificate that a test's server signs for itself.

The key is P-256, for an RSA key takes tens of times longer to make. The certificate is its own authority: whoever is
to trust the server is given the certificate itself.
"""

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtime.clock import Clock, SystemClock

__all__ = ["SelfSigned"]

_LIFETIME = dt.timedelta(days=1)
_SKEW = dt.timedelta(hours=1)


class SelfSigned:
    """A serving certificate for loopback with its key, in memory."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        now = (clock or SystemClock()).utcnow()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback test server")])
        hosts = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        )
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(hosts, critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.certificate: bytes = certificate.public_bytes(serialization.Encoding.PEM)
        """PEM, for clients to trust."""
        self._key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def server_context(self) -> ssl.SSLContext:
        """Return a TLS context that serves with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory() as directory:  # private, mode 0700; ssl reads from files only
            certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            certificate.write_bytes(self.certificate)
            descriptor = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(self._key)
            context.load_cert_chain(certificate, key)
        return context
