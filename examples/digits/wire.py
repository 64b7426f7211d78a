"""Messages between members: a JSON header and arrays of float64, with lengths in front."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from data import Floats

_LENGTHS = struct.Struct("!II")
_LARGEST = 64 * 1024 * 1024


class Lost(ConnectionError):
    """The other side is gone, or does not speak our language."""


def send(peer: socket.socket, header: Mapping[str, Any], tensors: Mapping[str, Floats] | None = None) -> None:
    """Send one message.

    Raises: Lost.
    """
    arrays = {name: np.ascontiguousarray(value, dtype=np.float64) for name, value in (tensors or {}).items()}
    head = json.dumps({**header, "shapes": {name: value.shape for name, value in arrays.items()}}).encode()
    body = b"".join(value.tobytes() for value in arrays.values())
    try:
        peer.sendall(_LENGTHS.pack(len(head), len(body)) + head + body)
    except OSError as error:
        raise Lost(str(error)) from error


def receive(peer: socket.socket) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Receive one message.

    Raises: Lost.
    """
    head_size, body_size = _LENGTHS.unpack(receive_exactly(peer, _LENGTHS.size))
    if head_size > _LARGEST or body_size > _LARGEST:
        raise Lost("a message of an impossible size")
    try:
        header: dict[str, Any] = json.loads(receive_exactly(peer, head_size))
    except ValueError as error:
        raise Lost("a message without a header") from error
    numbers = np.frombuffer(receive_exactly(peer, body_size), dtype=np.float64)
    tensors, at = {}, 0
    for name, shape in header.pop("shapes", {}).items():
        size = int(np.prod(shape))
        tensors[name] = numbers[at : at + size].reshape(shape)
        at += size
    return header, tensors


def receive_exactly(peer: socket.socket, size: int) -> bytearray:
    """Receive this many bytes.

    Raises: Lost when the other side ends before.
    """
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            count = peer.recv_into(view)
        except OSError as error:
            raise Lost(str(error)) from error
        if count == 0:
            raise Lost("the other side closed the connection")
        view = view[count:]
    return data


def listen(address: str, port: int) -> socket.socket:
    """Listen on the address that the epoch names, and nowhere else."""
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(128)
    return listener


def connect(address: str, port: int, *, source: str, patience: float) -> socket.socket:
    """Connect from our own address, trying again while the other side starts.

    Raises: Lost when it does not listen within `patience` seconds.
    """
    deadline, delay = time.monotonic() + patience, 0.02
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=10, source_address=(source, 0))
        except OSError as error:
            if time.monotonic() >= deadline:
                raise Lost(f"{address}:{port} does not listen: {error}") from error
            time.sleep(random.uniform(0, delay))
            delay = min(1.0, delay * 2)
        else:
            peer.settimeout(None)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(peer)
            return peer


def _keep_alive(peer: socket.socket) -> None:
    """Have the kernel end the connection some ten seconds after the other side's machine is gone."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on every system
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
