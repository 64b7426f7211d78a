"""How copies are cut: the size of chunks, small tensors packed together, and what of them is written again."""

import hashlib
import json

import pytest

from memorystore import MemoryStore
from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.cutting import MAX_CHUNKS, PACKED_BELOW, chunk_bytes
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.scrub import Scrub, Throttle

MIB = 1024 * 1024
FIRST, SECOND, THIRD = (f"{step:012d}-e1-00ab" for step in (10, 20, 30))
SMALL = {f"layer{number}": bytes([number]) * (1000 + number) for number in range(100)}
LARGE = {"large": b"L" * PACKED_BELOW}


class Trainer:
    """A Trainer's part of a store, and what it saves there."""

    def __init__(self, folder):
        self.folder, self.memory = folder, MemoryStore()
        self.home = Home(self.memory, "t")

    def at(self, ckpt):
        return store.CheckpointDir(self.home, ckpt)

    def save(self, ckpt, tensors, *, base=None, copies=(0,), unchanged=()):
        """Write copies and commit; of unchanged tensors only the names are handed over."""
        step = store.step_of(ckpt)
        sources = [
            packed.Source(
                name, "|u1", (1, len(data)), memoryview(b"" if name in unchanged else data), name in unchanged
            )
            for name, data in tensors.items()
        ]
        path = str(self.folder / "spool")
        packed.write(path, sources, step=step, ps_epoch=0, meta={})
        for copy in copies:
            older = self.at(base) if base else None
            source = packed.read_header(path)
            done = copying.write_copy(self.at(ckpt), source, shard=0, copy=copy, epoch=1, base=older)
            store.write_ack(self.at(ckpt), 0, copy, ack=done.ack("pod", "node", step=step, epoch=1))
        arguments = {"shards": 1, "copies": len(copies), "step": step, "epoch": 1}
        store.decide_commit(self.at(ckpt), **arguments, reason="Interval", nonce="n")
        return done

    def index(self, ckpt, copy=0):
        return index.parse(self.memory.objects[self.at(ckpt).index(0, copy)])

    def read(self, ckpt):
        return {name: bytes(data) for name, data in index.read_shard(self.at(ckpt), 0)[1].items()}

    def chunks(self, ckpt, copy=0):
        prefix = self.at(ckpt).chunks(copy)
        return [data for key, data in sorted(self.memory.objects.items()) if key.startswith(prefix)]


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


@pytest.mark.parametrize(
    ("lengths", "size"),
    [
        ([], 16),
        ([100 * 1024**3], 16),  # 6,400 chunks
        ([100 * 1024**3 + 1], 32),
        ([1] * 10**6, 16),
        ([200 * 1024**3, MIB - 1], 64),  # the pack is one too many
        ([800 * 1024**3], 128),
        ([1600 * 1024**3], 256),
        ([9999 * 1024**3], 256),
        ([17 * MIB] * 3200, 16),
        ([17 * MIB] * 3201, 32),  # chunks belong to one tensor, so each of these has two
    ],
)
def test_chunks_grow_until_a_copy_has_few_enough(lengths, size):
    """CK3: 16 MiB, doubled up to 256 MiB, until at most 6,400 are needed."""
    assert MAX_CHUNKS == 6400
    assert chunk_bytes(lengths) == size * MIB


def test_small_tensors_share_a_chunk_and_large_ones_have_their_own(trainer):
    """CK3: 101 tensors are two objects."""
    state = {**SMALL, **LARGE, "empty": b""}
    done = trainer.save(FIRST, state)
    assert sorted(map(len, trainer.chunks(FIRST))) == [sum(map(len, SMALL.values())), PACKED_BELOW]
    assert trainer.read(FIRST) == state
    assert (done.bytes, done.reused) == (sum(map(len, state.values())), 0)


def test_packs_are_no_larger_than_a_chunk(trainer):
    """CK3."""
    state = {f"t{number}": bytes([number]) * (PACKED_BELOW - 1) for number in range(20)}
    trainer.save(FIRST, state)
    found = trainer.chunks(FIRST)
    assert sorted(len(data) // (PACKED_BELOW - 1) for data in found) == [4, 16]
    assert max(map(len, found)) <= index.CHUNK_BYTES
    assert trainer.read(FIRST) == state


@pytest.mark.parametrize("handed_over", [True, False])
def test_a_tensor_that_did_not_change_stays_in_its_old_pack(trainer, handed_over):
    """FZ1, KT2: found by fingerprint, or by its own hash; only what changed is packed anew."""
    trainer.save(FIRST, SMALL)
    changed = {**SMALL, "layer7": b"seven", "layer50": b"fifty"}
    frozen = set() if handed_over else set(SMALL) - {"layer7", "layer50"}
    done = trainer.save(SECOND, changed, base=FIRST, unchanged=frozen)
    assert trainer.chunks(SECOND) == [b"sevenfifty"]
    assert (done.bytes - done.reused, done.owners) == (10, (FIRST,))
    assert trainer.read(SECOND) == changed


def test_with_nine_tenths_frozen_at_most_an_eighth_is_written(trainer):
    """KT2: however small the tensors are, three checkpoints long, and their indexes count."""
    state = {f"t{number}": bytes([number % 256, number // 256]) * 2000 for number in range(1000)}
    trainer.save(FIRST, state)
    before = FIRST
    for ckpt in (SECOND, THIRD):
        state.update({f"t{number}": f"{ckpt} {number:4}".encode() * 160 for number in range(0, 1000, 10)})
        done = trainer.save(ckpt, state, base=before)
        written = sum(map(len, trainer.chunks(ckpt)))
        assert written == done.bytes - done.reused
        assert written <= 0.12 * done.bytes
        before = ckpt
    assert trainer.read(THIRD) == state


def test_the_same_small_content_twice_is_packed_once(trainer):
    """CK3, FZ3: also if the second comes in a later pack."""
    filler = {f"f{number}": bytes([number]) * (PACKED_BELOW - 1) for number in range(1, 20)}
    state = {"a": b"same", "b": b"same", **filler, "c": b"same", "d": b"other"}
    trainer.save(FIRST, state)
    assert sum(data.count(b"same") for data in trainer.chunks(FIRST)) == 1
    assert trainer.read(FIRST) == state


def test_a_pack_stays_as_long_as_one_tensor_in_it_is_referred_to(trainer):
    """GC5, IV3."""
    trainer.save(FIRST, SMALL)
    last = {**{name: b"new" + data for name, data in SMALL.items()}, "layer9": SMALL["layer9"]}
    trainer.save(SECOND, last, base=FIRST)
    collection.collect(trainer.at(FIRST))
    assert trainer.read(SECOND) == last
    trainer.save(THIRD, {**last, "layer9": b"gone"}, base=SECOND)
    collection.collect(trainer.at(SECOND))
    assert trainer.read(THIRD)["layer9"] == b"gone"
    assert trainer.chunks(FIRST) == []


def test_a_copy_that_its_base_lacks_is_written_from_another_one(trainer):
    """CK4: copies share nothing, packs neither."""
    trainer.save(FIRST, SMALL)
    changed = {**SMALL, "layer7": b"seven"}
    done = trainer.save(SECOND, changed, base=FIRST, copies=(0, 1), unchanged=set(SMALL) - {"layer7"})
    assert done.owners == ()
    assert {len(data) for data in trainer.chunks(SECOND, 1)} == {5, sum(map(len, SMALL.values()))}
    assert (done.bytes, done.reused) == (sum(map(len, changed.values())), 0)


def test_a_damaged_pack_is_mended_from_the_other_copy(trainer):
    """PB2."""
    trainer.save(FIRST, SMALL, copies=(0, 1))
    (chunk,) = trainer.index(FIRST).chunks()
    key = trainer.at(FIRST).chunk(0, chunk.sha256)
    good = trainer.memory.objects[key]
    trainer.memory.objects[key] = good[:-1] + b"?"
    throttle = Throttle(1e9, clock=lambda: 0.0, pause=lambda _seconds: None)
    report = Scrub(trainer.at(FIRST), throttle=throttle).run()
    assert (report.damaged, report.repaired, report.lacking) == (1, 1, 0)
    assert trainer.memory.objects[key] == good


def test_a_base_that_was_cut_by_another_size_is_not_referred_to(trainer):
    """FZ4: the size is fixed along a lineage; another one means a full write."""
    trainer.save(FIRST, SMALL)
    where = trainer.at(FIRST)
    header, _, rest = trainer.memory.objects[where.index(0, 0)].partition(b"\n")
    other = json.dumps({**json.loads(header), "chunk": 32 * MIB}).encode() + b"\n" + rest
    trainer.memory.objects[where.index(0, 0)] = other
    record = where.record("DECISION")
    decision = json.loads(trainer.memory.objects[record])
    decision["shards"]["0"]["copies"]["0"] = hashlib.sha256(other).hexdigest()
    trainer.memory.objects[record] = json.dumps(decision).encode()
    assert trainer.save(SECOND, SMALL, base=FIRST).owners == ()
    with pytest.raises(copying.BaseUnusable, match="cut into pieces of 33554432 bytes, not 16777216"):
        trainer.save(THIRD, SMALL, base=FIRST, unchanged=SMALL)


def test_what_an_older_version_stored_is_referred_to(trainer):
    """FZ1: each small tensor was an object of its own then."""
    where = trainer.at(FIRST)
    lines = [{"v": 2, "ckpt": FIRST, "step": 10, "epoch": 1, "shard": 0, "copy": 0, "meta": {}}]
    for name, data in SMALL.items():
        sha256 = hashlib.sha256(data).hexdigest()
        trainer.memory.create(where.chunk(0, sha256), data)
        refs = [[f"{FIRST}/{sha256}", len(data)]]
        lines.append({"name": name, "dtype": "|u1", "shape": [1, len(data)], "refs": refs})
    lines.append({"end": len(SMALL)})
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    trainer.memory.create(where.index(0, 0), raw)
    ack = store.Ack(hashlib.sha256(raw).hexdigest(), 1, "pod", "node", 10, 1)
    store.write_ack(where, 0, 0, ack=ack)
    store.decide_commit(where, shards=1, copies=1, step=10, epoch=1, reason="Interval", nonce="n")
    changed = {**SMALL, "layer7": b"seven"}
    trainer.save(SECOND, changed, base=FIRST)
    assert trainer.chunks(SECOND) == [b"seven"]
    assert trainer.read(SECOND) == changed


@pytest.mark.parametrize(
    "part",
    [
        [0, 11, "a" * 64],
        [-1, 3, "a" * 64],
        [9, 2, "a" * 64],
        [0, 0, "a" * 64],
        [0, 3, "A" * 64],
        [0, 3],
        {},
        "abc",
    ],
)
def test_parts_that_lie_outside_of_their_chunk_are_refused(part):
    """CK5."""
    header = {"v": 3, "ckpt": FIRST, "step": 10, "epoch": 1, "shard": 0, "copy": 0, "meta": {}}
    tensor = {"name": "w", "dtype": "|u1", "shape": [3], "refs": [[f"{FIRST}/{'a' * 64}", 10]], "part": part}
    with pytest.raises(Malformed):
        index.parse(b"".join(json.dumps(line).encode() + b"\n" for line in (header, tensor, {"end": 1})))
