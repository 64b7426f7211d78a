"""Certificates of a development cluster."""

import datetime as dt
import stat

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from trainer_operator.devcluster.certificates import CertificateAuthority, ensure_signing_key, file_stem

NOW = dt.datetime(2026, 12, 2, 8, tzinfo=dt.UTC)


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


@pytest.fixture
def authority(tmp_path):
    return CertificateAuthority.open(tmp_path, now=NOW)


def verifier(authority):
    return PolicyBuilder().store(Store([load(authority.certificate_file)])).time(NOW)


def test_client_certificate_names_user_and_groups(authority):
    pair = authority.issue_client("system:node:node-0", groups=["system:nodes", "others"], now=NOW)
    subject = load(pair.certificate).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "system:node:node-0"
    ]
    organizations = [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert organizations == ["system:nodes", "others"]


def test_server_certificate_is_trusted_for_its_hosts_only(authority):
    pair = authority.issue_server("kubelet", hosts=["127.0.0.1", "node-0"], now=NOW)
    certificate = load(pair.certificate)
    verifier(authority).build_server_verifier(x509.DNSName("node-0")).verify(certificate, [])
    with pytest.raises(VerificationError):
        verifier(authority).build_server_verifier(x509.DNSName("node-1")).verify(certificate, [])


def test_client_certificate_does_not_serve(authority):
    pair = authority.issue_client("someone", now=NOW)
    usage = load(pair.certificate).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_authority_is_kept_so_that_kubeconfigs_outlive_a_restart(authority, tmp_path):
    before = authority.certificate_file.read_bytes()
    CertificateAuthority.open(tmp_path, now=NOW + dt.timedelta(days=30))
    assert authority.certificate_file.read_bytes() == before


@pytest.mark.parametrize("harm", ["expire", "truncate certificate", "remove key", "foreign key"])
def test_unusable_authority_is_replaced(authority, tmp_path, harm):
    before = authority.certificate_file.read_bytes()
    now = NOW
    if harm == "expire":
        now = NOW + dt.timedelta(days=3640)
    elif harm == "truncate certificate":
        authority.certificate_file.write_bytes(before[:100])
    elif harm == "remove key":
        authority.key_file.unlink()
    else:
        other = CertificateAuthority.open(tmp_path / "other", now=NOW)
        authority.key_file.write_bytes(other.key_file.read_bytes())
    again = CertificateAuthority.open(tmp_path, now=now)
    assert again.certificate_file.read_bytes() != before
    assert load(again.certificate_file).public_key() != x509.load_pem_x509_certificate(before).public_key()


def test_private_keys_are_readable_by_their_owner_only_and_nothing_else_is_left(authority, tmp_path):
    pair = authority.issue_client("someone", now=NOW)
    ensure_signing_key(tmp_path / "service-account.key")
    for key in (pair.key, authority.key_file, tmp_path / "service-account.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"ca.crt", "ca.key", "someone.crt", "someone.key", "service-account.key"}


def test_signing_key_is_kept_and_has_the_form_the_api_server_reads(tmp_path):
    path = ensure_signing_key(tmp_path / "service-account.key")
    before = path.read_bytes()
    assert ensure_signing_key(path).read_bytes() == before
    assert before.startswith(b"-----BEGIN EC PRIVATE KEY-----")


def test_keys_are_p256(authority):
    key = load(authority.issue_client("someone", now=NOW).certificate).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


@pytest.mark.parametrize("user", ["system:node:node-0", "../../etc/passwd", "a b", "über"])
def test_user_name_never_becomes_a_path(user):
    assert "/" not in file_stem(user)
    assert ":" not in file_stem(user)
