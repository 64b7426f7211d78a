"""Copies that refer to what their base holds: what is written, what is referred to, and what is refused."""

import hashlib
import json

import pytest

from memorystore import MemoryStore
from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import Home
from trainer_operator.agent.records import Malformed

FIRST, SECOND, THIRD = (f"{step:012d}-e1-00ab" for step in (10, 20, 30))


class Trainer:
    """A Trainer's part of a store, and what it saves there."""

    def __init__(self, folder):
        self.folder = folder
        self.memory = MemoryStore()
        self.home = Home(self.memory, "t")

    def at(self, ckpt):
        return store.CheckpointDir(self.home, ckpt)

    def write(self, ckpt, tensors, *, base=None, copy=0, unchanged=(), audited=()):
        """Write a copy; of unchanged tensors the file has the name only, of audited ones the content too."""
        sources = [
            packed.Source(
                name,
                "|u1",
                (len(data),),
                memoryview(b"" if name in unchanged else data),
                name in unchanged or name in audited,
            )
            for name, data in tensors.items()
        ]
        path = str(self.folder / "spool")
        step = store.step_of(ckpt)
        packed.write(path, sources, step=step, ps_epoch=0, meta={})
        where = self.at(ckpt)
        found = copying.write_copy(
            where,
            packed.read_header(path),
            shard=0,
            copy=copy,
            epoch=1,
            base=self.at(base) if base else None,
        )
        store.write_ack(where, 0, copy, ack=found.ack("pod", "node", step=step, epoch=1))
        return found

    def commit(self, ckpt, *, copies=1):
        arguments = {"shards": 1, "copies": copies, "step": store.step_of(ckpt), "epoch": 1}
        return store.decide_commit(self.at(ckpt), **arguments, reason="Interval", nonce="n")

    def save(self, ckpt, tensors, **how):
        """Write one copy and commit."""
        found = self.write(ckpt, tensors, **how)
        self.commit(ckpt)
        return found

    def read(self, ckpt):
        return {name: bytes(data) for name, data in index.read_shard(self.at(ckpt), 0)[1].items()}

    def chunks(self, ckpt):
        prefix = self.at(ckpt).prefix + "c"
        return {
            key.rpartition("/")[2]: data
            for key, data in self.memory.objects.items()
            if key.startswith(prefix)
        }


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def test_content_that_the_base_holds_is_hashed_and_not_written_again(trainer):
    """FZ1 for arrays without a version counter: the same bytes are found by their hash."""
    trainer.save(FIRST, {"frozen": b"f" * 90, "head": b"1" * 10})
    found = trainer.save(SECOND, {"frozen": b"f" * 90, "head": b"2" * 10}, base=FIRST)
    assert (found.bytes, found.reused, found.owners) == (100, 90, (FIRST,))
    assert list(trainer.chunks(SECOND).values()) == [b"2" * 10]
    assert trainer.read(SECOND) == {"frozen": b"f" * 90, "head": b"2" * 10}
    assert index.verify(trainer.at(SECOND)) == (100, [])


def test_an_unchanged_tensor_is_referred_to_without_its_bytes(trainer):
    """FZ1, IV9: nothing of it is read, hashed or written."""
    trainer.save(FIRST, {"frozen": b"f" * 90, "head": b"1" * 10})
    content = {"frozen": b"f" * 90, "head": b"2" * 10}
    found = trainer.save(SECOND, content, base=FIRST, unchanged=("frozen",))
    assert (found.bytes, found.reused) == (100, 90)
    assert trainer.read(SECOND) == content


def test_references_name_the_first_owner_however_long_the_line(trainer):
    """GC: key = (owner, copy, hash); a restore follows it past checkpoints between."""
    for ckpt, base in ((FIRST, None), (SECOND, FIRST), (THIRD, SECOND)):
        trainer.save(ckpt, {"frozen": b"f" * 90, "head": ckpt.encode()}, base=base)
    decision = store.read_decision(trainer.at(THIRD))
    assert (decision.owners, decision.reused) == ((FIRST,), 90)
    assert trainer.read(THIRD)["frozen"] == b"f" * 90


def test_content_that_returns_is_written_again(trainer):
    """GC: what the base does not list is never referred to, though an older checkpoint has it."""
    trainer.save(FIRST, {"w": b"a" * 10})
    trainer.save(SECOND, {"w": b"b" * 10}, base=FIRST)
    found = trainer.save(THIRD, {"w": b"a" * 10}, base=SECOND)
    assert (found.reused, found.owners) == (0, ())


def test_a_copy_refers_only_to_the_same_copy_of_its_base(trainer):
    """CK4: copies share nothing. A copy that the base lacks is made whole from another one."""
    content = {"frozen": b"f" * 90}
    trainer.write(FIRST, content, copy=0)
    trainer.write(FIRST, content, copy=1)
    trainer.commit(FIRST, copies=2)
    for copy, reused in ((0, 90), (1, 90), (2, 0)):
        found = trainer.write(SECOND, content, base=FIRST, copy=copy, unchanged=("frozen",))
        assert (found.bytes, found.reused) == (90, reused)
    assert len(trainer.chunks(SECOND)) == 1
    trainer.commit(SECOND, copies=3)
    assert index.verify(trainer.at(SECOND)) == (270, [])


def test_an_audit_finds_what_was_taken_for_unchanged(trainer):
    """FZ2: the content that the file has is what is kept."""
    trainer.save(FIRST, {"a": b"a" * 10, "b": b"b" * 10})
    content = {"a": b"a" * 10, "b": b"B" * 10}
    found = trainer.save(SECOND, content, base=FIRST, audited=("a", "b"))
    assert found.differing == ("b",)
    assert store.read_decision(trainer.at(SECOND)).differing == ("b",)
    assert trainer.read(SECOND) == content


@pytest.mark.parametrize("state", ["undecided", "aborted", "collected", "absent", "other shape"])
def test_an_unchanged_tensor_without_a_usable_base_is_refused(trainer, state):
    """FZ4, CS1: no ack for content that nobody has."""
    store.identify(trainer.home)
    content = {"w": b"a" * 10}
    if state != "absent":
        trainer.write(FIRST, {"w": b"a" * 11} if state == "other shape" else content)
    if state == "aborted":
        store.decide_abort(trainer.at(FIRST), step=10, epoch=1, reason="Timeout", nonce="n")
    elif state in {"collected", "other shape"}:
        trainer.commit(FIRST)
    if state == "collected":
        collection.collect(trainer.at(FIRST))
    with pytest.raises(copying.BaseUnusable, match="tensor w is unchanged, but its base cannot be used"):
        trainer.write(SECOND, content, base=FIRST, unchanged=("w",))
    assert store.read_acks(trainer.at(SECOND)) == {}


def test_a_chunk_that_the_base_lost_is_found_before_the_ack(trainer):
    """QR3, IV3: also what is only referred to must be there in full."""
    trainer.save(FIRST, {"w": b"a" * 10})
    (lost,) = [key for key in trainer.memory.objects if "/c0/" in key]
    del trainer.memory.objects[lost]
    with pytest.raises(store.StoreError):
        trainer.write(SECOND, {"w": b"a" * 10}, base=FIRST)
    assert store.read_acks(trainer.at(SECOND)) == {}


def written_index(*refs):
    lines = [{"v": 2, "ckpt": SECOND, "step": 20, "epoch": 1, "shard": 0, "copy": 0, "meta": {}}]
    lines += [{"name": "w", "dtype": "|u1", "shape": [10], "refs": list(refs)}, {"end": 1}]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.mark.parametrize(
    "ref",
    [
        [f"{THIRD}/{'a' * 64}", 10],
        [f"../{'a' * 64}", 10],
        [f"{FIRST}/../../{'a' * 64}", 10],
        [f"{FIRST}/{'a' * 63}", 10],
        [f"{FIRST}/{'a' * 64}", 0],
        [f"{FIRST}/{'a' * 64}", 2**40],
        [f"{FIRST}/{'a' * 64}"],
        {},
        7,
    ],
)
def test_references_that_lead_elsewhere_are_refused(ref):
    """CK5, TN10: nor may one lead to a checkpoint that is not older."""
    with pytest.raises(store.StoreError):
        index.parse(written_index(ref))
    assert index.parse(written_index([f"{FIRST}/{'a' * 64}", 10])).tensors[0].chunks[0].owner == FIRST


def test_an_index_of_the_first_version_is_read(trainer):
    """CK5: what earlier versions stored can be restored; its chunks are its own."""
    sha256 = hashlib.sha256(b"old").hexdigest()
    lines = [{"v": 1, "ckpt": FIRST, "step": 10, "epoch": 1, "shard": 0, "copy": 0, "meta": {}}]
    chunks = [{"sha256": sha256, "length": 3}]
    lines += [{"name": "w", "dtype": "|u1", "shape": [3], "chunks": chunks}, {"end": 1}]
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    assert index.parse(raw).tensors[0].chunks == (index.Chunk(sha256, 3, FIRST),)
    with pytest.raises(Malformed, match=r"version '4'; this agent reads 1 to 3"):
        index.parse(raw.replace(b'"v": 1', b'"v": 4'))
