"""The listener that other members fetch chunks from: `GET /v1/chunks/<sha256>` with a range, and nothing else.

Apart from the probes, so that no neighbour can make the pod look dead. Bounded in everything: connections, transfers at
a time, bytes of an answer, seconds of silence. Who is refused goes to another peer or to the store.

    206   the part             401   not signed by a member of this epoch (FT17)
    404   it is not here       416   a range that is none, or too long
    503   enough transfers run already
"""

from __future__ import annotations

import os
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any, Callable, Optional, Tuple

from trainer_operator.agent.peers.keys import CHUNKS, Keys

PART_BYTES = 4 * 1024 * 1024
"""Most bytes of one answer."""
TRANSFERS = 8
CONNECTIONS = 64
SILENCE = 10.0
"""Seconds that a connection may be idle, or a receiver may take nothing."""
_RANGE = re.compile(r"bytes=(\d{1,12})-(\d{1,12})\Z")
_CHUNK = re.compile(re.escape(CHUNKS) + r"([0-9a-f]{64})\Z")
OpenChunk = Callable[[str], Optional[IO[bytes]]]


class ChunkServer:
    """Serves chunks on a free port of the pod's address.

    Raises: OSError on construction when the address is not ours.
    """

    def __init__(
        self,
        address: str,
        *,
        open_chunk: OpenChunk,
        keys: Keys,
        transfers: int = TRANSFERS,
        connections: int = CONNECTIONS,
    ) -> None:
        self._server = _Server(address, _handler(open_chunk, keys, transfers), connections)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="chunks", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening; transfers that run break off with the process."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: str, handler: Any, connections: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._free = threading.BoundedSemaphore(connections)
        super().__init__((address, 0), handler)

    def server_bind(self) -> None:
        """Bind without looking the name of the address up, which may take long."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or hang up when there are enough."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection, then make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep a peer that hangs up out of the user's log."""


def _handler(open_chunk: OpenChunk, keys: Keys, transfers: int) -> Any:
    free = threading.BoundedSemaphore(transfers)

    class Handler(BaseHTTPRequestHandler):
        timeout = SILENCE
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            part = self.headers.get("Range", "")
            named, asked = _CHUNK.match(self.path), _part(part)
            if not keys.allows(self.headers.get("Authorization", ""), path=self.path, part=part):
                self.close_connection = True
                self._refuse(401, "not signed by a member of this epoch")
            elif named is None:
                self._refuse(404, "only chunks are here")
            elif asked is None:
                self._refuse(416, "a range of at most %d bytes is needed" % PART_BYTES)
            elif not free.acquire(blocking=False):
                self._refuse(503, "enough transfers run already")
            else:
                try:
                    self._answer(named.group(1), *asked)
                finally:
                    free.release()

        def _answer(self, sha256: str, start: int, length: int) -> None:
            file = open_chunk(sha256)
            if file is None:
                self._refuse(404, "that chunk is not here")
                return
            with file:
                size = os.fstat(file.fileno()).st_size
                if start < size:
                    self._send(file, start, min(length, size - start), size)
                else:
                    self._refuse(416, "it has %d bytes" % size)

        def _send(self, file: IO[bytes], start: int, length: int, size: int) -> None:
            self.send_response(206)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(length))
            self.send_header("Content-Range", "bytes %d-%d/%d" % (start, start + length - 1, size))
            self.end_headers()
            if self.connection.sendfile(file, start, length) < length:
                self.close_connection = True  # it was cut meanwhile, and the receiver waits for the rest

        def _refuse(self, status: int, text: str) -> None:
            body = text.encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Keep transfers out of the user's log."""

    return Handler


def _part(text: str) -> Optional[Tuple[int, int]]:
    """Return start and length of a range."""
    found = _RANGE.match(text)
    if found is None:
        return None
    start, end = int(found.group(1)), int(found.group(2))
    return (start, end - start + 1) if 0 <= end - start < PART_BYTES else None
