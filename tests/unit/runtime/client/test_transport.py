"""Sockets, TLS contexts and a stream's deadlines."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runtime.client.config import ClientConfig
from runtime.client.stream import WatchSilent, WatchStream
from runtime.client.transport import Transport, keepalive_socket
from runtime.errors import ConfigurationInvalid, RuntimeFault
from runtime.testing.simloop import simulated


def certificate(name):
    """Return a self-signed CA and its key as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


def subjects(context):
    return sorted(
        dict(part[0] for part in found["subject"])["commonName"] for found in context.get_ca_certs()
    )


def test_sockets_notice_a_dead_peer():
    """W11, PY7: the transport itself would send no keepalive."""
    address = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 0))
    with keepalive_socket(address) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        assert [made.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in options] == [
            30,
            10,
            3,
            30000,
        ]


async def test_a_configuration_has_one_context_and_trusts_its_ca_alone():
    """K8, RT38."""
    ca, _ = certificate("ours")
    transport = Transport(ClientConfig("https://api", ca_data=ca))
    await transport.open()
    try:
        contexts = {id(session.connector._ssl) for session in (transport.calls, transport.watches)}
        assert len(contexts) == 1
        assert subjects(transport._context) == ["ours"]
        assert transport._context.verify_mode == ssl.CERT_REQUIRED
        assert transport.watches.connector.limit == 0
        assert transport.calls.connector.limit == 64  # K5: a hundred watches leave calls their connections
    finally:
        await transport.close()
    with pytest.raises(RuntimeFault):
        _ = transport.calls


async def test_a_replaced_ca_file_is_loaded_within_a_minute(tmp_path):
    """K1."""
    path = tmp_path / "ca.crt"
    path.write_bytes(certificate("first")[0])
    transport = Transport(ClientConfig("https://api", ca_file=str(path)))
    await transport.open()
    try:
        await transport.refresh(0.0)
        path.write_bytes(certificate("second")[0])
        await transport.refresh(59.0)
        assert subjects(transport._context) == ["first"]
        await transport.refresh(61.0)
        assert subjects(transport._context) == ["first", "second"]
        path.unlink()
        await transport.refresh(200.0)
        assert subjects(transport._context) == ["first", "second"]
    finally:
        await transport.close()


async def test_a_client_certificate_is_used_from_memory_and_leaves_no_file(tmp_path, monkeypatch):
    """K1."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    public, private = certificate("me")
    transport = Transport(
        ClientConfig("https://api", client_certificate_data=public, client_key_data=private)
    )
    await transport.open()
    await transport.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"ca_data": b"nonsense"},
        {"ca_file": "/nowhere/ca.crt"},
        {"client_certificate_file": "/nowhere/tls.crt"},
        {"client_certificate_data": b"x", "client_key_data": b"y"},
    ],
)
async def test_certificates_that_cannot_be_used_are_named_with_their_server(wrong):
    """K1."""
    with pytest.raises(ConfigurationInvalid, match="certificates for https://api"):
        await Transport(ClientConfig("https://api", **wrong)).open()


async def test_checking_can_be_switched_off_by_a_kubeconfig_only_explicitly():
    """K8."""
    transport = Transport(ClientConfig("https://api", insecure=True))
    await transport.open()
    assert transport._context.verify_mode == ssl.CERT_NONE
    await transport.close()


class Answer:
    """An answer whose bytes arrive when told, and whose reader wakes when it is closed."""

    def __init__(self):
        self.content = self
        self.chunks = asyncio.Queue()
        self.closed = False

    async def iter_any(self):
        while (chunk := await self.chunks.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    def close(self):
        if not self.closed:
            self.closed = True
            self.chunks.put_nowait(aiohttp.ClientConnectionError("Connection closed"))


async def read(stream):
    return [line async for lines in stream.batches() for line in lines]


@simulated
async def test_a_watch_the_server_does_not_end_is_ended_at_its_time():
    """W11."""
    answer = Answer()
    stream = WatchStream(answer, max_line=100, lifetime=305.0, silence=70.0)
    started = asyncio.get_running_loop().time()
    with pytest.raises(WatchSilent, match="outlived"):
        await read(stream)
    assert asyncio.get_running_loop().time() - started == 305.0
    stream.close()


@simulated
async def test_silence_counts_from_the_last_byte_once_it_is_guarded():
    """W11, RT1."""
    loop = asyncio.get_running_loop()
    answer = Answer()
    stream = WatchStream(answer, max_line=100, lifetime=600.0, silence=70.0)
    started = loop.time()
    loop.call_later(100.0, stream.guard_silence)
    loop.call_later(101.0, answer.chunks.put_nowait, b"x\n")
    loop.call_later(150.0, answer.chunks.put_nowait, b"half")
    with pytest.raises(WatchSilent, match="said nothing for 70 s"):
        await read(stream)
    assert loop.time() - started == 220.0
    stream.close()


@simulated
async def test_lines_and_chunks_cost_no_timers():
    """PY6: a timer a line would cost 8 microseconds each."""
    loop = asyncio.get_running_loop()
    answer = Answer()
    stream = WatchStream(answer, max_line=100, lifetime=305.0, silence=70.0)
    stream.guard_silence()
    first = stream._timer
    for _ in range(100):
        answer.chunks.put_nowait(b"x\n" * 10)
    answer.chunks.put_nowait(None)
    started = loop.time()
    assert len(await read(stream)) == 1000
    assert stream._timer is first
    assert loop.time() == started
    stream.close()


@simulated
async def test_a_line_may_be_far_larger_than_a_read_buffer():
    """PY7, W12: `readline` fails beyond twice its buffer."""
    answer = Answer()
    stream = WatchStream(answer, max_line=1 << 24, lifetime=305.0, silence=70.0)
    for _ in range(50):
        answer.chunks.put_nowait(b"x" * (1 << 16))
    answer.chunks.put_nowait(b"\n")
    answer.chunks.put_nowait(None)
    assert [len(line) for line in await read(stream)] == [50 << 16]
    stream.close()


@simulated
async def test_closing_a_stream_leaves_no_timer():
    """RT38."""
    answer = Answer()
    stream = WatchStream(answer, max_line=100, lifetime=305.0, silence=70.0)
    answer.chunks.put_nowait(b"a\nb")
    answer.chunks.put_nowait(None)
    assert await read(stream) == [b"a"]
    assert stream.remainder == b"b"
    stream.close()
    assert stream._timer.cancelled()
