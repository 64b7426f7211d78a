"""The transition table of the election, row by row."""

from dataclasses import replace

import pytest

from runtime.errors import ConfigurationInvalid
from runtime.leaderelection.record import Lease
from runtime.leaderelection.step import (
    RELEASE_TRIES,
    Candidate,
    Ended,
    Extend,
    Failed,
    Follow,
    Found,
    Leader,
    Read,
    Refused,
    Releasing,
    Shut,
    Sighting,
    Sleep,
    Stopped,
    Terms,
    Woken,
    Write,
    Written,
    step,
)

TERMS = Terms("me")
OURS = Lease("me", 15.0, 4, version="10")
THEIRS = Lease("rival", 15.0, 4, version="10")
LEADER = Leader(OURS, valid_until=110.0)


def go(state, event, now=100.0):
    return step(TERMS, state, event, now=now)


@pytest.mark.parametrize(
    ("lease", "deadline", "retry"), [(10, 10, 2), (15, 2.4, 2), (15, 10, 0), (15, 10, -1), (5, 10, 2)]
)
def test_durations_that_cannot_keep_two_leaders_apart_are_refused(lease, deadline, retry):
    """L1."""
    with pytest.raises(ConfigurationInvalid, match="lease duration > renew deadline > retry period"):
        Terms("me", lease, deadline, retry)


def test_an_empty_identity_is_refused():
    """L1: it would mean that nobody holds the lease."""
    with pytest.raises(ConfigurationInvalid, match="identity"):
        Terms("")


def test_a_candidate_reads_first():
    """L3."""
    assert go(Candidate(), Woken()) == (Candidate(), (Read(),))


def test_a_lease_that_does_not_exist_is_created():
    """L3, L4."""
    state, actions = go(Candidate(), Found(None))
    assert state == Candidate(claimed=True)
    assert actions == (Write(Lease("me", 15.0, 0)),)


def test_a_held_lease_is_watched_from_when_it_was_first_seen():
    """L2."""
    state, actions = go(Candidate(), Found(THEIRS), now=100)
    assert state == Candidate(Sighting(THEIRS, 100))
    assert actions == (Follow("rival"), Sleep(2.0))
    state, actions = go(state, Found(THEIRS), now=112)
    assert state == Candidate(Sighting(THEIRS, 100))
    assert actions == (Sleep(2.0),)


def test_the_last_wait_ends_when_the_lease_does():
    """L2, G8."""
    _, actions = go(Candidate(Sighting(THEIRS, 100)), Found(THEIRS), now=114)
    assert actions == (Sleep(1.0),)


def test_an_expired_lease_is_taken_at_its_version_and_counts_a_transition():
    """L2, L3, L4."""
    state, actions = go(Candidate(Sighting(THEIRS, 100)), Found(THEIRS), now=115)
    assert state.claimed
    assert actions == (Write(Lease("me", 15.0, 5, version="10")),)


def test_a_renewal_seen_in_between_starts_the_wait_afresh():
    """L2."""
    renewed = replace(THEIRS, version="11")
    state, actions = go(Candidate(Sighting(THEIRS, 100)), Found(renewed), now=115)
    assert state == Candidate(Sighting(renewed, 115))
    assert actions == (Sleep(2.0),)


def test_the_records_own_duration_is_waited_for_not_ours():
    """L2."""
    long = replace(THEIRS, duration=60.0)
    state, _ = go(Candidate(Sighting(long, 100)), Found(long), now=159)
    assert not state.claimed
    state, _ = go(Candidate(Sighting(long, 100)), Found(long), now=160)
    assert state.claimed


def test_a_record_without_duration_is_given_ours():
    """L2: malformed must not mean expired."""
    broken = replace(THEIRS, duration=0.0)
    state, _ = go(Candidate(), Found(broken))
    assert not state.claimed


def test_a_released_lease_is_taken_at_once():
    """L7."""
    state, actions = go(Candidate(), Found(replace(THEIRS, holder="")))
    assert state.claimed
    assert actions == (Write(Lease("me", 15.0, 5, version="10")),)


def test_our_own_claim_whose_answer_was_lost_is_confirmed_without_a_transition():
    """L3, L4."""
    _, actions = go(Candidate(claimed=True), Found(OURS))
    assert actions == (Write(OURS),)


def test_a_successful_write_leads_from_the_time_it_was_sent():
    """L6."""
    state, actions = go(Candidate(claimed=True), Written(OURS, sent_at=97), now=101)
    assert state == Leader(OURS, valid_until=107)
    assert actions == (Extend(107), Sleep(2.0))


def test_an_acquisition_that_came_too_late_to_be_used_is_read_again():
    """L6: the process was stalled between sending and here."""
    state, actions = go(Candidate(claimed=True), Written(OURS, sent_at=80), now=100)
    assert isinstance(state, Candidate)
    assert actions == (Read(),)


def test_a_candidate_takes_a_failure_for_a_reason_to_wait():
    """L5."""
    assert go(Candidate(claimed=True), Failed(conflict=True)) == (Candidate(claimed=True), (Sleep(2.0),))


def test_a_candidate_that_stops_ends_at_once():
    """L7."""
    state, actions = go(Candidate(), Stopped())
    assert state == Ended("stopped before leading", lost=False)
    assert actions == (Shut("stopped before leading"),)


def test_a_candidate_that_may_have_won_gives_back_what_it_may_hold():
    """L7, RT36."""
    state, actions = go(Candidate(claimed=True), Stopped())
    assert state == Releasing()
    assert actions[-1] == Read()


def test_a_candidate_whose_fence_was_shut_ends():
    """L6."""
    state, _ = go(Candidate(claimed=True), Refused())
    assert state.lost


def test_a_leader_renews_at_the_version_it_remembers():
    """L3."""
    assert go(LEADER, Woken()) == (LEADER, (Write(OURS),))


def test_a_renewal_extends_from_when_it_was_sent():
    """L6."""
    renewed = replace(OURS, version="11")
    state, actions = go(LEADER, Written(renewed, sent_at=102), now=104)
    assert state == Leader(renewed, valid_until=112)
    assert actions == (Extend(112), Sleep(2.0))


def test_a_failed_renewal_reads_the_lease_at_once_and_a_second_failure_waits():
    """L3, L5: one failure is no abdication."""
    state, actions = go(LEADER, Failed(conflict=True))
    assert state == replace(LEADER, slow=True)
    assert actions == (Read(),)
    state, actions = go(state, Failed(), now=109)
    assert state == replace(LEADER, slow=True)
    assert actions == (Sleep(1.0),)
    assert go(state, Woken(), now=109.5) == (state, (Read(),))


def test_a_leader_that_finds_its_lease_writes_at_the_version_found():
    """L3."""
    found = replace(OURS, version="12")
    state, actions = go(replace(LEADER, slow=True), Found(found))
    assert isinstance(state, Leader)
    assert actions == (Write(found),)


@pytest.mark.parametrize(("holder", "told"), [("rival", "rival holds"), ("", "nobody holds")])
def test_a_leader_that_finds_another_holder_has_lost(holder, told):
    """L3, L6."""
    state, actions = go(replace(LEADER, slow=True), Found(replace(OURS, holder=holder)))
    assert state.lost
    assert told in state.reason
    assert actions == (Shut(state.reason),)


def test_a_leader_whose_lease_was_deleted_creates_it_anew():
    """L3: if a rival is faster, the creation fails and the next read tells."""
    _, actions = go(replace(LEADER, slow=True), Found(None))
    assert actions == (Write(replace(OURS, version="")),)


@pytest.mark.parametrize(
    "event", [Woken(), Failed(), Found(OURS), Found(None), Written(OURS, sent_at=109.9), Refused(), Stopped()]
)
def test_nothing_saves_a_leader_whose_time_is_up(event):
    """L6, RT35: also a renewal that succeeded, but came back too late."""
    state, actions = go(LEADER, event, now=110.0)
    assert state.lost
    assert actions == (Shut(state.reason),)


def test_a_leader_whose_fence_refuses_an_extension_has_lost():
    """L6."""
    state, _ = go(LEADER, Refused())
    assert state.lost


def test_a_leader_that_stops_shuts_the_fence_before_it_reads():
    """L7."""
    assert go(LEADER, Stopped()) == (Releasing(), (Shut("stopping"), Read()))


def test_a_release_writes_nobody_and_one_second():
    """L7."""
    _, actions = go(Releasing(), Found(OURS))
    assert actions == (Write(replace(OURS, holder="", duration=1.0, acquired=None)),)
    assert go(Releasing(), Written(OURS, sent_at=1))[0] == Ended("released", lost=False)


@pytest.mark.parametrize("found", [None, THEIRS])
def test_there_is_nothing_to_release_if_another_holds_it(found):
    """L7."""
    state, actions = go(Releasing(), Found(found))
    assert isinstance(state, Ended)
    assert not state.lost
    assert actions == ()


def test_a_release_that_meets_a_conflict_reads_again_but_not_for_ever():
    """L7, RT36."""
    state = Releasing()
    for _ in range(RELEASE_TRIES - 1):
        state, actions = go(state, Failed(conflict=True))
        assert actions == (Read(),)
    state, _ = go(state, Failed(conflict=True))
    assert state == Ended("the lease could not be released and will expire", lost=False)


def test_a_release_pauses_after_other_failures():
    """L7."""
    state, actions = go(Releasing(), Failed())
    assert isinstance(actions[0], Sleep)
    assert go(state, Woken()) == (state, (Read(),))
    assert go(state, Stopped()) == (state, (Read(),))
    assert go(state, Refused()) == (state, (Read(),))


@pytest.mark.parametrize("event", [Woken(), Failed(), Found(None), Written(OURS, 0), Stopped(), Refused()])
def test_what_has_ended_stays_ended(event):
    """L6: no re-election in one process."""
    ended = Ended("over", lost=True)
    assert go(ended, event) == (ended, ())
