"""Store operations of the leader: repeatable, and only in the store that they are meant for."""

import pytest

from trainer_operator.agent import store, storeops
from trainer_operator.agent.backends import StoreChanged, open_home
from trainer_operator.agent.storeops import BadArguments, OperationFailed

CKPT = "000000000040-e2-00ab"
ABORT = {"op": "decide", "ckpt": CKPT, "outcome": "abort", "reason": "Timeout", "step": 40, "epoch": 2}


@pytest.fixture
def home(tmp_path):
    return open_home(str(tmp_path / "ns" / "digits-01234567"))


def test_a_decision_comes_with_the_store_that_it_lies_in(home):
    """CK7, DE1: asked again, the same answer."""
    first = storeops.run(home, ABORT)
    assert (first["outcome"], first["storeId"]) == ("abort", store.store_id(home))
    assert storeops.run(home, {**ABORT, "storeId": first["storeId"], "reason": "Other"}) == first


@pytest.mark.parametrize(
    "operation", [ABORT, {**ABORT, "outcome": "commit"}, {"op": "collect"}, {"op": "verify"}]
)
def test_another_store_is_neither_written_to_nor_swept(home, tmp_path, operation):
    """CK7: no deletion, no abort, no commit."""
    with pytest.raises(StoreChanged):
        storeops.run(home, {"ckpt": CKPT, **operation, "storeId": "f" * 32})
    assert list(tmp_path.rglob("*")) == []


def test_a_collection_of_what_is_undecided_is_refused_and_leaves_no_trace(home, tmp_path):
    """DE4."""
    store.write_intent(store.CheckpointDir(home, CKPT), {"step": 40})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OperationFailed, match="undecided"):
        storeops.run(home, {"op": "collect", "ckpt": CKPT})
    assert sorted(tmp_path.rglob("*")) == before


def test_a_collection_of_what_is_not_there_is_done_and_leaves_no_trace(home, tmp_path):
    """GC6, DE4: its records were purged."""
    assert storeops.run(home, {"op": "collect", "ckpt": CKPT}) == {"deleted": 0}
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"op": "format", "ckpt": CKPT},
        {"op": "decide"},
        {**ABORT, "outcome": "maybe"},
        {**ABORT, "step": "x"},
    ],
)
def test_arguments_that_make_no_sense_are_refused(home, arguments):
    """CK5."""
    with pytest.raises(BadArguments):
        storeops.run(home, arguments)


def test_an_id_that_climbs_is_refused(home):
    """TN10."""
    with pytest.raises(store.BadId):
        storeops.run(home, {**ABORT, "ckpt": "../../etc"})
