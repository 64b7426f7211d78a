"""What somebody else wrote into the store, or wrote wrongly: one sentence each, and nothing else is lost (CK5, TN10)."""

import json

import pytest

from trainer_operator.agent import store, storeops
from trainer_operator.agent.backends import open_home
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.store import CheckpointDir

GOOD, BAD = "000000000010-e1-0001", "000000000020-e1-0002"
SHA = "a" * 64
DECISION = {
    "v": 1,
    "outcome": "commit",
    "reason": "Interval",
    "step": 20,
    "epoch": 1,
    "nonce": "n",
    "bytes": 1,
    "shards": {"0": {"copies": {"0": SHA}}},
}


@pytest.fixture
def home(tmp_path):
    return open_home(str(tmp_path / "ns" / "digits-01234567"))


def write(home, ckpt, decision):
    where = CheckpointDir(home, ckpt)
    store.write_intent(where, {"step": store.step_of(ckpt)})
    where.store.create(where.chunk(0, SHA), b"data")
    where.store.create(where.record("DECISION"), json.dumps(decision).encode())
    return where


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shards": {"../../other": {"copies": {"0": SHA}}}}, "no readable shards"),
        ({"shards": {"-1": {"copies": {"0": SHA}}}}, "no readable shards"),
        ({"shards": {"9999999": {"copies": {"0": SHA}}}}, "no readable shards"),
        ({"shards": {"0": {"copies": {"../1": SHA}}}}, "no readable shards"),
        ({"shards": {"0": {"copies": {"0": "../../etc/passwd"}}}}, "not a sha256"),
        ({"owners": ["../../mnist-89abcdef/ckpt/" + GOOD]}, "names an owner that cannot be one"),
        ({"owners": "all"}, "owners is no list"),
        ({"bytes": -1}, "bytes is"),
        ({"bytes": 10**30}, "bytes is"),
        ({"outcome": "perhaps"}, "outcome 'perhaps'"),
        ({"v": 99}, "has version"),
    ],
)
def test_a_record_that_would_lead_elsewhere_is_refused_and_the_others_are_found(home, change, sentence):
    """TN10, CK5, RS1: of another Trainer, outside the store, or of no sense; one sentence, and the next older one."""
    write(home, GOOD, {**DECISION, "step": 10})
    bad = write(home, BAD, {**DECISION, **change})
    with pytest.raises(Malformed, match=sentence) as told:
        store.read_decision(bad)
    assert "\n" not in str(told.value)
    assert store.committed(home) == [GOOD]


def test_a_gigantic_record_is_not_read_and_the_others_are_found(home):
    """CK5."""
    write(home, GOOD, {**DECISION, "step": 10})
    where = CheckpointDir(home, BAD)
    where.store.create(where.record("DECISION"), b" " * (store.MAX_RECORD_BYTES + 1))
    with pytest.raises(Malformed, match="has more than"):
        store.read_decision(where)
    assert store.committed(home) == [GOOD]
    assert storeops.run(home, {"op": "purge"})["left"] == [GOOD, BAD]


def test_one_bucket_for_two_trainers_and_neither_touches_the_other_s(tmp_path):
    """TN10, GC7, CS12: not even where both have a checkpoint of one id, and one of them is deleted with all its own."""
    mine, theirs = (open_home(str(tmp_path / "ns" / name)) for name in ("digits-01234567", "digits-89abcdef"))
    for home in (mine, theirs):
        write(home, GOOD, {**DECISION, "step": 10})
    before = sorted(
        path.read_bytes() for path in (tmp_path / "ns" / "digits-89abcdef").rglob("*") if path.is_file()
    )
    assert storeops.run(mine, {"op": "collect", "ckpt": GOOD})["deleted"] == 2
    assert storeops.run(mine, {"op": "purge"})["left"] == []
    after = sorted(
        path.read_bytes() for path in (tmp_path / "ns" / "digits-89abcdef").rglob("*") if path.is_file()
    )
    assert after == before
    assert (store.committed(mine), store.committed(theirs)) == ([], [GOOD])
