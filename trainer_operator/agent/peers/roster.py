"""Who holds what a member restores: told by the operator with the start, handed to the process in a file.

It is a file of the agent's folder, readable by its owner, and no variable: environments end up in logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

from trainer_operator.agent.peers.keys import is_key

MAX_PEERS = 16
_MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Peer:
    """Where an agent serves."""

    address: str
    port: int

    def __str__(self) -> str:
        return ("[%s]:%d" if ":" in self.address else "%s:%d") % (self.address, self.port)


@dataclass(frozen=True)
class Roster:
    """The peers of one start, and what requests to them are signed with."""

    trainer: str
    epoch: int
    key: str
    peers: Tuple[Peer, ...]


def parse_peers(listed: Any) -> Tuple[Peer, ...]:
    """Return the peers that the operator named; entries that name none are passed over."""
    found: List[Peer] = []
    for entry in listed if isinstance(listed, list) else ():
        address = entry.get("address") if isinstance(entry, dict) else None
        port = entry.get("port") if isinstance(entry, dict) else None
        if isinstance(address, str) and 0 < len(address) <= 64 and isinstance(port, int) and 0 < port < 65536:
            found.append(Peer(address, port))
    return tuple(found[:MAX_PEERS])


def write_roster(path: str, roster: Optional[Roster]) -> None:
    """Leave a roster for the process, or none: then the store alone is asked. Failures mean none, too."""
    with contextlib.suppress(OSError):
        os.unlink(path)
    if roster is None or not roster.key or not roster.peers:
        return
    peers = [{"address": peer.address, "port": peer.port} for peer in roster.peers]
    body = {"trainer": roster.trainer, "epoch": roster.epoch, "key": roster.key, "peers": peers}
    temporary = "%s.%s" % (path, secrets.token_hex(4))
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(body, file)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def read_roster(path: str) -> Optional[Roster]:
    """Return what the agent left, if it left a roster."""
    try:
        with open(path, "rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
        roster = Roster(str(body["trainer"]), int(body["epoch"]), body["key"], parse_peers(body["peers"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return roster if is_key(roster.key) and roster.peers else None
