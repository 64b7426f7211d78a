"""The TLS server: its certificate, its port, its limits."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession, TCPConnector, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from trainer_operator.server.https import CertificateMissing, HttpsServer, tls_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("certificates"))


def certificate(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.key").write_bytes(private)
    return folder


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "both", "content"])
def test_a_certificate_that_is_not_there_is_named_with_what_to_do(tmp_path, missing):
    certificate(tmp_path)
    for name in ("tls.crt", "tls.key"):
        if missing in {name, "both"}:
            (tmp_path / name).unlink()
        elif missing == "content":
            (tmp_path / name).write_text("nothing")
    with pytest.raises(CertificateMissing) as refused:
        tls_context(tmp_path)
    assert str(tmp_path) in str(refused.value)
    assert "--certificate-folder" in str(refused.value)


def test_old_protocols_are_refused(folder):
    assert tls_context(folder).minimum_version is ssl.TLSVersion.TLSv1_2


async def hello(request):
    return web.Response(text=f"{len(await request.read())}")


async def test_a_free_port_is_taken_and_told_and_given_back(folder):
    server = HttpsServer("127.0.0.1", 0, context=tls_context(folder), routes=[web.post("/", hello)])
    await server.start()
    trust = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    async with ClientSession(connector=TCPConnector(ssl=trust, force_close=True)) as session:
        async with session.post(f"https://localhost:{server.port}/", data=b"x" * 1000) as answer:
            assert (answer.status, await answer.text()) == (200, "1000")
        async with session.post(f"https://localhost:{server.port}/", data=b"x" * 300_000) as answer:
            assert answer.status == 413
        await server.stop()
        with pytest.raises(OSError):
            await session.post(f"https://localhost:{server.port}/")
