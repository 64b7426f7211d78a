"""Status conditions."""

from datetime import UTC, datetime

from runtime.conditions import find_condition, is_true, set_condition

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def ready(conditions, status="True", *, now, reason="Fine", generation=1):
    return set_condition(
        conditions, type="Ready", status=status, reason=reason, message="m", generation=generation, now=now
    )


def test_a_new_condition_goes_to_the_end_with_its_transition_time():
    """C7."""
    conditions, changed = ready([{"type": "Other", "status": "True"}], now=EARLY)
    assert changed
    assert conditions[1] == {
        "type": "Ready",
        "status": "True",
        "reason": "Fine",
        "message": "m",
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_saying_the_same_again_changes_nothing():
    """C7, RT20."""
    before, _ = ready([], now=EARLY)
    after, changed = ready(before, now=LATE)
    assert not changed
    assert after == before


def test_a_new_reason_or_generation_is_news_but_no_transition():
    """C7."""
    before, _ = ready([], now=EARLY)
    for change in ({"reason": "Better"}, {"generation": 2}):
        after, changed = ready(before, now=LATE, **change)
        assert changed
        assert after[0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_a_new_status_is_a_transition():
    """C7."""
    before, _ = ready([], now=EARLY)
    after, changed = ready(before, "False", now=LATE)
    assert changed
    assert after[0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert before[0]["status"] == "True"


def test_duplicates_of_others_are_removed_and_a_missing_time_is_set():
    """C7."""
    foreign = [
        {"type": "Ready", "status": "True", "lastTransitionTime": None},
        {"type": "Ready", "status": "False"},
    ]
    after, changed = ready(foreign, now=LATE)
    assert changed
    assert [c["lastTransitionTime"] for c in after] == ["2026-01-02T00:00:00Z"]


def test_conditions_are_found_by_type():
    """C7."""
    conditions, _ = ready([], now=EARLY, generation=None)
    assert "observedGeneration" not in conditions[0]
    assert find_condition(conditions, "Ready")["reason"] == "Fine"
    assert is_true(conditions, "Ready")
    assert not is_true(None, "Ready")
