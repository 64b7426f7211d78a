"""The chunk cache: a restore takes from the pod's volume what is sound there, and from the store what is missing."""

import os

import pytest

from memorystore import MemoryStore
from storecontract import patient
from trainer_operator.agent import chunkcache, copying, index, packed, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.chunkcache import CachedStore, ChunkCache, KeepingStore, Sources
from trainer_operator.agent.peers import ChunkServer, Keys, Peer, Peers, Roster

FIRST, SECOND, THIRD = (f"{step:012d}-e1-00ab" for step in (10, 20, 30))


class Counting(MemoryStore):
    """Counts the bytes of chunks that are read."""

    read = 0

    def get(self, key, *, limit):
        data = super().get(key, limit=limit)
        self.read += len(data) if "/c0/" in key else 0
        return data


class Pod:
    """An agent that saves, and a process beside it that restores."""

    def __init__(self, folder):
        self.folder = folder
        self.cache = folder / "cache"
        self.memory = Counting()
        self.home = Home(patient(self.memory), "t")
        self.saving = chunkcache.keeping(lambda: self.home, str(self.cache))

    def save(self, ckpt, tensors, base=None):
        sources = [packed.Source(n, "|u1", (len(d),), memoryview(d)) for n, d in tensors.items()]
        path, step = str(self.folder / "spool"), store.step_of(ckpt)
        packed.write(path, sources, step=step, ps_epoch=0, meta={})
        where = store.CheckpointDir(self.saving(), ckpt)
        older = store.CheckpointDir(self.saving(), base) if base else None
        source = packed.read_header(path)
        done = copying.write_copy(where, source, shard=0, copy=0, epoch=1, base=older, packed_below=0)
        store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=step, epoch=1))
        store.decide_commit(where, shards=1, copies=1, step=step, epoch=1, reason="Interval", nonce="n")
        self.memory.read = 0

    def restore(self, ckpt):
        where = store.CheckpointDir(chunkcache.cached(self.home, str(self.cache)), ckpt)
        return {name: bytes(data) for name, data in index.read_shard(where, 0)[1].items()}

    def files(self):
        return sorted(self.cache.iterdir()) if self.cache.exists() else []


@pytest.fixture
def pod(tmp_path, roomy):
    return Pod(tmp_path)


def test_a_restore_in_the_same_pod_reads_no_chunk_from_the_store(pod):
    """RS2: local volume before store."""
    content = {"w": b"a" * 100, "b": b"b" * 10}
    pod.save(FIRST, content)
    assert pod.restore(FIRST) == content
    assert pod.memory.read == 0


def test_only_what_is_missing_is_fetched_and_then_kept(pod):
    """RS2, KT4."""
    pod.save(FIRST, {"frozen": b"f" * 1000, "head": b"h" * 10})
    ours, pod.cache = pod.cache, pod.folder / "elsewhere"
    pod.saving = chunkcache.keeping(lambda: pod.home, str(pod.cache))
    pod.save(SECOND, {"frozen": b"f" * 1000, "head": b"i" * 10}, base=FIRST)  # by another pod
    pod.cache = ours
    assert pod.restore(SECOND) == {"frozen": b"f" * 1000, "head": b"i" * 10}
    assert pod.memory.read == 10
    assert pod.restore(SECOND)["head"] == b"i" * 10
    assert pod.memory.read == 10


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer", "removed", "folder"])
def test_a_damaged_file_counts_as_absent(pod, damage):
    """RS2: compared with its hash on every use."""
    content = {"w": b"a" * 100}
    pod.save(FIRST, content)
    (path,) = pod.files()
    good = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "removed":
        path.write_bytes({"flipped": b"x" + good[1:], "cut": good[:-1], "longer": good + b"x"}[damage])
    assert pod.restore(FIRST) == content
    assert pod.memory.read == 100


def test_a_damaged_store_is_noticed_and_not_kept(pod):
    """RS2: what does not match its name is no chunk."""
    pod.save(FIRST, {"w": b"a" * 100})
    (path,) = pod.files()
    path.unlink()
    (key,) = [key for key in pod.memory.objects if "/c0/" in key]
    pod.memory.objects[key] = b"x" * 100
    with pytest.raises(index.NotRestorable):
        pod.restore(FIRST)
    assert pod.files() == []


def test_what_neither_this_nor_the_last_checkpoint_refers_to_goes(pod):
    """RS2: the undecided one and the one before it are whole; a chunk that both share stays."""
    pod.save(FIRST, {"frozen": b"f", "head": b"1"})
    pod.save(SECOND, {"frozen": b"f", "head": b"2"}, base=FIRST)
    assert len(pod.files()) == 3
    pod.save(THIRD, {"frozen": b"f", "head": b"3"}, base=SECOND)
    assert sorted(path.read_bytes() for path in pod.files()) == [b"2", b"3", b"f"]
    assert pod.restore(SECOND)["head"] == b"2"
    assert sorted(path.read_bytes() for path in pod.files()) == [b"2", b"f"]


def test_a_save_is_checked_against_the_store_and_never_against_the_cache(pod):
    """QR3, IV11: what is here says nothing of what is durable there."""
    cache = ChunkCache(str(pod.cache))
    stored = KeepingStore(pod.home.store, cache)
    cache.keep("a" * 64, b"data")
    with pytest.raises(store.NotFound):
        stored.get("t/ckpt/x/c0/aa/" + "a" * 64, limit=10)
    reading = CachedStore(pod.home.store, cache)
    with pytest.raises(store.NotFound):
        reading.get("t/ckpt/x/c0/aa/" + "a" * 64, limit=10)  # its content is not what its name says


def test_a_volume_that_is_nearly_full_keeps_nothing(pod):
    """CS11: the cache takes no room that the training may need."""
    ChunkCache(str(pod.cache), free_share=1.0).keep("a" * 64, b"data")
    assert pod.files() == []


def test_a_folder_that_cannot_be_made_is_passed_over(pod):
    """CS11."""
    pod.cache.write_text("a file")
    pod.save(FIRST, {"w": b"a" * 100})
    assert pod.restore(FIRST) == {"w": b"a" * 100}
    assert pod.cache.read_text() == "a file"


def test_what_a_writer_left_that_died_is_swept(pod):
    """CP12: a half-written chunk never gets its name."""
    os.makedirs(pod.cache)
    (pod.cache / ("a" * 64 + ".00.tmp")).write_bytes(b"half")
    pod.save(FIRST, {"w": b"a"})
    pod.save(SECOND, {"w": b"b"})
    assert all(not path.name.endswith(".tmp") for path in pod.files())


def test_without_a_folder_the_store_is_read_as_it_is(pod):
    """RS2: a laptop, or an older agent."""
    assert chunkcache.cached(pod.home, "") is pod.home


def test_a_new_pod_takes_its_chunks_from_a_peer_and_the_store_only_what_that_lacks(pod, tmp_path):
    """RS2: own volume, then peers, then the store; what came is kept, and counted by where from."""
    pod.save(FIRST, {"frozen": b"f" * 1000, "head": b"h" * 10})
    others = ChunkCache(str(pod.cache))
    (missing,) = [path for path in pod.files() if path.stat().st_size == 10]
    missing.unlink()
    keys = Keys("uid")
    keys.learn(1, "ab" * 32)
    server = ChunkServer("127.0.0.1", open_chunk=others.open, keys=keys)
    roster = Roster("uid", 1, "ab" * 32, (Peer("127.0.0.1", server.port),))
    peers = Peers(roster)
    try:
        for expected in (Sources(peer=1000, store=10), Sources(own=1010)):
            home = chunkcache.cached(pod.home, str(tmp_path / "new pod"), peers=peers)
            _, found = index.read_shard(store.CheckpointDir(home, FIRST), 0)
            assert found == {"frozen": b"f" * 1000, "head": b"h" * 10}
            assert home.store.sources == expected
    finally:
        peers.close()
        server.close()
    assert pod.memory.read == 10
