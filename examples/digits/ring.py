"""All-reduce over a ring of TCP connections: every rank gets the very same floats.

Each rank sends to the next and receives from the one before. The vector is cut into as many parts as there are ranks;
in world - 1 rounds each part travels around and is summed, in world - 1 more rounds the sums travel around. Each part
is summed on one way only, so no two ranks round differently.
"""

from __future__ import annotations

import select
import socket

import numpy as np
import wire
from data import Floats

_PATIENCE = 600.0


class Ring:
    """One rank's place in the ring of one membership epoch.

    Raises: wire.Lost from any method when a neighbour is gone: the epoch is over then.
    """

    def __init__(self, members: list[tuple[str, int]], rank: int, *, token: str) -> None:
        self._world, self._rank = len(members), rank
        address, port = members[rank]
        self._next: socket.socket | None = None
        self._before: socket.socket | None = None
        if self._world == 1:
            return
        with wire.listen(address, port) as listener:
            following = members[(rank + 1) % self._world]
            self._next = wire.connect(*following, source=address, patience=_PATIENCE)
            wire.send(self._next, {"token": token, "rank": rank})
            self._before = self._accept(listener, token)

    def sum(self, vector: Floats) -> Floats:
        """Return the sum of the vectors of all ranks."""
        total = np.array(vector, dtype=np.float64)
        if self._next is None or self._before is None:
            return total
        cuts = [len(total) * part // self._world for part in range(self._world + 1)]
        parts = [total[cuts[part] : cuts[part + 1]] for part in range(self._world)]
        for turn in range(self._world - 1):
            target = parts[(self._rank - turn - 1) % self._world]
            target += self._exchange(parts[(self._rank - turn) % self._world], len(target))
        for turn in range(self._world - 1):
            target = parts[(self._rank - turn) % self._world]
            target[:] = self._exchange(parts[(self._rank - turn + 1) % self._world], len(target))
        return total

    def close(self) -> None:
        """Leave the ring."""
        for peer in (self._next, self._before):
            if peer is not None:
                peer.close()

    def _accept(self, listener: socket.socket, token: str) -> socket.socket:
        """Take the neighbour before us; a left-over of another epoch is turned away (ME2)."""
        before = (self._rank - 1) % self._world
        listener.settimeout(_PATIENCE)
        while True:
            try:
                peer, _ = listener.accept()
            except OSError as error:
                raise wire.Lost(f"rank {before} did not come: {error}") from error
            peer.settimeout(10)
            try:
                hello, _ = wire.receive(peer)
            except wire.Lost:
                hello = {}
            if hello == {"token": token, "rank": before}:
                peer.settimeout(None)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return peer
            peer.close()

    def _exchange(self, outgoing: Floats, size: int) -> Floats:
        """Send to the next rank and receive from the one before at the same time, so that full buffers never lock."""
        following, before = self._next, self._before
        if following is None or before is None:
            raise wire.Lost("the ring is closed")
        left = memoryview(np.ascontiguousarray(outgoing)).cast("B") if len(outgoing) else memoryview(b"")
        data = bytearray(size * 8)
        room = memoryview(data)
        while left or room:
            readable, writable, _ = select.select([before] if room else [], [following] if left else [], [])
            try:
                if writable:
                    left = left[following.send(left, socket.MSG_DONTWAIT) :]
                if readable:
                    count = before.recv_into(room)
                    if count == 0:
                        raise wire.Lost("the rank before closed the connection")
                    room = room[count:]
            except BlockingIOError:
                continue
            except OSError as error:
                raise wire.Lost(str(error)) from error
        return np.frombuffer(data, dtype=np.float64)
