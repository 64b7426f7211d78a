"""The TLS listener: no client, however slow, outlives it or holds a place."""

import asyncio
import gc
import socket
import ssl
import time
import warnings

import aiohttp
import pytest
from aiohttp import web

from runtime import listener as module
from runtime.listener import TlsListener
from runtime.tasks import TaskScope
from trainer_operator.devcluster.certificates import CertificateAuthority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return CertificateAuthority.open(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def context(authority, tmp_path):
    pair = authority.issue_server("listener", hosts=["127.0.0.1"], folder=tmp_path)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pair.certificate, pair.key)
    return made


async def hello(request):
    return web.Response(text=request.path)


def application():
    app = web.Application()
    app.router.add_get("/hello", hello)
    return app


def trusting(authority):
    return ssl.create_default_context(cafile=str(authority.certificate_file))


async def closed_by_server(connection):
    """Return once the other side has closed a plain socket."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(30):
        try:
            while await loop.sock_recv(connection, 4096):
                pass
        except ConnectionError:
            pass
    return True


async def status_of(authority, url):
    connector = aiohttp.TCPConnector(ssl=trusting(authority))
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url) as answer:
        return answer.status


async def connected(port):
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    return connection


async def test_requests_are_served_and_the_port_is_given_back(authority, context):
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    port = server.port
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(authority))) as session:
        for _ in range(3):
            async with session.get(f"https://127.0.0.1:{port}/hello") as answer:
                assert (answer.status, await answer.text()) == (200, "/hello")
    await server.stop()
    await server.stop()
    with socket.create_server(("127.0.0.1", port)):
        assert server.port == 0


async def test_a_client_that_trusts_nobody_harms_nobody(authority, context):
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.port}/hello"
    async with aiohttp.ClientSession() as suspicious:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await suspicious.get(url)
    assert await status_of(authority, url) == 200
    await server.stop()


async def test_a_client_that_never_shakes_hands_is_dropped(context, monkeypatch):
    """ATK7."""
    monkeypatch.setattr(module, "HANDSHAKE_DEADLINE", 0.2)
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    with await connected(server.port) as mute:
        assert await closed_by_server(mute)
    await server.stop()


async def test_a_client_that_sends_half_a_header_is_dropped(authority, context, monkeypatch):
    """ATK7."""
    monkeypatch.setattr(module, "FIRST_REQUEST_DEADLINE", 0.2)
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(authority))
    writer.write(b"GET /hello HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    async with asyncio.timeout(30):
        try:
            said = await reader.read()
        except ConnectionError:
            said = b""
    assert said == b""
    writer.transport.abort()
    await server.stop()


async def test_handshakes_are_bounded_and_the_others_get_their_turn(authority, context, monkeypatch):
    """ATK7."""
    monkeypatch.setattr(module, "MAX_HANDSHAKES", 2)
    monkeypatch.setattr(module, "HANDSHAKE_DEADLINE", 0.5)
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    mute = [await connected(server.port) for _ in range(5)]
    async with asyncio.timeout(60):
        assert await status_of(authority, f"https://127.0.0.1:{server.port}/hello") == 200
    for each in mute:
        each.close()
    await server.stop()


async def test_stopping_leaves_no_socket_whatever_its_clients_are_doing(authority, context):
    """One client shakes hands, one is idle, one never says farewell; the collector finds nothing to warn of."""
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    shaking = await connected(server.port)
    silent_reader, silent = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(authority))
    reader, rude = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(authority))
    rude.write(b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await server.stop()
        assert await closed_by_server(shaking)
        for writer in (silent, rude):
            writer.transport.abort()
        shaking.close()
        await asyncio.sleep(0)
        del server, silent_reader, silent, reader, rude
        gc.collect()
    assert [str(each.message) for each in told] == []


async def test_stopping_closes_a_connection_whose_handshake_has_not_begun(context):
    """Its task is cancelled before the first step, so nobody else could close it."""
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    client = socket.create_connection(
        ("127.0.0.1", server.port)
    )  # the kernel answers; the loop has no turn yet
    client.setblocking(False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with asyncio.timeout(30):
            while not server._accepted:
                await asyncio.sleep(0)
        await server.stop()
        assert await closed_by_server(client)
        client.close()
        del server
        gc.collect()
    assert [str(each.message) for each in told] == []


async def test_a_listener_that_is_full_accepts_again_once_a_connection_has_ended(
    authority, context, monkeypatch
):
    """ATK7: the one that waits in the backlog gets its turn, though nothing else happens."""
    monkeypatch.setattr(module, "FULL_RETRY", 0.05)
    server = TlsListener(application(), context=context, max_connections=1)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(authority))
    writer.write(b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    async with TaskScope() as scope:
        url = f"https://127.0.0.1:{server.port}/hello"
        second = scope.spawn(status_of(authority, url), name="second")
        await asyncio.sleep(0.2)
        assert not second.done()
        writer.transport.abort()
        async with asyncio.timeout(30):
            assert await second == 200
    await server.stop()


async def test_a_request_that_came_while_the_loop_stood_still_is_answered(authority, context, monkeypatch):
    """TX5: such as an agent's beat, when a stopped operator goes on; its deadline passed in the same moment."""
    monkeypatch.setattr(module, "FIRST_REQUEST_DEADLINE", 0.5)
    server = TlsListener(application(), context=context)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(authority))
    async with asyncio.timeout(30):
        while not server._silent:
            await asyncio.sleep(0)
    writer.write(b"GET /hello HTTP/1.1\r\nHost: listener\r\n\r\n")
    time.sleep(1.0)  # the loop stands still
    async with asyncio.timeout(30):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await server.stop()
