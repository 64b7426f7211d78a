"""The life of a checkpoint, row by row."""

import pytest

from trainer_operator.api.checkpoint import CheckpointState
from trainer_operator.checkpoint.state import MAX_TRIES, SWEEP_GRACE, Facts, Move, Order, Outcome, step

PENDING, STAGING = CheckpointState.PENDING, CheckpointState.STAGING
COMMITTED, COLLECTED = CheckpointState.COMMITTED, CheckpointState.GARBAGE_COLLECTED


def facts(state, **changes):
    return Facts(**{"state": state, "epoch": 3, "current_epoch": 3, "trains": True, **changes})


@pytest.mark.parametrize("state", [None, PENDING])
@pytest.mark.parametrize(
    ("changes", "move"),
    [
        ({}, Move(STAGING, Order.SAVE, new_target=True)),
        ({"age": 1000.0}, Move(STAGING, Order.SAVE, new_target=True)),
        ({"trains": False}, Move(PENDING)),
        ({"trains": False, "age": 59.9}, Move(PENDING)),
        ({"trains": False, "age": 60.0}, Move(COLLECTED, reason="PendingTimeout")),
        ({"trains": False, "ended": True}, Move(COLLECTED, reason="TrainerEnded")),
        ({"trains": False, "age": 5.0, "pending_timeout": 5.0}, Move(COLLECTED, reason="PendingTimeout")),
    ],
)
def test_a_pending_one_waits_for_training_or_for_its_time_to_be_over(state, changes, move):
    """CS1, CS2, CS4, CS9."""
    assert step(facts(state, **changes)) == move


@pytest.mark.parametrize(
    ("changes", "move"),
    [
        ({}, Move(STAGING, Order.SAVE)),
        ({"quorum": True}, Move(STAGING, Order.COMMIT)),
        ({"outcome": Outcome.COMMIT}, Move(COMMITTED)),
        ({"outcome": Outcome.ABORT}, Move(COLLECTED, reason="Aborted")),
        ({"impossible": True}, Move(STAGING, Order.ABORT, reason="CopiesFailed")),
        ({"impossible": True, "failure": "Full"}, Move(STAGING, Order.ABORT, reason="Full")),
        ({"impossible": True, "abort_failed": True, "failure": "Full"}, Move(COLLECTED, reason="Full")),
        ({"abort_failed": True, "staged_for": 600.0}, Move(STAGING, Order.ABORT, reason="StagingTimeout")),
        ({"quorum": True, "commit_failed": True}, Move(STAGING, Order.ABORT, reason="CommitFailed")),
        (
            {"quorum": True, "commit_failed": True, "commit_failure": "LayoutChanged"},
            Move(STAGING, Order.ABORT, reason="LayoutChanged"),
        ),
        ({"current_epoch": 4}, Move(STAGING, Order.ABORT, reason="EpochEnded")),
        ({"staged_for": 599.9}, Move(STAGING, Order.SAVE)),
        ({"staged_for": 600.0}, Move(STAGING, Order.ABORT, reason="StagingTimeout")),
        ({"passed": True}, Move(STAGING, Order.SAVE, new_target=True)),
        ({"passed": True, "tries": MAX_TRIES - 1}, Move(STAGING, Order.SAVE, new_target=True)),
        ({"passed": True, "tries": MAX_TRIES}, Move(STAGING, Order.ABORT, reason="TargetPassed")),
        ({"passed": True, "ended": True}, Move(STAGING, Order.ABORT, reason="TrainerEnded")),
        ({"trains": False}, Move(STAGING, Order.SAVE)),
        ({"trains": False, "ended": True}, Move(STAGING, Order.SAVE)),
    ],
)
def test_a_staging_one_is_saved_until_it_is_decided(changes, move):
    """CS2, CS3, CS4, CS9."""
    assert step(facts(STAGING, **changes)) == move


@pytest.mark.parametrize(
    "also",
    [
        {"quorum": True},
        {"impossible": True},
        {"current_epoch": 9},
        {"staged_for": 1e9},
        {"passed": True, "tries": 99},
    ],
)
def test_the_stores_decision_comes_before_everything_else(also):
    """DE1, FC12: a leader that wakes up late follows what it reads."""
    assert step(facts(STAGING, outcome=Outcome.COMMIT, **also)).state is COMMITTED
    assert step(facts(STAGING, outcome=Outcome.ABORT, **also)).state is COLLECTED


@pytest.mark.parametrize("also", [{"current_epoch": 9}, {"staged_for": 1e9}, {"passed": True}])
def test_a_quorum_is_committed_although_the_time_is_over(also):
    """DE1: what is durable is not thrown away."""
    assert step(facts(STAGING, quorum=True, **also)).order is Order.COMMIT


@pytest.mark.parametrize(
    ("changes", "move"),
    [
        ({}, Move(COMMITTED)),
        ({"retire": True}, Move(COMMITTED, Order.COLLECT)),
        ({"retire": True, "collected": True}, Move(COMMITTED, Order.COLLECT)),
        ({"marked": True}, Move(COMMITTED, Order.COLLECT)),
        ({"marked": True, "collected": True}, Move(COLLECTED, reason="Retention")),
        ({"collected": True}, Move(COMMITTED)),
    ],
)
def test_a_committed_one_stays_until_retention_has_had_it_collected(changes, move):
    """CS5, GC1, GC4: what is marked goes on to its end, whatever retention says by then."""
    assert step(facts(COMMITTED, **changes)) == move


@pytest.mark.parametrize("changes", [{}, {"quorum": True}, {"outcome": Outcome.COMMIT}, {"retire": True}])
def test_a_collected_one_stays_collected(changes):
    """CS7."""
    assert step(facts(COLLECTED, **changes)) == Move(COLLECTED)


@pytest.mark.parametrize(
    ("changes", "order"),
    [
        ({}, Order.COLLECT),
        ({"aborted_for": SWEEP_GRACE - 0.1}, Order.NOTHING),
        ({"aborted_for": None}, Order.NOTHING),
        ({"collected": True}, Order.NOTHING),
        ({"sweep_failed": True}, Order.NOTHING),
    ],
)
def test_what_an_attempt_left_is_swept_after_a_grace_time(changes, order):
    """CS4, CS9: longer than any write that an agent has under way."""
    assert step(facts(COLLECTED, **{"aborted_for": SWEEP_GRACE, **changes})) == Move(COLLECTED, order)
