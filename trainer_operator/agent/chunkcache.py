"""Chunks on the pod's own volume, so that a restore fetches only what is missing, here and in other pods (RS2).

    save      what goes into the store is kept here too; what neither this nor the last checkpoint refers to goes
    restore   a chunk comes from here if its content matches its name, else from a peer that has it, else from the store

A chunk's name is its hash, and it is compared with it on every use: a damaged file counts as absent. Nothing here is
needed for a restore, so nothing is synced, every failure is passed over, and a volume that is nearly full keeps none.
Only restores read it; verification and commits see the store alone. What was saved or read last is in the kernel's page
cache anyway, so no copy of it is held in the agent's own memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import IO, Iterator, Optional, Sequence, Set

from trainer_operator.agent import index
from trainer_operator.agent.backends import Content, Home, OpenHome, Page, Store, StoreError
from trainer_operator.agent.peers import Peers

FREE_SHARE = 0.15
"""Least part of the volume that stays free: with less, a kubelet deletes images, and with little less it evicts."""
_GENERATIONS = 2
_CHUNK = re.compile(r"/c\d+/[0-9a-f]{2}/([0-9a-f]{64})\Z")
_INDEX = re.compile(r"/ckpt/([^/]+)/shards/\d+/r\d+\.idx\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class ChunkCache:
    """Files in one folder, named by the hash of their content."""

    def __init__(self, folder: str, *, free_share: float = FREE_SHARE) -> None:
        self._folder, self._free_share = folder, free_share

    def keep(self, sha256: str, data: Content) -> None:
        """Keep a chunk if there is room; a half-written one never gets its name."""
        path = self._path(sha256)
        if os.path.exists(path) or not self._has_room(len(data)):
            return
        temporary = "%s.%s.tmp" % (path, secrets.token_hex(4))
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def find(self, sha256: str, *, limit: int) -> Optional[bytes]:
        """Return a chunk whose content matches its name."""
        try:
            with open(self._path(sha256), "rb") as file:
                data = file.read(limit + 1)
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == sha256 else None

    def open(self, sha256: str) -> Optional[IO[bytes]]:
        """Open a chunk as it is, for a peer that compares it with its name itself."""
        try:
            return open(self._path(sha256), "rb")
        except OSError:
            return None

    def retain(self, wanted: Set[str]) -> None:
        """Delete all others, and what a writer that died left."""
        for name in self._names():
            if name not in wanted:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(self._folder, name))

    def _names(self) -> Iterator[str]:
        try:
            yield from os.listdir(self._folder)
        except OSError:
            return

    def _path(self, sha256: str) -> str:
        if _SHA256.match(sha256) is None:
            raise ValueError("chunk name %r is not a sha256" % sha256[:80])
        return os.path.join(self._folder, sha256)

    def _has_room(self, count: int) -> bool:
        try:
            os.makedirs(self._folder, exist_ok=True)
            found = os.statvfs(self._folder)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize - count > self._free_share * found.f_blocks * found.f_frsize


class _Through:
    """A store whose calls go through to another one."""

    def __init__(self, store: Store, cache: ChunkCache) -> None:
        self._store, self._cache = store, cache

    @property
    def address(self) -> str:
        """Where the store is."""
        return self._store.address

    def create(self, key: str, data: Content) -> None:
        """Create in the store."""
        self._store.create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Set or replace a content in the store."""
        self._store.put(key, data)

    def get(self, key: str, *, limit: int) -> bytes:
        """Return a content of the store."""
        return self._store.get(key, limit=limit)

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Return a part of a content of the store."""
        return self._store.get_range(key, start=start, length=length)

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """Return a page of the store's keys."""
        return self._store.list(prefix, cursor=cursor, shallow=shallow)

    def delete_many(self, keys: Sequence[str]) -> int:
        """Delete keys in the store."""
        return self._store.delete_many(keys)

    def sweep(self, prefix: str) -> None:
        """Remove what is no object."""
        self._store.sweep(prefix)


class KeepingStore(_Through):
    """A store for saves: chunks that it takes are kept in the cache as well; nothing is read from there."""

    def __init__(self, store: Store, cache: ChunkCache) -> None:
        super().__init__(store, cache)
        self._saved: "OrderedDict[str, Set[str]]" = OrderedDict()

    def create(self, key: str, data: Content) -> None:
        """Create in the store, then keep; an index tells what need not be kept any more."""
        self._store.create(key, data)
        chunk, listed = _CHUNK.search(key), _INDEX.search(key)
        if chunk is not None:
            self._cache.keep(chunk.group(1), data)
        elif listed is not None:
            self._saved.setdefault(listed.group(1), set()).update(_chunks(bytes(data)))
            while len(self._saved) > _GENERATIONS:
                self._saved.popitem(last=False)
            if len(self._saved) == _GENERATIONS:  # before that we don't know what an earlier agent kept
                self._cache.retain(set().union(*self._saved.values()))


@dataclass
class Sources:
    """Where the bytes of a restore came from."""

    own: int = 0
    peer: int = 0
    store: int = 0


class CachedStore(_Through):
    """A store for restores: chunks come from the cache if they are there, else from peers, and go there if not."""

    def __init__(self, store: Store, cache: ChunkCache, peers: Optional[Peers] = None) -> None:
        super().__init__(store, cache)
        self._peers = peers
        self._lock = threading.Lock()
        self.sources = Sources()

    def get(self, key: str, *, limit: int) -> bytes:
        """Return a content, of a chunk whichever copy is nearest."""
        chunk, listed = _CHUNK.search(key), _INDEX.search(key)
        if chunk is not None:
            return self._chunk(key, chunk.group(1), limit)
        data = self._store.get(key, limit=limit)
        if listed is not None:
            self._cache.retain(set(_chunks(data)))  # of what is not restored now nothing will be
        return data

    def _chunk(self, key: str, sha256: str, length: int) -> bytes:
        found = self._cache.find(sha256, limit=length)
        if found is not None:
            self._count(own=len(found))
            return found
        found = self._peers.fetch(sha256, length=length) if self._peers is not None else None
        if found is not None:
            self._count(peer=len(found))
        else:
            found = self._store.get(key, limit=length)
            self._count(store=len(found))
            if hashlib.sha256(found).hexdigest() != sha256:
                return found
        self._cache.keep(sha256, found)
        return found

    def _count(self, *, own: int = 0, peer: int = 0, store: int = 0) -> None:
        with self._lock:
            self.sources.own += own
            self.sources.peer += peer
            self.sources.store += store


def keeping(open_home: OpenHome, folder: str) -> OpenHome:
    """Have what is saved kept in a folder."""
    opened: "list[Home]" = []

    def open_once() -> Home:
        if not opened:
            home = open_home()
            opened.append(Home(KeepingStore(home.store, ChunkCache(folder)), home.folder))
        return opened[0]

    return open_once


def cached(home: Home, folder: str, *, peers: Optional[Peers] = None) -> Home:
    """Return a home for a restore that looks into a folder first, then asks peers; without a folder, the home itself."""
    return Home(CachedStore(home.store, ChunkCache(folder), peers), home.folder) if folder else home


def _chunks(raw: bytes) -> Iterator[str]:
    try:
        yield from (chunk.sha256 for chunk in index.parse(raw).chunks())
    except StoreError:
        return
