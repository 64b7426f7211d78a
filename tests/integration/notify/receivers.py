"""Doubles of what takes messages: a mail server with TLS and an HTTPS server, on an address that is not loopback."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
from aiohttp import web


def own_address():
    """Return an address of this machine that is not loopback: those are refused, whatever is configured (NE2)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # nothing is sent: this only asks for the route
        except OSError:
            pytest.skip("this machine has loopback addresses only, to which no message goes")
        return probe.getsockname()[0]


class HttpReceiver:
    """Takes what is posted; `answers` are given before it takes anything."""

    def __init__(self):
        self.took, self.answers, self.url, self.hangs = [], [], "", False
        self.followed = []
        self.asked = 0

    async def _post(self, request):
        if request.path == "/followed":
            self.followed.append(await request.text())
            return web.Response()
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(60)
        body = await request.json()
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        self.took.append((status, body))
        return web.Response(status=status, headers=headers)

    @asynccontextmanager
    async def serving(self, pair=None, *, host=None):
        host = host or own_address()
        context = None
        if pair is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(pair.certificate, pair.key)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._post)
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, 0, ssl_context=context)
            await site.start()
            port = site._server.sockets[0].getsockname()[1]
            self.where = f"{host}:{port}"
            yield self
        finally:
            await runner.cleanup()


class MailReceiver:
    """The receiving half of SMTP over TLS; `took` has the mails as they came over the wire."""

    def __init__(self):
        self.took, self.recipients, self.hangs = [], [], False

    @asynccontextmanager
    async def serving(self, pair):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        host = own_address()
        server = await asyncio.start_server(self._talk, host, 0, ssl=context)
        self.where = f"{host}:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()

    async def _talk(self, reader, writer):
        writer.write(b"220 double ESMTP\r\n")
        try:
            while line := await reader.readline():
                if self.hangs:
                    await asyncio.sleep(60)
                word = line[:4].upper()
                if word == b"DATA":
                    writer.write(b"354 go on\r\n")
                    self.took.append(await reader.readuntil(b"\r\n.\r\n"))
                if word == b"RCPT":
                    self.recipients.append(line.decode().strip())
                if word == b"AUTH":
                    writer.write(b"235 welcome\r\n")
                elif word == b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                elif word == b"EHLO":
                    writer.write(b"250-double\r\n250 AUTH PLAIN\r\n")
                else:
                    writer.write(b"250 ok\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
