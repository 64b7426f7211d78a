"""The TLS server: its certificate, its port, its limits."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import ClientSession, TCPConnector, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from runtime.clock import SystemClock
from runtime.metrics import Metrics
from runtime.tasks import TaskScope
from runtime.testing.clock import SimClock
from runtime.webhook import CertificateWatcher
from trainer_operator.server.https import RETRY, Authority, HttpsServer


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


def server_of(folder, clock=None):
    clock = clock or SystemClock()
    watcher = CertificateWatcher(folder / "tls.crt", folder / "tls.key", clock=clock, metrics=Metrics())
    return HttpsServer("127.0.0.1", 0, certificate=watcher, clock=clock, routes=[web.post("/", hello)])


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key", "both", "content"])
async def test_a_server_waits_for_its_certificate_and_says_what_is_missing(tmp_path, missing):
    """TR43, EC5: a Secret that is empty or not there yet ends nothing; until it is served nothing is ready."""
    certificate(tmp_path)
    whole = {name: (tmp_path / name).read_bytes() for name in ("tls.crt", "tls.key")}
    for name in whole:
        if missing in {name, "both"}:
            (tmp_path / name).unlink()
        elif missing == "content":
            (tmp_path / name).write_bytes(b"")
    clock = SimClock(origin=datetime.now(UTC))
    server = server_of(tmp_path, clock)
    async with TaskScope() as scope:
        starting = scope.spawn(server.start(), name="start")
        for _ in range(3):
            await settle()
            clock.advance(RETRY)
        await settle()
        assert not starting.done()
        assert str(tmp_path) in server.check()
        assert "--certificate-folder" in server.check()
        for name, content in whole.items():
            (tmp_path / name).write_bytes(content)
        clock.advance(RETRY)
        await starting
    assert server.check() is None
    trust = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    async with (
        ClientSession(connector=TCPConnector(ssl=trust, force_close=True)) as session,
        session.post(f"https://localhost:{server.port}/", data=b"x") as answer,
    ):
        assert answer.status == 200
    await server.stop()


async def test_a_server_that_waits_for_its_certificate_can_be_stopped(tmp_path):
    """TR43: a signal ends the wait."""
    server = server_of(tmp_path, SimClock())
    async with TaskScope() as scope:
        starting = scope.spawn(server.start(), name="start")
        await settle()
        starting.cancel()
    await server.stop()
    assert server.check() is not None


def test_agents_trust_what_the_folder_says_at_the_moment(tmp_path):
    """TR43, CT5."""
    authority, secret = Authority(tmp_path), tmp_path / "ca.crt"
    assert authority.pem() == ""
    for number in range(3):  # as a mounted Secret is exchanged: by another link, to a file of the same size
        (tmp_path / f"data-{number}").write_text(f"PEM {number}")
        (tmp_path / "incoming").symlink_to(f"data-{number}")
        (tmp_path / "incoming").rename(secret)
        assert authority.pem() == authority.pem() == f"PEM {number}"
    secret.unlink()
    assert authority.pem() == ""


async def settle():
    """Let tasks run until they wait for the clock."""
    for _ in range(5):
        await asyncio.sleep(0)


async def hello(request):
    return web.Response(text=f"{len(await request.read())}")


async def test_a_free_port_is_taken_and_told_and_given_back(folder):
    server = server_of(folder)
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
