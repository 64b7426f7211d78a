"""The checkpoint state machine under every combination of facts, and on random walks."""

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.api.checkpoint import STATE_ORDER, CheckpointState
from trainer_operator.checkpoint.state import MAX_TRIES, Facts, Move, Order, Outcome, step

COMMITTED, COLLECTED = CheckpointState.COMMITTED, CheckpointState.GARBAGE_COLLECTED
STATES = st.sampled_from([None, *CheckpointState])
ABORT_REASONS = {
    "CopiesFailed",
    "NoRights",
    "EpochEnded",
    "StagingTimeout",
    "TargetPassed",
    "CommitFailed",
    "TrainerEnded",
}

FACTS = st.builds(
    Facts,
    state=STATES,
    epoch=st.integers(0, 3),
    current_epoch=st.integers(0, 3),
    trains=st.booleans(),
    tries=st.integers(0, MAX_TRIES + 2),
    passed=st.booleans(),
    ended=st.booleans(),
    quorum=st.booleans(),
    impossible=st.booleans(),
    commit_failed=st.booleans(),
    abort_failed=st.booleans(),
    failure=st.sampled_from(["CopiesFailed", "NoRights"]),
    age=st.floats(0, 1e6),
    staged_for=st.floats(0, 1e6),
    outcome=st.none() | st.sampled_from(Outcome),
    retire=st.booleans(),
    collected=st.booleans(),
    aborted_for=st.none() | st.floats(0, 1e6),
    sweep_failed=st.booleans(),
)


def rank(state):
    return STATE_ORDER.index(state or CheckpointState.PENDING)


@given(FACTS)
def test_every_combination_of_facts_has_a_move_and_none_goes_back(facts):
    """CS7: total, and forward only."""
    move = step(facts)
    assert isinstance(move, Move)
    assert rank(move.state) >= rank(facts.state)
    assert step(facts) == move


@given(FACTS)
def test_committed_follows_only_from_a_decision_that_was_read_back(facts):
    """CS3, IV1."""
    if step(facts).state is COMMITTED and facts.state is not COMMITTED:
        assert facts.state is CheckpointState.STAGING
        assert facts.outcome is Outcome.COMMIT


@given(FACTS)
def test_a_commit_is_ordered_only_with_a_quorum_and_without_a_decision(facts):
    """IV1, QR2, DE1."""
    if step(facts).order is Order.COMMIT:
        assert facts.state is CheckpointState.STAGING
        assert facts.quorum
        assert facts.outcome is None


@given(FACTS)
def test_a_commit_that_was_read_is_never_given_up(facts):
    """IV2: nobody is told both."""
    if facts.state is CheckpointState.STAGING and facts.outcome is Outcome.COMMIT:
        assert step(facts).state is COMMITTED


@given(FACTS)
def test_nothing_committed_is_collected_but_by_retention(facts):
    """GC1, CS5."""
    if facts.state is COMMITTED and step(facts).state is COLLECTED:
        assert facts.retire
        assert facts.collected


@given(FACTS)
def test_every_abort_says_why(facts):
    """CS4."""
    move = step(facts)
    if move.order is Order.ABORT:
        assert move.reason in ABORT_REASONS
    if move.state is COLLECTED and facts.state is not COLLECTED:
        undecided = facts.state is CheckpointState.STAGING and facts.outcome is None
        expected = (
            {"CopiesFailed", "NoRights"}
            if undecided
            else {"PendingTimeout", "TrainerEnded", "Aborted", "Retention"}
        )
        assert move.reason in expected


@given(FACTS)
def test_without_a_decision_only_what_nobody_can_commit_is_given_up(facts):
    """IV1, IV2, IV7: a majority of the copies failed, and the store takes no record."""
    if facts.state is CheckpointState.STAGING and facts.outcome is None and step(facts).state is COLLECTED:
        assert facts.impossible
        assert not facts.quorum
        assert facts.abort_failed


@given(FACTS)
def test_nothing_is_saved_or_aimed_at_but_on_the_way_to_a_decision(facts):
    """CS2."""
    move = step(facts)
    if move.order is Order.SAVE or move.new_target:
        assert move.state is CheckpointState.STAGING
        assert facts.state is not CheckpointState.STAGING or facts.outcome is None
    if move.new_target:
        assert move.order is Order.SAVE
        assert facts.state in {None, CheckpointState.PENDING} or (facts.passed and facts.tries < MAX_TRIES)


@given(st.lists(FACTS, min_size=1, max_size=30), st.integers(1, 5))
def test_any_walk_ends_in_one_outcome_and_stays_there(walk, repeats):
    """CS7, IV2, IV7: whoever leads, and however often a row is repeated."""
    state, seen = None, []
    for facts in walk:
        for _ in range(repeats):
            found = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
            state = step(Facts(**{**found, "state": state})).state
            seen.append(state)
    assert [rank(state) for state in seen] == sorted(rank(state) for state in seen)


@given(FACTS.filter(lambda facts: facts.state in {None, CheckpointState.PENDING, CheckpointState.STAGING}))
def test_beyond_its_deadline_nothing_stays_undecided_without_an_order(facts):
    """IV7, CS9: it is given up, or an agent is told to decide."""
    found = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    late = Facts(**{**found, "age": 1e9, "staged_for": 1e9})
    move = step(late)
    if move.state in {CheckpointState.PENDING, CheckpointState.STAGING}:
        assert move.order in {Order.COMMIT, Order.ABORT} or move.new_target
