"""A restore from the store, as the training process makes it: own volume, then peers, then the store (RS2, RS5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict

from trainer_operator.agent import index
from trainer_operator.agent.backends import Home, StoreError
from trainer_operator.agent.chunkcache import CachedStore, ChunkCache, Sources
from trainer_operator.agent.index import Index
from trainer_operator.agent.peers import open_peers
from trainer_operator.agent.store import CheckpointDir


class OtherServers(StoreError):
    """The checkpoint is of another number of parameter servers."""


@dataclass(frozen=True)
class Reading:
    """What was read, and what the operator is told of it."""

    index: Index
    data: Dict[str, bytearray]
    told: Dict[str, Any]


def read(
    home: Home, ckpt: str, *, cache_folder: str, peers_file: str, role: str, rank: int, servers: int
) -> Reading:
    """Read the shard of a member; every byte of it matches its hash.

    Raises: index.NotRestorable; OtherServers; StoreError when the store is at fault.
    """
    peers = open_peers(peers_file)
    try:
        cached = CachedStore(home.store, ChunkCache(cache_folder), peers) if cache_folder else None
        where = CheckpointDir(Home(cached or home.store, home.folder), ckpt)
        shards = index.check_restorable(where, None).shards
        if role == "ps" and servers != len(shards):
            raise OtherServers(
                "%s has %d shards, one of each server; there are %d now" % (ckpt, len(shards), servers)
            )
        shard = index.shard_for(shards, role=role, rank=rank)
        found, data = index.read_shard(where, shard)
    finally:
        peers.close()
    sources = cached.sources if cached is not None else Sources()
    counts = {"own": sources.own, "peer": sources.peer, "store": sources.store}
    return Reading(found, data, {"ckpt": ckpt, "shard": shard, "liars": peers.liars, **counts})
