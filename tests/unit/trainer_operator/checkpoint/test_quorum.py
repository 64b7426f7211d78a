"""Who saves what, and when that is enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.checkpoint.quorum import (
    Holder,
    durable_copies,
    has_quorum,
    holders_of,
    is_impossible,
    majority,
    shard_count,
)
from trainer_operator.topology.beat import Ack
from trainer_operator.topology.members import MemberId

W0, W1, W2 = (MemberId("worker", n) for n in range(3))
PS0, PS1 = MemberId("ps", 0), MemberId("ps", 1)
MASTER = MemberId("master", 0)
STEP = 40


def acks(*pairs, step=STEP, ok=True):
    return [Ack("c", shard, copy, step=step, ok=ok) for shard, copy in pairs]


def quorum(found, *, shards=1, replication=1):
    return has_quorum(found, shards=shards, step=STEP, replication=replication)


@pytest.mark.parametrize(("replication", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_shard_needs_its_majority(replication, needed):
    """QR2."""
    assert majority(replication) == needed
    copies = [(0, copy) for copy in range(replication)]
    assert not quorum(acks(*copies[: needed - 1]), replication=replication)
    assert quorum(acks(*copies[:needed]), replication=replication)
    assert quorum(acks(*copies), replication=replication)


def test_three_copies_of_one_shard_do_not_make_up_for_one_of_another():
    """FC13, QR2."""
    found = acks((0, 0), (1, 0), (1, 1), (1, 2))
    assert not quorum(found, shards=2, replication=3)
    assert quorum([*found, *acks((0, 1))], shards=2, replication=3)


def test_the_same_copy_twice_is_one_copy():
    """QR2: beats repeat their acks."""
    assert not quorum(acks((0, 0), (0, 0), (0, 0)), replication=3)


@pytest.mark.parametrize(
    "found",
    [acks((0, 0), step=STEP - 1), acks((0, 0), ok=False), acks((1, 0)), acks((-1, 0)), []],
    ids=["another step", "failed", "no such shard", "negative shard", "none"],
)
def test_what_is_no_durable_copy_of_this_checkpoint_counts_for_nothing(found):
    """QR2, QR4."""
    assert not quorum(found)
    assert durable_copies(found, shards=1, step=STEP) == [0]


@pytest.mark.parametrize(
    ("failed", "replication", "impossible"),
    [
        ([(0, 0)], 1, True),
        ([(0, 0)], 2, True),
        ([(0, 0)], 3, False),
        ([(0, 0), (0, 1)], 3, True),
        ([(0, 0), (0, 0)], 3, False),
        ([(0, 0), (1, 0)], 3, False),
        ([(5, 0)], 1, False),
        ([], 1, False),
    ],
)
def test_a_quorum_is_impossible_when_too_many_copies_of_one_shard_failed(failed, replication, impossible):
    """CS4, QR2."""
    assert is_impossible(acks(*failed, ok=False), shards=2, replication=replication) is impossible


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 4), st.booleans(), st.sampled_from([STEP, 39]))),
    st.integers(1, 3),
    st.integers(1, 5),
)
def test_a_quorum_holds_exactly_when_every_shard_has_its_majority(told, shards, replication):
    """IV1, QR2."""
    found = [Ack("c", shard, copy, ok=ok, step=step) for shard, copy, ok, step in told]
    durable = {
        shard: {c for s, c, ok, step in told if s == shard and ok and step == STEP} for shard in range(shards)
    }
    expected = all(len(copies) > replication / 2 for copies in durable.values())
    assert quorum(found, shards=shards, replication=replication) is expected


# -- holders


def test_each_server_is_a_shard_and_writes_all_its_copies():
    """QR1."""
    assert holders_of([W0, PS1, PS0], 2) == (Holder(PS0, 0, (0, 1)), Holder(PS1, 1, (0, 1)))


@pytest.mark.parametrize(
    ("members", "replication", "holders"),
    [
        ([W0], 1, (Holder(W0, 0, (0,)),)),
        ([W1, W0], 1, (Holder(W0, 0, (0,)),)),
        ([W0, MASTER, W1], 2, (Holder(MASTER, 0, (0,)), Holder(W0, 0, (1,)))),
        ([W0, W1, W2], 3, (Holder(W0, 0, (0,)), Holder(W1, 0, (1,)), Holder(W2, 0, (2,)))),
        ([W0, W1], 3, (Holder(W0, 0, (0, 2)), Holder(W1, 0, (1,)))),
        ([W0], 3, (Holder(W0, 0, (0, 1, 2)),)),
        ([], 1, ()),
    ],
)
def test_without_servers_the_state_is_one_shard_with_copies_by_different_members(
    members, replication, holders
):
    """QR1."""
    assert holders_of(members, replication) == holders


@given(
    st.sets(st.builds(MemberId, st.sampled_from(["worker", "ps", "master"]), st.integers(0, 5)), min_size=1),
    st.integers(1, 5),
)
def test_every_copy_of_every_shard_has_exactly_one_writer(members, replication):
    """QR1: so that a quorum can be reached at all."""
    holders = holders_of(members, replication)
    for shard in range(shard_count(holders)):
        copies = [copy for holder in holders if holder.shard == shard for copy in holder.copies]
        assert sorted(copies) == list(range(replication))
    assert holders_of(sorted(members), replication) == holders
