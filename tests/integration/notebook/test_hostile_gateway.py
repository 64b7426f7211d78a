"""Gateways that hang, close, redirect and answer what is none of the protocol: doubles on a port of 127.0.0.1 (JK1)."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import WSMsgType, web

from trainer_operator.notebook import (
    AnswerMalformed,
    Gateway,
    GatewayFault,
    GatewayRefused,
    GatewayUnreachable,
    KernelLost,
    OutputKind,
    TooSlow,
)
from trainer_operator.notebook.gateway import LARGEST_ANSWER, LARGEST_MESSAGE
from trainer_operator.notebook.wire import V1, Message, decode_text, decode_v1, encode_text, encode_v1

TOKEN = "t" * 32


@asynccontextmanager
async def serving(handler):
    """Serve everything by one handler; what it was asked is in `asked`."""
    asked = []

    async def handle(request):
        asked.append((request.method, request.path, request.headers.get("Authorization")))
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", asked
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway_of(handler, **options):
    async with serving(handler) as (url, asked), Gateway(url, TOKEN, **options) as gateway:
        yield gateway, asked


async def run(gateway, *, within=10.0):
    async with aclosing(gateway.run("k", "code", within=within)) as outputs:
        return [each async for each in outputs]


def answering(body, *, status=200):
    async def handler(_request):
        return web.Response(status=status, body=body)

    return handler


def channel(script, *, protocols=(V1,)):
    """Open the channel and do what the script does with it."""

    async def handler(request):
        socket = web.WebSocketResponse(protocols=protocols)
        await socket.prepare(request)
        await script(socket)
        return socket

    return handler


async def hang(_request):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"{", b"[]", b"7", b'{"kernelspecs": []}', b"null", b"\xff\xfe", b"[" * 100_000]
)
async def test_a_list_of_kernels_that_is_none_is_a_fault(body):
    """UC2."""
    async with gateway_of(answering(body)) as (gateway, _):
        with pytest.raises(AnswerMalformed):
            await gateway.kernel_names()


@pytest.mark.parametrize("body", [b"{}", b'{"id": 7}', b"[]", b'{"id": ""}'])
async def test_a_kernel_without_an_id_is_a_fault(body):
    async with gateway_of(answering(body)) as (gateway, _):
        with pytest.raises(AnswerMalformed, match="without an id"):
            await gateway.start()


async def test_an_answer_without_end_is_cut():
    """NE6."""

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(64):
            await answer.write(b" " * LARGEST_ANSWER)
        return answer

    async with gateway_of(endless) as (gateway, _):
        with pytest.raises(AnswerMalformed, match="more than"):
            await gateway.kernels()


async def test_an_error_is_told_with_the_gateways_words_in_one_line():
    body = b'{"message": "Resource\\nLimit", "reason": null}'
    async with gateway_of(answering(body, status=403)) as (gateway, _):
        with pytest.raises(GatewayRefused, match="with code 403: Resource Limit") as refused:
            await gateway.start()
    assert refused.value.status == 403


async def test_a_gateway_that_hangs_is_given_up():
    async with gateway_of(hang, patience=0.3) as (gateway, _):
        with pytest.raises(TooSlow):
            await gateway.kernels()
        with pytest.raises(TooSlow):
            await run(gateway)


async def test_a_gateway_that_cuts_the_connection_is_a_fault():
    async def cut(request):
        request.transport.abort()
        await asyncio.Event().wait()

    async with gateway_of(cut) as (gateway, _):
        with pytest.raises(GatewayUnreachable):
            await gateway.kernels()
        with pytest.raises(GatewayFault):
            await run(gateway)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_token_stays(status):
    """NE4, ATK16: neither by REST nor when the websocket is opened."""
    async with serving(answering(b"[]")) as (elsewhere, seen):

        async def redirect(request):
            return web.Response(status=status, headers={"Location": elsewhere + request.path})

        async with gateway_of(redirect) as (gateway, _):
            for asked in (gateway.kernels, gateway.start, lambda: run(gateway)):
                with pytest.raises(GatewayRefused, match="redirect"):
                    await asked()
        assert seen == []


async def test_the_token_is_in_the_header_of_every_request():
    """JK1."""
    async with gateway_of(answering(b"[]", status=404)) as (gateway, asked):
        for ask in (gateway.kernels, gateway.start, lambda: run(gateway)):
            with pytest.raises(GatewayRefused):
                await ask()
        await gateway.end("../../x?y")
    assert {authorization for _, _, authorization in asked} == {f"token {TOKEN}"}
    assert asked[-1][1] == "/api/kernels/../../x?y"


@pytest.mark.parametrize(
    ("protocols", "kind", "read", "write"),
    [((V1,), WSMsgType.BINARY, decode_v1, encode_v1), ((), WSMsgType.TEXT, decode_text, encode_text)],
)
async def test_both_forms_of_messages_are_spoken(protocols, kind, read, write):
    """JK1: the newer one when it is offered."""

    async def script(socket):
        received = await socket.receive()
        assert received.type is kind
        parent = read(received.data).header
        assert (parent["msg_type"], read(received.data).content["code"]) == ("execute_request", "code")
        for channel, name, content in (
            ("iopub", "status", {"execution_state": "busy"}),
            ("iopub", "stream", {"name": "stdout", "text": "hello"}),
            ("shell", "execute_reply", {"status": "ok"}),
            ("iopub", "status", {"execution_state": "idle"}),
        ):
            data = write(Message(channel, {"msg_type": name}, content, parent))
            await (socket.send_bytes(data) if isinstance(data, bytes) else socket.send_str(data))

    async with gateway_of(channel(script, protocols=protocols)) as (gateway, _):
        (output,) = await run(gateway)
        assert (output.kind, output.text) == (OutputKind.STDOUT, "hello")


@pytest.mark.parametrize(
    "data", [b"", b"\xff" * 64, b"\x00" * 64, b"\x06" + b"\x00" * 55, "text", "{}[", "[]"]
)
async def test_a_malformed_message_ends_the_run_with_a_fault(data):
    """UC2."""

    async def script(socket):
        await socket.receive()
        await (socket.send_bytes(data) if isinstance(data, bytes) else socket.send_str(data))
        await socket.receive()

    async with gateway_of(channel(script)) as (gateway, _):
        with pytest.raises(AnswerMalformed):
            await run(gateway)


async def test_a_channel_that_closes_half_way_ends_the_run():
    async def script(socket):
        await socket.receive()

    async with gateway_of(channel(script)) as (gateway, _):
        with pytest.raises(KernelLost):
            await run(gateway)


async def test_a_kernel_that_says_nothing_ends_the_run_in_time():
    async def script(socket):
        await socket.receive()
        await socket.receive()

    async with gateway_of(channel(script)) as (gateway, _):
        with pytest.raises(TooSlow, match=r"within 0\.3 s"):
            await run(gateway, within=0.3)


async def test_a_message_beyond_all_measure_ends_the_run():
    """NE6."""

    async def script(socket):
        await socket.receive()
        await socket.send_bytes(b"x" * (LARGEST_MESSAGE + 1))
        await socket.receive()

    async with gateway_of(channel(script)) as (gateway, _):
        with pytest.raises(GatewayFault):
            await run(gateway)


async def test_messages_of_other_runs_change_nothing():
    async def script(socket):
        await socket.receive()
        for _ in range(3):
            await socket.send_bytes(
                encode_v1(Message("shell", {"msg_type": "execute_reply"}, {}, {"msg_id": "other"}))
            )

    async with gateway_of(channel(script)) as (gateway, _):
        with pytest.raises(KernelLost):
            await run(gateway)
