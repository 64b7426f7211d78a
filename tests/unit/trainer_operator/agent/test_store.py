"""The store: crash points, two deciders, quorum, and records that must be refused."""

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import Home, NotFound, RetryingStore, StoreChanged, open_home
from trainer_operator.agent.backends.file import FileStore
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import CheckpointDir

CKPT = "000000000040-e2-00ab"
TENSORS = {"w": b"0123456789" * 100, "layer/b": b"bias", "empty": b""}


@pytest.fixture
def where(tmp_path):
    return CheckpointDir(home(tmp_path), CKPT)


def home(tmp_path):
    return open_home(str(tmp_path / "root" / "store"))


def file_of(where, key):
    return Path(where.store.address) / key


def packed_file(folder, tensors=None, *, step=40):
    sources = [packed.Source(n, "|u1", (len(d),), memoryview(d)) for n, d in (tensors or TENSORS).items()]
    path = str(folder / f"source-{step}")
    packed.write(path, sources, step=step, ps_epoch=0, meta={"seed": 7})
    return packed.read_header(path)


def write_copy(where, folder, *, shard=0, copy=0, step=40, epoch=2, with_ack=True):
    source = packed_file(folder, step=step)
    done = copying.write_copy(where, source, shard=shard, copy=copy, epoch=epoch, packed_below=0)
    if with_ack:
        store.write_ack(where, shard, copy, ack=done.ack("pod", "node", step=step, epoch=epoch))
    return done.sha256


def commit(where, *, shards=1, copies=1, step=40, epoch=2, nonce="n"):
    return store.decide_commit(
        where, shards=shards, copies=copies, step=step, epoch=epoch, reason="Interval", nonce=nonce
    )


def crash_points(tmp_path, scenario):
    script = Path(__file__).with_name("crash_points.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), scenario], capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_crash_at_any_store_call_of_a_checkpoint_leaves_nothing_or_a_whole_one(tmp_path):
    """CP1, CP9, CP10, CP11, IV11: and the same calls again bring it to its end."""
    points = crash_points(tmp_path, "checkpoint")
    assert len(points) > 20
    assert [point["finished"] for point in points] == [False] * (len(points) - 1) + [True]
    for point in points:
        assert point["crash"]["problems"] == [], point
        assert point["resumed"] == {"exists": True, "gone": False, "decided": True, "problems": []}, point
    assert {point["crash"]["exists"] for point in points} == {False, True}


def test_a_crash_at_any_deletion_never_leaves_a_checkpoint_that_counts_but_is_not_whole(tmp_path):
    """CP6, CP8, GC4, GC6, DE4: tombstone first, DECISION and tombstone stay."""
    points = crash_points(tmp_path, "collect")
    assert len(points) > 10
    for point in points:
        assert point["crash"]["decided"], point
        assert point["crash"]["problems"] == [], point
        assert point["resumed"] == {"exists": False, "gone": True, "decided": True, "problems": []}, point
    left = sorted(os.listdir(tmp_path / "0" / "root" / "store" / "ckpt" / CKPT))
    assert left == ["DECISION", "GC"]


def test_two_deciders_at_once_get_one_outcome(tmp_path):
    """DE1, IV2: first wins, the other one reads and follows."""
    outcomes = set()
    for number in range(60):
        where = CheckpointDir(home(tmp_path), f"{number:012d}-e2-00ab")
        write_copy(where, tmp_path, step=40)
        barrier = threading.Barrier(2)
        found = []

        def decide(kind, where=where, barrier=barrier, found=found):
            barrier.wait()
            if kind == "commit":
                found.append(commit(where, nonce="one"))
            else:
                found.append(store.decide_abort(where, step=40, epoch=2, reason="Timeout", nonce="two"))

        threads = [threading.Thread(target=decide, args=(kind,)) for kind in ("commit", "abort")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found[0] == found[1] == store.read_decision(where)
        outcomes.add(found[0].outcome)
    assert outcomes <= {"commit", "abort"}


def test_a_late_ack_after_an_abort_changes_nothing(where, tmp_path):
    """CK2, DE1, FC12."""
    aborted = store.decide_abort(where, step=40, epoch=2, reason="Timeout", nonce="one")
    write_copy(where, tmp_path)
    assert commit(where, nonce="two") == aborted
    assert store.committed(where.home) == []
    with pytest.raises(index.NotRestorable, match="was aborted: Timeout"):
        index.check_restorable(where, 0)


@pytest.mark.parametrize(
    ("copies", "acked", "commits"),
    [(1, 0, False), (1, 1, True), (2, 1, False), (2, 2, True), (3, 1, False), (3, 2, True)],
)
def test_every_shard_needs_its_own_majority(where, tmp_path, copies, acked, commits):
    """QR2, FC13: a majority of all copies together is not enough."""
    for copy in range(copies):
        write_copy(where, tmp_path, shard=0, copy=copy)
    for copy in range(acked):
        write_copy(where, tmp_path, shard=1, copy=copy)
    if commits:
        decision = commit(where, shards=2, copies=copies)
        assert {shard: len(found) for shard, found in decision.shards.items()} == {0: copies, 1: acked}
    else:
        with pytest.raises(store.QuorumNotReached) as refused:
            commit(where, shards=2, copies=copies)
        assert refused.value.acks == {"0": copies, "1": acked}
        assert store.read_decision(where) is None


def test_acks_of_another_step_or_epoch_do_not_count(where, tmp_path):
    """QR4."""
    write_copy(where, tmp_path, step=41)
    with pytest.raises(store.QuorumNotReached):
        commit(where)


def test_an_ack_whose_index_is_missing_or_torn_does_not_count(where, tmp_path):
    """QR3, IV1: the word of a record that lost its object is worth nothing."""
    write_copy(where, tmp_path)
    path = file_of(where, where.index(0, 0))
    raw = path.read_bytes()
    path.chmod(0o640)
    path.write_bytes(raw[:-7])
    with pytest.raises(store.QuorumNotReached):
        commit(where)
    path.unlink()
    with pytest.raises(store.QuorumNotReached):
        commit(where)


def test_a_malformed_decision_is_neither_commit_nor_overwritten(where, tmp_path):
    """CK5: a foreign or newer record stops us, it does not get replaced."""
    write_copy(where, tmp_path)
    for raw in (
        b"",
        b"{",
        b"[]",
        b'{"v":2,"outcome":"commit"}',
        b'{"v":1,"outcome":"maybe"}',
        b'{"v":1,"outcome":"commit"}',
    ):
        file_of(where, where.record("DECISION")).write_bytes(raw)
        with pytest.raises(Malformed):
            commit(where)
        assert store.committed(where.home) == []
        assert file_of(where, where.record("DECISION")).read_bytes() == raw


@given(cut=st.integers(min_value=0, max_value=10_000))
@settings(max_examples=200, deadline=None)
def test_a_torn_index_is_refused_at_every_length(cut):
    """CP12, CK5."""
    raw = example_index()
    torn = raw[: cut % len(raw)]
    with pytest.raises(Malformed):
        index.parse(torn)


def example_index():
    lines = [{"v": 1, "ckpt": CKPT, "step": 40, "epoch": 2, "shard": 0, "copy": 0, "meta": {}}]
    chunk = {"sha256": "a" * 64, "length": 5}
    lines += [{"name": f"t{n}", "dtype": "<f8", "shape": [5], "chunks": [chunk]} for n in range(3)]
    lines.append({"end": 3})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_an_index_or_malformed(raw):
    """CK5: hostile content never raises anything else."""
    with pytest.raises(Malformed):
        index.parse(raw)


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a/../b", "..", "a\nb", "a\\b", "x" * 1025])
def test_names_that_could_climb_are_refused(tmp_path, name):
    """CK5, TN10."""
    with pytest.raises(Malformed):
        packed_file(tmp_path, {name: b"data"})
    raw = example_index().replace(b'"t1"', json.dumps(name).encode())
    with pytest.raises(Malformed):
        index.parse(raw)


@pytest.mark.parametrize(
    "ckpt", ["", "..", "../40", "40-e2-00ab", "000000000040-e2-00AB", CKPT + "\n", CKPT + "/x"]
)
def test_ids_of_another_form_are_refused(tmp_path, ckpt):
    """TN10."""
    with pytest.raises(store.BadId):
        CheckpointDir(home(tmp_path), ckpt)


def test_a_link_in_place_of_an_index_is_not_followed(where, tmp_path):
    """TN10: no symlinks."""
    write_copy(where, tmp_path)
    commit(where)
    path = file_of(where, where.index(0, 0))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(index.NotRestorable):
        index.read_shard(where, 0)


def test_a_damaged_copy_is_passed_over_for_a_good_one(where, tmp_path):
    """RS2, CK4: copies share nothing, so one flipped byte damages one copy."""
    for copy in (0, 1):
        write_copy(where, tmp_path, copy=copy)
    commit(where, copies=2)
    chunk = file_of(where, where.chunk(0, hashlib.sha256(TENSORS["w"]).hexdigest()))
    damaged = bytearray(chunk.read_bytes())
    damaged[3] ^= 1
    chunk.chmod(0o640)
    chunk.write_bytes(bytes(damaged))
    found, data = index.read_shard(where, 0)
    assert found.copy == 1
    assert {name: bytes(value) for name, value in data.items()} == TENSORS
    checked, bad = index.verify(where)
    assert checked > 0
    assert [line.split(":")[0] for line in bad] == ["shard 0 copy 0"]
    chunk.unlink()
    file_of(where, where.chunk(1, hashlib.sha256(TENSORS["w"]).hexdigest())).unlink()
    with pytest.raises(index.NotRestorable, match="no usable copy"):
        index.check_restorable(where, 0)


def test_large_tensors_are_cut_into_chunks_of_16_mib(where, tmp_path):
    """CK3."""
    data = bytes(index.CHUNK_BYTES) + b"tail"
    source = packed_file(tmp_path, {"big": data})
    done = copying.write_copy(where, source, shard=0, copy=0, epoch=2)
    assert (done.bytes, done.reused) == (len(data), 0)
    parsed = index.parse(file_of(where, where.index(0, 0)).read_bytes())
    assert [chunk.length for chunk in parsed.tensors[0].chunks] == [index.CHUNK_BYTES, 4]
    assert hashlib.sha256(file_of(where, where.index(0, 0)).read_bytes()).hexdigest() == done.sha256


def test_a_copy_written_again_is_left_as_it_is_but_other_content_is_refused(where, tmp_path):
    """CK2: nothing under an id is ever overwritten."""
    first = write_copy(where, tmp_path)
    assert write_copy(where, tmp_path) == first
    with pytest.raises(store.StoreError, match="exists with other content"):
        copying.write_copy(where, packed_file(tmp_path, {"w": b"other"}), shard=0, copy=0, epoch=2)


def test_collect_without_a_decision_is_refused(where, tmp_path):
    """DE4: what is undecided may still be committed."""
    write_copy(where, tmp_path)
    with pytest.raises(store.NotDecided):
        collection.collect(where)
    assert store.read_acks(where)[0][0].step == 40


def test_a_collected_checkpoint_does_not_exist(where, tmp_path):
    """CK1."""
    write_copy(where, tmp_path)
    commit(where)
    assert store.committed(where.home) == [CKPT]
    assert collection.collect(where).objects > 0
    assert collection.collect(where).objects == 0
    assert store.committed(where.home) == []
    with pytest.raises(index.NotRestorable, match="tombstone"):
        index.check_restorable(where, 0)


def test_collect_leaves_what_is_not_ours(where, tmp_path):
    """GC7, FC04: a file that somebody put there is no part of the checkpoint."""
    write_copy(where, tmp_path)
    commit(where)
    foreign = file_of(where, where.record("notes.txt"))
    foreign.write_text("mine")
    collection.collect(where)
    assert foreign.read_text() == "mine"
    assert sorted(os.listdir(foreign.parent)) == ["DECISION", "GC", "notes.txt"]


def test_collect_removes_temporary_files_of_writers_that_died(where, tmp_path):
    """FC10: they are never listed, and gone after the sweep."""
    write_copy(where, tmp_path)
    commit(where)
    torn = file_of(where, where.record("c0/ab/.tmp-torn"))
    torn.parent.mkdir(exist_ok=True)
    torn.write_bytes(b"half")
    assert torn.name not in str(where.store.list(where.prefix))
    collection.collect(where)
    assert sorted(os.listdir(torn.parents[2])) == ["DECISION", "GC"]


def test_the_store_id_is_made_once(tmp_path):
    """CK7."""
    first = store.identify(open_home(str(tmp_path / "trainer-a")))
    assert len(first) == 32
    assert store.identify(open_home(str(tmp_path / "trainer-b"))) == first
    assert store.identify(open_home(str(tmp_path / "trainer-b")), expected=first) == first


@pytest.mark.parametrize("there", [False, True])
def test_another_store_than_expected_is_refused_and_gets_no_id(tmp_path, there):
    """CK7, PB4: an empty or a foreign volume is mounted where the old one was."""
    other = open_home(str(tmp_path / "trainer-a"))
    if there:
        store.identify(other)
    with pytest.raises(StoreChanged, match="instead of ffffffff" if there else "has no STORE record"):
        store.identify(other, expected="f" * 32)
    assert os.listdir(tmp_path) == (["STORE"] if there else [])


def test_a_copy_is_not_acked_when_the_store_lost_a_chunk(tmp_path):
    """IV11, QR3: a write that was answered but not kept is found before anybody relies on it."""
    place = Home(LosesChunks(FileStore(str(tmp_path / "root"))), "store")
    where = CheckpointDir(place, CKPT)
    with pytest.raises(NotFound):
        write_copy(where, tmp_path)
    assert store.read_acks(where) == {}
    with pytest.raises(store.QuorumNotReached):
        commit(where)


def test_a_checkpoint_that_is_missing_with_its_whole_store_is_said_to_be_elsewhere(where):
    """PB4: committed, but the file is missing; the cause is named."""
    with pytest.raises(StoreChanged, match=r"has no DECISION, .* no STORE record"):
        index.check_restorable(where, 0)
    store.identify(where.home)
    with pytest.raises(index.NotRestorable, match=r"has no DECISION$"):
        index.check_restorable(where, 0)


def test_a_gigantic_index_is_refused_unread_and_another_copy_is_used(where, tmp_path):
    """CK5: one sentence, nothing lost."""
    for copy in (0, 1):
        write_copy(where, tmp_path, copy=copy)
    commit(where, copies=2)
    path = file_of(where, where.index(0, 0))
    path.chmod(0o640)
    os.truncate(path, index.MAX_INDEX_BYTES + 1)
    assert index.read_shard(where, 0)[0].copy == 1
    _, bad = index.verify(where)
    assert len(bad) == 1
    assert f"has more than {index.MAX_INDEX_BYTES} bytes" in bad[0]


class LosesChunks(RetryingStore):
    """Says yes to every chunk and keeps none."""

    def __init__(self, inner):
        super().__init__(inner, clock=lambda: 0.0, pause=lambda _: None, rng=random.Random(1))

    def create(self, key, data):
        if "/c0/" not in key:
            super().create(key, data)


def test_a_server_reads_its_own_shard_and_a_trainer_any():
    """RS2: the state of trainers is replicated."""
    assert index.shard_for([0, 1, 2], role="ps", rank=2) == 2
    assert index.shard_for([0], role="ps", rank=3) == 3
    assert index.shard_for([0], role="worker", rank=3) == 0
    assert index.shard_for([0, 1], role="worker", rank=1) == 1


def test_new_ids_sort_by_step():
    """CK2."""
    ids = [store.checkpoint_id(step, 1) for step in (9, 10, 100)]
    assert ids == sorted(ids)
    assert [store.step_of(ckpt) for ckpt in ids] == [9, 10, 100]
