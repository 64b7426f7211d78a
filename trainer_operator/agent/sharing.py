"""A pod's part in restores: what it holds and serves, whom its process may ask, and where its bytes came from (RS2).

All of it is told with each beat: `chunkPort` and `holds`, so that the operator can name this agent to others;
`restored`, once the process has its state; `waits`, while a start waits for the store.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

from trainer_operator.agent.chunkcache import ChunkCache
from trainer_operator.agent.peers import ChunkServer, Keys, Roster, write_roster
from trainer_operator.agent.peers.roster import parse_peers
from trainer_operator.agent.settings import Settings

_HELD = 2
"""Checkpoints whose chunks the cache keeps."""
_LIARS = 4
_LONGEST = 512
_MOST = 2**53


class Sharing:
    """What the agent gives to and takes from its peers.

    Guarantees: nothing here keeps a process from starting; without a store, or a port, nothing is shared.
    """

    def __init__(self, settings: Settings, *, news: Callable[[], None], log: Callable[[str], None]) -> None:
        self._settings, self._news, self._log = settings, news, log
        self._keys = Keys(settings.identity.uid)
        self._lock = threading.Lock()
        self._server: Optional[ChunkServer] = None
        self._holds: List[str] = []
        self._restored: Optional[Dict[str, Any]] = None
        self._waits = ""

    def start(self) -> None:
        """Listen for peers."""
        if not self._settings.store:
            return
        cache = ChunkCache(self._settings.cache_folder)
        try:
            self._server = ChunkServer(self._settings.pod_ip, open_chunk=cache.open, keys=self._keys)
        except OSError as error:
            self._log("chunks are not served to other pods: %s" % error)

    def close(self) -> None:
        """Serve no more."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def learn(self, epoch: int, key: str) -> None:
        """Take the key of an epoch."""
        self._keys.learn(epoch, key)

    def saved(self, ckpt: str, shard: int) -> None:
        """Note that the chunks of a shard were saved here."""
        with self._lock:
            held = "%s/%d" % (ckpt, shard)
            self._holds = ([each for each in self._holds if each != held] + [held])[-_HELD:]

    def starts(self, args: Mapping[str, Any], epoch: int) -> None:
        """Leave for a process that is about to start whom it may ask; what the last one said is void."""
        key, peers = self._keys.newest(epoch), parse_peers(args.get("peers"))
        roster = Roster(self._settings.identity.uid, epoch, key, peers)
        write_roster(self._settings.roster_file, roster)
        with self._lock:
            self._restored = None

    def restored(self, message: Mapping[str, Any]) -> None:
        """Take what the process says of its restore.

        Raises: KeyError, TypeError, ValueError when it is malformed.
        """
        ckpt, shard = str(message["ckpt"])[:64], int(message["shard"])
        liars = [str(peer)[:80] for peer in list(message.get("liars") or ())[:_LIARS]]
        sources = {name: min(_MOST, max(0, int(message[name]))) for name in ("own", "peer", "store")}
        for liar in liars:
            self._log("%s sent, or passed on, a chunk that does not match its hash; it was not used" % liar)
        with self._lock:
            self._holds = ["%s/%d" % (ckpt, shard)]
            self._restored = {"ckpt": ckpt, **sources, "liars": liars}
        self._news()

    def waits(self, reason: str) -> None:
        """Note what a start waits for; empty once it waits for nothing."""
        with self._lock:
            changed, self._waits = bool(reason) != bool(self._waits), reason[:_LONGEST]
        if changed:
            self._news()

    def told(self) -> Dict[str, Any]:
        """Return this pod's part of a beat."""
        server = self._server
        with self._lock:
            return {
                "chunkPort": server.port if server is not None else 0,
                "holds": list(self._holds),
                "restored": self._restored,
                "waits": self._waits,
            }
