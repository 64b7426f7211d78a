"""Certificates of a development cluster: one authority, short commands, no shell tools.

Keys are P-256: an RSA key takes tens of times longer to make. The authority and the service account key are kept for
the cluster's life, so that kubeconfigs and tokens stay valid over a restart; leaf certificates are cheap and are
issued at each start. Private keys are written with mode 0600 and never half (temporary file and rename).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = dt.timedelta(days=3650)
LEAF_LIFETIME = dt.timedelta(days=365)
_CLOCK_SKEW = dt.timedelta(hours=1)
_RENEW_BEFORE = dt.timedelta(days=400)  # an authority must outlive every leaf it issues

ADMIN = "admin"
ADMIN_GROUPS = ("system:masters",)
NODE_GROUPS = ("system:nodes",)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Files of a certificate and its private key."""

    certificate: Path
    key: Path


class CertificateAuthority:
    """The cluster's only authority: it signs servers and clients alike."""

    def __init__(self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key

    @classmethod
    def open(cls, folder: Path, *, now: dt.datetime | None = None) -> CertificateAuthority:
        """Load the authority of this folder, or make one when it is missing, broken or about to expire."""
        now = now or dt.datetime.now(dt.UTC)
        loaded = _load(folder, now)
        if loaded is not None:
            return cls(folder, *loaded)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("trainer-operator-dev", ())
        certificate = (
            _builder(subject, subject, key.public_key(), now=now, lifetime=AUTHORITY_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        authority = cls(folder, certificate, key)
        _write_private(authority.key_file, _key_pem(key))
        _write_private(authority.certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
        return authority

    @property
    def certificate_file(self) -> Path:
        """The authority's certificate, for clients to trust."""
        return self.folder / "ca.crt"

    @property
    def key_file(self) -> Path:
        """The authority's private key; kube-controller-manager signs requests with it."""
        return self.folder / "ca.key"

    def issue_server(
        self,
        name: str,
        *,
        hosts: Iterable[str],
        folder: Path | None = None,
        now: dt.datetime | None = None,
    ) -> KeyPair:
        """Issue a serving certificate for these host names and IP addresses."""
        alternatives = x509.SubjectAlternativeName([_host(host) for host in hosts])
        return self._issue(
            name,
            _name(name, ()),
            ExtendedKeyUsageOID.SERVER_AUTH,
            alternatives=alternatives,
            folder=folder,
            now=now,
        )

    def issue_client(
        self,
        user: str,
        *,
        groups: Iterable[str] = (),
        folder: Path | None = None,
        now: dt.datetime | None = None,
    ) -> KeyPair:
        """Issue a client certificate: the API server reads the user and groups from its subject."""
        return self._issue(
            file_stem(user), _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, folder=folder, now=now
        )

    def _issue(
        self,
        stem: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        *,
        alternatives: x509.SubjectAlternativeName | None = None,
        folder: Path | None,
        now: dt.datetime | None,
    ) -> KeyPair:
        now = now or dt.datetime.now(dt.UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._certificate.subject, key.public_key(), now=now, lifetime=LEAF_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(  # Python 3.13 refuses a certificate without it
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        target = folder or self.folder
        pair = KeyPair(target / f"{stem}.crt", target / f"{stem}.key")
        _write_private(pair.key, _key_pem(key))
        _write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        return pair


def ensure_signing_key(path: Path) -> Path:
    """Make the key that signs service account tokens, unless it is there already."""
    if not path.exists():
        _write_private(path, _key_pem(ec.generate_private_key(ec.SECP256R1())))
    return path


def file_stem(user: str) -> str:
    """Return a file name for a user such as `system:node:node-0`."""
    return "".join(character if character.isalnum() or character in "-._" else "-" for character in user)


def _load(folder: Path, now: dt.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        return None
    if certificate.not_valid_after_utc - now < _RENEW_BEFORE:
        return None
    return certificate, key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    *,
    now: dt.datetime,
    lifetime: dt.timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str, groups: Iterable[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # the API server reads token keys in no other format
        serialization.NoEncryption(),
    )


def _write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
