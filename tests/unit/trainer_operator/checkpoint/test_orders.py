"""What agents are told for a checkpoint."""

from datetime import UTC, datetime

from trainer_operator.api.checkpoint import CheckpointStatus
from trainer_operator.checkpoint import orders
from trainer_operator.checkpoint.quorum import Holder
from trainer_operator.topology.members import MemberId

W0, W1 = MemberId("worker", 0), MemberId("worker", 1)
CKPT = "000000000040-e3-abcd"
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
STATUS = CheckpointStatus(id=CKPT, step=40, epoch=3, shards=1, staging_started_at=BEGUN)


def test_every_holder_saves_its_copies_under_one_intent():
    """CS2, QR1, QR4."""
    told = orders.save(
        STATUS, [Holder(W0, 0, (0, 2)), Holder(W1, 0, (1,))], pause=True, replication=3, world=2
    )
    (first,), (second,) = told[W0], told[W1]
    assert first.id == second.id == f"checkpoint:{CKPT}"
    assert (first.args["copies"], second.args["copies"]) == ([0, 2], [1])
    assert first.args["pause"] is True
    assert (
        first.args["intent"]
        == second.args["intent"]
        == {
            "step": 40,
            "epoch": 3,
            "world": 2,
            "shards": 1,
            "copies": 3,
            "base": "",
            "timeline": 0,
            "at": int(BEGUN.timestamp()),
        }
    )


def test_a_commit_and_an_abort_of_one_checkpoint_are_different_directives():
    """DE1, MG1."""
    commit = orders.decide(STATUS, commit=True, reason="Quorum", replication=1)
    abort = orders.decide(STATUS, commit=False, reason="StagingTimeout", replication=1)
    assert (commit.id, abort.id) == (f"store:commit:{CKPT}", f"store:abort:{CKPT}")
    assert (commit.args["outcome"], abort.args["outcome"]) == ("commit", "abort")
    assert abort.args["reason"] == "StagingTimeout"
    assert commit.args["nonce"] != abort.args["nonce"]


def test_the_same_decision_has_the_same_nonce_for_every_leader():
    """DE2: an own earlier attempt that had succeeded is an own win."""
    first = orders.decide(STATUS, commit=True, reason="Quorum", replication=1)
    assert orders.decide(STATUS, commit=True, reason="Quorum", replication=1) == first


def test_a_missed_target_is_aborted_at_the_step_that_its_id_names():
    """CS2."""
    told = orders.abort_missed("000000000033-e3-ffff", STATUS)
    assert (told.args["epoch"], told.args["begun"]) == (3, int(BEGUN.timestamp()))
    assert (told.args["outcome"], told.args["step"], told.args["reason"]) == ("abort", 33, "TargetPassed")


def test_a_collection_names_what_it_collects_and_since_when_it_may():
    """CS5, DE4: agents judge by the leader's clock what else is old enough."""
    at = int(BEGUN.timestamp())
    assert orders.collect(CKPT, at=BEGUN).args == {"op": "collect", "ckpt": CKPT, "at": at, "storeId": ""}
    assert orders.collect(CKPT, at=None).args["at"] == 0


def test_every_order_names_the_store_that_it_is_meant_for():
    """CK7: another store that answers at the address gets nothing, and loses nothing."""
    told = orders.save(STATUS, [Holder(W0, 0, (0,))], pause=False, replication=1, world=1, store="abc")
    assert told[W0][0].args["storeId"] == "abc"
    for order in (
        orders.decide(STATUS, commit=True, reason="Quorum", replication=1, store="abc"),
        orders.decide(STATUS, commit=False, reason="Timeout", replication=1, store="abc"),
        orders.abort_missed(CKPT, STATUS, store="abc"),
        orders.collect(CKPT, at=BEGUN, store="abc"),
    ):
        assert order.args["storeId"] == "abc"
