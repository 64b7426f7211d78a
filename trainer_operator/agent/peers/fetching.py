"""A chunk from peers: part after part, from whoever has it, hashed while it comes in (RS2).

    a peer                          what follows
    does not have it, or is busy    the next one is asked
    breaks off, is slow, is gone    the next one goes on where it ended; it is not asked again in this restore
    sends what does not match       the chunk is dropped; who gave of it is not asked again, and is reported

When none is left, the store has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import random
import threading
import time
from typing import Callable, Dict, List, Optional, Set, Tuple

from trainer_operator.agent.peers.keys import CHUNKS, sign
from trainer_operator.agent.peers.roster import Peer, Roster, read_roster
from trainer_operator.agent.peers.serving import PART_BYTES

SILENCE = 3.0
"""Seconds without a byte after which a peer is taken for gone."""
PART_TIME = 10.0
"""Seconds that a part may take; slower than 0.4 MB/s a peer is no help."""
_READ = 256 * 1024


NOBODY = Roster("", 0, "", ())


class _CannotServe(Exception):
    """It does not have the chunk, or is busy."""


class _Gone(Exception):
    """It broke off, is slow, or does not speak as we do."""


class Peers:
    """The peers of one restore; used from several threads.

    Guarantees: what `fetch` returns matches its hash; it never raises for what a peer does.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        silence: float = SILENCE,
        part_time: float = PART_TIME,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._roster, self._silence, self._part_time, self._clock = roster, silence, part_time, clock
        self._lock = threading.Lock()
        self._idle: Dict[Peer, List[http.client.HTTPConnection]] = {peer: [] for peer in roster.peers}
        self._left: Set[Peer] = set(roster.peers)
        self._liars: Set[Peer] = set()

    @property
    def liars(self) -> List[str]:
        """Who sent content that does not match its hash."""
        with self._lock:
            return sorted(str(peer) for peer in self._liars)

    def fetch(self, sha256: str, *, length: int) -> Optional[bytes]:
        """Return a chunk of that length, if peers have it."""
        data, digest = bytearray(), hashlib.sha256()
        givers: Set[Peer] = set()
        for peer in self._order():
            had = len(data)
            try:
                while len(data) < length:
                    end = min(len(data) + PART_BYTES, length)
                    self._read(peer, sha256, data, digest, end)
            except _CannotServe:
                continue
            except _Gone:
                with self._lock:
                    self._left.discard(peer)
                continue
            finally:
                if len(data) > had:
                    givers.add(peer)
            if digest.hexdigest() == sha256:
                return bytes(data)
            with self._lock:
                self._left -= givers
                self._liars |= givers
            return None
        return None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            idle = [connection for kept in self._idle.values() for connection in kept]
            for kept in self._idle.values():
                kept.clear()
        for connection in idle:
            connection.close()

    def _order(self) -> List[Peer]:
        """Return who may be asked, in any order, so that all of those who restore don't ask the same one first."""
        with self._lock:
            left = sorted(self._left, key=str)
        random.shuffle(left)
        return left

    def _read(self, peer: Peer, sha256: str, data: bytearray, digest: "hashlib._Hash", end: int) -> None:
        """Read on up to `end`; what came before a failure is kept.

        Raises: _CannotServe, _Gone.
        """
        kept, connection = self._take(peer)
        try:
            try:
                response = self._ask(connection, sha256, len(data), end)
            except (OSError, http.client.HTTPException):
                if not kept:
                    raise
                connection.close()  # it was idle for too long
                connection = self._new(peer)
                response = self._ask(connection, sha256, len(data), end)
            self._receive(response, data, digest, end)
            if response.will_close or not response.isclosed():
                connection.close()
            else:
                self._give_back(peer, connection)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise _Gone from error
        except BaseException:
            connection.close()
            raise

    def _receive(
        self, response: http.client.HTTPResponse, data: bytearray, digest: "hashlib._Hash", end: int
    ) -> None:
        if response.status in (404, 503):
            raise _CannotServe
        if response.status != 206:
            raise _Gone
        deadline = self._clock() + self._part_time
        while len(data) < end:
            piece = response.read1(min(_READ, end - len(data)))
            if not piece or self._clock() > deadline:
                raise _Gone
            data += piece
            digest.update(piece)
        response.read(1)  # nothing is left, so that the connection can be used again

    def _ask(
        self, connection: http.client.HTTPConnection, sha256: str, start: int, end: int
    ) -> http.client.HTTPResponse:
        roster, path, part = self._roster, CHUNKS + sha256, "bytes=%d-%d" % (start, end - 1)
        signature = sign(roster.key, trainer=roster.trainer, epoch=roster.epoch, path=path, part=part)
        connection.request("GET", path, headers={"Range": part, "Authorization": signature})
        return connection.getresponse()

    def _take(self, peer: Peer) -> Tuple[bool, http.client.HTTPConnection]:
        """Return a connection, and whether it was used before."""
        with self._lock:
            if self._idle[peer]:
                return True, self._idle[peer].pop()
        return False, self._new(peer)

    def _new(self, peer: Peer) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(peer.address, peer.port, timeout=self._silence)

    def _give_back(self, peer: Peer, connection: http.client.HTTPConnection) -> None:
        with contextlib.suppress(OSError), self._lock:
            self._idle[peer].append(connection)


def open_peers(path: str) -> Peers:
    """Return the peers that the agent named to this process, which may be none."""
    return Peers(read_roster(path) or NOBODY)
