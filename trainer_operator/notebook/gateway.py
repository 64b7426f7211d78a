"""A Jupyter Kernel Gateway, asked by its REST interface and the websocket of each kernel (JK1).

The token goes in a header, never in a URL. Redirects are not followed, proxies of the environment not used (NE3, NE4).
The operator opens no gateway: this is for `kubectl trainer notebook`, with an address of its user's.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace, TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

import aiohttp
import orjson

from trainer_operator.notebook.faults import (
    AnswerMalformed,
    GatewayRefused,
    GatewayUnreachable,
    KernelLost,
    TooSlow,
    UrlRefused,
)
from trainer_operator.notebook.outputs import Execution, Output
from trainer_operator.notebook.wire import V1, Message, decode_text, decode_v1, encode_text, encode_v1

LARGEST_ANSWER = 1 << 20
LARGEST_MESSAGE = 16 << 20
PATIENCE = 20.0
"""Seconds for one answer; the start of a kernel is one."""


class Gateway:
    """A connection to one gateway.

    Guarantees: every call ends, with a GatewayFault if not with an answer.
    """

    def __init__(self, url: str, token: str, *, patience: float = PATIENCE) -> None:
        self._url = checked_url(url)
        self._headers = {"Authorization": f"token {token}"}
        self._patience = patience
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        traces = aiohttp.TraceConfig()
        traces.on_request_redirect.append(_refuse_redirect)
        session = aiohttp.ClientSession(
            headers=self._headers,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[traces],
        )
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def kernel_names(self) -> list[str]:
        """Return the names of the kernels that it can start, its default first.

        Raises: GatewayFault.
        """
        found = await self._ask("GET", "/api/kernelspecs")
        known = found.get("kernelspecs") if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(known, dict):
            raise AnswerMalformed("the gateway's list of kernelspecs is none")
        default = found.get("default")
        return sorted(map(str, known), key=lambda name: (name != default, name))

    async def kernels(self) -> list[str]:
        """Return the ids of the kernels that run.

        Raises: GatewayFault.
        """
        found = await self._ask("GET", "/api/kernels")
        if not isinstance(found, list):
            raise AnswerMalformed("the gateway's list of kernels is none")
        return [_id(each) for each in found]

    async def start(self, name: str | None = None) -> str:
        """Start a kernel, its default when no other is named, and return its id. It gets no variables from here (JK2).

        Raises: GatewayFault.
        """
        return _id(await self._ask("POST", "/api/kernels", {"name": name} if name else {}))

    async def end(self, kernel: str) -> None:
        """End a kernel; one that is gone has ended.

        Raises: GatewayFault.
        """
        try:
            await self._ask("DELETE", f"/api/kernels/{quote(kernel, safe='')}")
        except GatewayRefused as refused:
            if refused.status != 404:
                raise

    async def run(self, kernel: str, code: str, *, within: float) -> AsyncIterator[Output]:
        """Run code in a kernel and yield what it puts out, until it is done.

        Raises: GatewayFault; TooSlow after `within` seconds, and the code runs on.
        """
        try:
            async with asyncio.timeout(within), self._channels(kernel) as socket:
                execution = Execution(secrets.token_hex(16))
                await self._send(socket, _request(execution.id, code))
                while not execution.is_done:
                    output = execution.take(await self._receive(socket))
                    if output is not None:
                        yield output
        except TimeoutError:
            raise TooSlow(f"the code did not end within {within:g} s; it runs on in the kernel") from None

    @asynccontextmanager
    async def _channels(self, kernel: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        path = f"{self._url}/api/kernels/{quote(kernel, safe='')}/channels"
        try:
            async with asyncio.timeout(self._patience):
                socket = await self._session.ws_connect(path, protocols=(V1,), max_msg_size=LARGEST_MESSAGE)
        except aiohttp.WSServerHandshakeError as error:
            raise GatewayRefused(_refusal("the channels of the kernel", error.status), error.status) from None
        except TimeoutError:  # first, since it is an OSError
            raise TooSlow(f"the gateway at {self._url} opened no channel in {self._patience:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise GatewayUnreachable(f"the gateway at {self._url} cannot be reached: {error}") from None
        try:
            yield socket
        finally:
            await socket.close()

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, message: Message) -> None:
        try:
            if socket.protocol == V1:
                await socket.send_bytes(encode_v1(message))
            else:
                await socket.send_str(encode_text(message))
        except (aiohttp.ClientError, OSError):
            raise KernelLost("the gateway closed the channel before it took the code") from None

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> Message:
        received = await socket.receive()
        if received.type in {aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED}:
            raise KernelLost("the gateway closed the channel before the code had ended")
        if received.type is aiohttp.WSMsgType.ERROR:
            raise AnswerMalformed(f"the gateway broke the websocket protocol: {received.data}")
        if received.type is aiohttp.WSMsgType.BINARY and socket.protocol == V1:
            return decode_v1(received.data)
        return decode_text(received.data)

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask by REST. The answer is JSON of any shape."""
        data = orjson.dumps(body) if body is not None else None
        try:
            async with (
                asyncio.timeout(self._patience),
                self._session.request(
                    method, f"{self._url}{path}", data=data, allow_redirects=False
                ) as answer,
            ):
                text = await answer.content.read(LARGEST_ANSWER + 1)
                while len(text) <= LARGEST_ANSWER and not answer.content.at_eof():
                    text += await answer.content.read(LARGEST_ANSWER + 1)
        except TimeoutError:
            raise TooSlow(f"the gateway at {self._url} did not answer in {self._patience:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise GatewayUnreachable(f"the gateway at {self._url} cannot be reached: {error}") from None
        if answer.status >= 300:
            raise GatewayRefused(_refusal(f"{method} {path}", answer.status, _reason(text)), answer.status)
        if len(text) > LARGEST_ANSWER:
            raise AnswerMalformed(
                f"the gateway's answer to {method} {path} has more than {LARGEST_ANSWER} bytes"
            )
        if not text:
            return None
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            raise AnswerMalformed(f"the gateway's answer to {method} {path} is no JSON") from None


def checked_url(url: str) -> str:
    """Return the address without a slash at its end.

    Raises: UrlRefused.
    """
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:
        known = False
    if not known or parts.username is not None or parts.query or parts.fragment:
        raise UrlRefused("the address of a gateway is http:// or https://, a host, and a port if need be")
    return url.rstrip("/")


async def _refuse_redirect(
    _session: aiohttp.ClientSession, _context: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams
) -> None:
    """Stop before a redirect is followed: handshakes of websockets know no other way to say so."""
    status = redirect.response.status
    raise GatewayRefused(_refusal("the channels of the kernel", status), status)


def _request(id: str, code: str) -> Message:
    header = {
        "msg_id": id,
        "msg_type": "execute_request",
        "username": "",
        "session": secrets.token_hex(16),
        "date": "",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}}
    return Message("shell", header, {**content, "allow_stdin": False, "stop_on_error": True})


def _id(kernel: Any) -> str:
    found = kernel.get("id") if isinstance(kernel, dict) else None
    if not isinstance(found, str) or not found:
        raise AnswerMalformed("the gateway described a kernel without an id")
    return found


def _reason(text: bytes) -> str:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    said = (found.get("message") or found.get("reason") or "") if isinstance(found, dict) else ""
    return " ".join(str(said).split())[:256]


def _refusal(what: str, status: int, said: str = "") -> str:
    if status == 401:
        return f"the gateway refused {what}: the token is not its own"
    if 300 <= status < 400:
        return f"the gateway answered {what} with a redirect, which is not followed"
    return f"the gateway refused {what} with code {status}{f': {said}' if said else ''}"
