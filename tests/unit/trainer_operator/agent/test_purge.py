"""The end of all checkpoints of a Trainer, in a store."""

import pytest

from trainer_operator.agent import store, storeops
from trainer_operator.agent.backends import StoreChanged, open_home
from trainer_operator.agent.store import CheckpointDir

IDS = ["000000000010-e1-0001", "000000000020-e1-0002", "000000000030-e2-0003"]


@pytest.fixture
def home(tmp_path):
    return open_home(str(tmp_path / "ns" / "digits-01234567"))


def begin(home, ckpt):
    where = CheckpointDir(home, ckpt)
    store.write_intent(where, {"step": store.step_of(ckpt)})
    where.store.create(where.chunk(0, "a" * 64), b"data")
    return where


def decide(where, number=0):
    store.decide_abort(where, step=store.step_of(where.ckpt), epoch=1, reason="Timeout", nonce=f"n{number}")


def names(tmp_path):
    return sorted(path.name for path in tmp_path.rglob("*") if path.is_file())


def test_all_data_goes_and_the_records_stay_that_stop_a_late_decider(home, tmp_path):
    """CS12, PB5, DE4: what was decided, what was under way, and again what is gone already."""
    decide(begin(home, IDS[0]))
    begin(home, IDS[1])
    assert storeops.run(home, {"op": "purge"}) == {"deleted": 4, "left": []}
    assert names(tmp_path) == ["DECISION", "DECISION", "GC", "GC"]
    assert store.read_decision(CheckpointDir(home, IDS[1])).reason == "TrainerDeleted"
    assert storeops.run(home, {"op": "purge"}) == {"deleted": 0, "left": []}


def test_what_is_not_ours_is_told_and_stays(home, tmp_path):
    """GC7: a folder without INTENT, another's file, a DECISION of a newer version."""
    foreign = CheckpointDir(home, IDS[0])
    foreign.store.create(foreign.chunk(0, "b" * 64), b"theirs")
    mine = begin(home, IDS[1])
    mine.store.create(mine.record("notes.txt"), b"theirs")
    newer = begin(home, IDS[2])
    newer.store.create(newer.record("DECISION"), b'{"v":99}\n')
    assert storeops.run(home, {"op": "purge"}) == {"deleted": 2, "left": [IDS[0], IDS[2]]}
    assert {"notes.txt", "b" * 64, "a" * 64} <= set(names(tmp_path))


def test_another_store_is_left_alone(home, tmp_path):
    """CK7."""
    with pytest.raises(StoreChanged):
        storeops.run(home, {"op": "purge", "storeId": "f" * 32})
    assert names(tmp_path) == []


def test_a_store_without_checkpoints_is_done_at_once(home, tmp_path):
    """CS12: deleted before the first one."""
    assert storeops.run(home, {"op": "purge"}) == {"deleted": 0, "left": []}
    assert names(tmp_path) == []
