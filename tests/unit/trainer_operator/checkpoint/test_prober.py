"""The prober's decisions: which checkpoint is read next, and what its scrub means."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.api.checkpoint import STORE_PROBLEMS
from trainer_operator.checkpoint.prober import (
    BYTES_PER_SECOND,
    FIRST,
    PERIOD,
    REMEDIES,
    Candidate,
    choose,
    due_at,
    judge,
    pace,
)
from trainer_operator.topology.beat import DirectiveResult

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOUND = {"bytes": 100, "damaged": 0, "missing": 0, "repaired": 0, "completed": 0, "lacking": 0, "lost": []}


def ago(**units):
    return NOW - timedelta(**units)


def report(**values):
    return DirectiveResult("scrub", value={**SOUND, "bad": [], "refused": "", **values})


def test_nothing_is_read_before_it_is_due():
    """PB1: a new one after ten minutes, any other twice a day."""
    fresh, read = (
        Candidate("a", NOW - FIRST / 2),
        Candidate("b", ago(days=3), read_at=NOW - PERIOD + timedelta(seconds=1)),
    )
    assert choose([fresh, read], NOW) is None
    assert choose([fresh, read], NOW + timedelta(seconds=1)) is read
    assert choose([fresh], NOW + FIRST / 2) is fresh
    assert choose([], NOW) is None


def test_the_least_recently_verified_is_read_first():
    """PB1: what was never read in full counts as the least recent."""
    never, long_ago, later = (
        Candidate("never", ago(hours=1)),
        Candidate("long-ago", ago(days=9), read_at=ago(days=2)),
        Candidate("later", ago(days=9), read_at=ago(days=1)),
    )
    assert choose([later, long_ago, never], NOW) is never
    assert choose([later, long_ago], NOW) is long_ago


def test_what_a_user_waits_for_goes_first_and_is_read_once():
    """PB1."""
    never = Candidate("never", ago(hours=1))
    asked = Candidate("asked", ago(days=9), read_at=ago(hours=1), asked_at=ago(minutes=1))
    assert choose([never, asked], NOW) is asked
    done = Candidate("asked", ago(days=9), read_at=ago(seconds=1), asked_at=ago(minutes=1))
    assert choose([never, done], NOW) is never
    later = Candidate("asked", ago(days=9), read_at=ago(hours=1), asked_at=NOW + timedelta(minutes=1))
    assert choose([later], NOW) is None


def test_after_one_was_found_corrupt_its_siblings_are_read_at_once():
    """PB2: they may refer to the same data."""
    corrupt = Candidate("corrupt", ago(days=2), read_at=ago(minutes=1), corrupt=True)
    sibling = Candidate("sibling", ago(days=2), read_at=ago(hours=2))
    newer = Candidate("newer", ago(seconds=30))
    assert choose([corrupt, sibling], NOW) is sibling
    assert due_at(sibling, [corrupt, sibling]) == corrupt.read_at
    assert choose([corrupt, newer], NOW) is None
    again = Candidate("again", ago(days=2), read_at=ago(minutes=2), corrupt=True)
    assert choose([corrupt, again], NOW) is None  # else two corrupt ones would be read in turns, for ever


@given(
    st.lists(
        st.tuples(st.integers(0, 2000), st.none() | st.integers(0, 2000), st.integers(0, 10**13)),
        min_size=1,
        max_size=12,
    )
)
def test_all_are_read_within_a_day(ages):
    """PB1: from any start, whatever their size, at the pace that is ordered."""
    known = {
        str(number): Candidate(
            str(number),
            ago(minutes=created),
            read_at=None if read is None or read > created else ago(minutes=read),
            bytes=size,
        )
        for number, (created, read, size) in enumerate(ages)
    }
    now, rate = NOW, pace(known.values())
    while (chosen := choose(known.values(), now)) is not None:
        now += timedelta(seconds=chosen.bytes / rate + 1)
        known[chosen.name] = Candidate(chosen.name, chosen.committed_at, read_at=now, bytes=chosen.bytes)
        if now - NOW > timedelta(days=1):
            break
    assert all(
        now - (each.read_at or each.committed_at + FIRST) <= timedelta(hours=24) for each in known.values()
    )
    assert now - NOW <= timedelta(hours=24)


def test_the_budget_grows_only_when_a_pass_would_miss_its_time():
    """PB1: 50 MB/s by default."""
    assert pace([Candidate("a", NOW, bytes=10**12)]) == BYTES_PER_SECOND
    assert pace([Candidate("a", NOW, bytes=10**13)]) == 10**13 // 43200


# -- what was found


def test_a_sound_checkpoint_is_healthy_and_nobody_hears_of_it():
    """CS6."""
    found = judge("c1", report())
    assert (found.health, found.event, found.complete, found.bytes) == ("Healthy", "", True, 100)


def test_a_repaired_one_is_healthy_and_the_store_is_to_be_checked():
    """PB2."""
    found = judge("c1", report(damaged=1, repaired=1, bad=["ckpt/x/c0/ab is damaged"]))
    assert (found.health, found.event, found.repaired) == ("Healthy", "CheckpointRepaired", 1)
    assert "ckpt/x/c0/ab is damaged" in found.message


def test_missing_copies_degrade_it_and_the_reason_comes_with_a_remedy():
    """PB3, PB4."""
    found = judge("c1", report(lacking=1, refused="NoRights: the store is mounted read-only"))
    assert (found.health, found.event) == ("Degraded", "CheckpointDegraded")
    assert "read-only" in found.message
    assert "mount it read-write" in found.message


@pytest.mark.parametrize(
    ("values", "reason", "told"),
    [
        ({"damaged": 1, "bad": ["ckpt/x/c0/ab is damaged"]}, "Damaged", "other bytes than were written"),
        ({"missing": 5, "bad": ["ckpt/x/c0/ab is missing"]}, "ObjectMissing", "a lifecycle rule"),
    ],
)
def test_a_lost_shard_makes_it_corrupt_and_says_what_is_missing_and_what_to_do(values, reason, told):
    """PB2, PB4: "Committed, but the file is missing"."""
    found = judge("c1", report(lost=[0], lacking=1, **values))
    assert (found.health, found.reason, found.event) == ("Corrupt", reason, "CheckpointCorrupt")
    assert told in found.message
    assert values["bad"][0] in found.message
    assert ("and 4 more" in found.message) is (reason == "ObjectMissing")


def test_without_its_record_the_store_disagrees():
    """CK1, PB4."""
    found = judge("c1", DirectiveResult("s", ok=False, error="NotRestorable: x has a tombstone"))
    assert (found.health, found.reason) == ("Corrupt", "StoreDisagrees")


@pytest.mark.parametrize("problem", sorted(STORE_PROBLEMS))
def test_a_store_at_fault_says_nothing_of_the_checkpoint(problem):
    """PB4, CK7: the cause, and the remedy where one is known."""
    found = judge("c1", DirectiveResult("s", ok=False, error=f"{problem}: it is so"))
    assert (found.health, found.reason, found.event) == ("Unknown", problem, "CheckpointUnverified")
    assert not found.complete
    assert "it is so" in found.message
    assert REMEDIES.get(problem, "docs/checkpoints.md") in found.message


@pytest.mark.parametrize(
    "answer",
    [
        DirectiveResult("s"),
        DirectiveResult("s", value="yes"),
        DirectiveResult("s", ok=False),
        DirectiveResult("s", ok=False, error="this agent does not know 'Scrub'"),
        DirectiveResult("s", ok=False, error="Malformed: INTENT is torn"),
    ],
)
def test_an_answer_that_cannot_be_read_means_nothing(answer):
    """AA7: an older agent, or a broken one."""
    assert judge("c1", answer) is None


def test_a_hostile_report_is_bounded():
    """AA7, CK5."""
    found = judge("c1", report(lost=[0], damaged="x", missing=-1, bytes=2**70, bad=["y" * 10**6] * 1000))
    assert found.bytes == 0
    assert len(found.message) < 2000
