"""The Unix socket for the SDK: newline JSON both ways, and what a process must be told even if it connects later.

A process connects some time after it was started, and a directive may come before that. So orders are kept and said
again when the process says hello: pause, the checkpoint it shall take, the newest parameter-server epoch.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

MAX_LINE_BYTES = 1 << 20
Message = Dict[str, Any]  # JSON edge


class SdkServer:
    """Accepts the SDK's connections and hands their messages on.

    Guarantees: a line that is not a JSON object is dropped and the connection goes on; messages of one connection
    are handed on in order; `on_message` is called from the connection's thread.
    """

    def __init__(self, path: str, *, on_message: Callable[[Message], None]) -> None:
        self.path = path
        self._on_message = on_message
        self._lock = threading.Lock()
        self._current: Optional[socket.socket] = None
        self._readers: List[threading.Thread] = []
        self._orders: Dict[str, Message] = {}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(8)
        threading.Thread(target=self._accept, name="sdk", daemon=True).start()

    def reset(self) -> None:
        """Forget all orders: a new process is about to start."""
        with self._lock:
            self._orders.clear()
            self._current = None

    def order(self, key: str, message: Optional[Mapping[str, Any]], *, say: Optional[Message] = None) -> None:
        """Keep an order under a key (None forgets it) and send it, or `say`, to the process if it is connected."""
        with self._lock:
            if message is None:
                self._orders.pop(key, None)
            else:
                self._orders[key] = dict(message)
            current = self._current
            to_send = say if message is None else dict(message)
            if current is not None and to_send is not None:
                _send(current, to_send)

    @property
    def is_connected(self) -> bool:
        """Whether the process speaks to us."""
        return self._current is not None

    @property
    def peer(self) -> int:
        """Pid of the process that speaks to us, as the kernel knows it; 0 while none does."""
        size = struct.calcsize("3i")
        with self._lock:
            if self._current is None:
                return 0
            try:
                credentials = self._current.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            except OSError:
                return 0
        return int(struct.unpack("3i", credentials)[0])

    def drain(self, timeout: float) -> None:
        """Wait until everything that ended processes said was handed on (CS11)."""
        for reader in list(self._readers):
            reader.join(timeout)
        self._readers = [reader for reader in self._readers if reader.is_alive()]

    def close(self) -> None:
        """Stop listening and remove the socket."""
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            reader = threading.Thread(target=self._read, args=(connection,), name="sdk-read", daemon=True)
            self._readers.append(reader)
            reader.start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file:
            while True:
                try:
                    line = file.readline(MAX_LINE_BYTES)
                except OSError:
                    break
                if not line.endswith(b"\n"):
                    break
                message = _parse(line)
                if message is None:
                    continue
                if message["t"] == "hello":
                    self._greet(connection)
                self._on_message(message)
            with self._lock:
                if self._current is connection:
                    self._current = None

    def _greet(self, connection: socket.socket) -> None:
        with self._lock:
            self._current = connection
            for message in self._orders.values():
                _send(connection, message)


def _parse(line: bytes) -> Optional[Message]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("t"), str) else None


def _send(connection: socket.socket, message: Message) -> None:
    """Send without waiting: a process that does not read for so long that its buffer is full is told on hello."""
    with contextlib.suppress(OSError):
        connection.send(json.dumps(message, separators=(",", ":")).encode() + b"\n", socket.MSG_DONTWAIT)
