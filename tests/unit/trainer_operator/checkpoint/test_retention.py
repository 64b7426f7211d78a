"""Retention by example: what a person would expect to be kept."""

from dataclasses import replace

from trainer_operator.checkpoint.retention import Kept, to_retire


def committed(*steps, **changes):
    return [Kept(f"c{step}", step, step, "Committed", changes.get("health", "Healthy")) for step in steps]


def test_the_newest_three_stay_and_the_older_ones_go():
    """GC1."""
    assert to_retire(committed(10, 20, 30, 40, 50), 3) == {"c10", "c20"}


def test_nothing_goes_while_there_are_no_more_than_wanted():
    """GC1."""
    assert to_retire(committed(10, 20, 30), 3) == set()


def test_a_dispatched_save_does_not_push_out_a_finished_one():
    """FC01: only Committed ones count."""
    staging = Kept("c40", 40, 40, "Staging", "Unknown")
    aborted = Kept("c50", 50, 50, "GarbageCollected", "Unknown")
    assert to_retire([*committed(10, 20, 30), staging, aborted], 3) == set()


def test_a_damaged_one_does_not_count_and_a_sound_older_one_stays_for_it():
    """GC1."""
    damaged = committed(40, health="Corrupt")
    assert to_retire([*committed(10, 20, 30), *damaged], 3) == set()


def test_damaged_ones_older_than_what_is_kept_go_too():
    """GC1."""
    damaged = committed(5, 25, health="Corrupt")
    assert to_retire([*committed(10, 20, 30, 40), *damaged], 2) == {"c5", "c10", "c20", "c25"}


def test_a_second_checkpoint_of_the_same_step_is_the_newer_one():
    """CK2: the same step may be saved again under a new id."""
    twice = [Kept("first", 10, 1, "Committed", "Healthy"), Kept("second", 10, 2, "Committed", "Healthy")]
    assert to_retire(twice, 1) == {"first"}


def test_what_the_user_went_back_behind_goes_even_as_the_newest_and_counts_for_nothing():
    """CK6: three others stay; a held one stays, too."""
    old, newest, held = committed(10, 20, 30), *committed(40), *committed(50)
    discarded = [replace(newest, discard=True), replace(held, discard=True, hold=True)]
    assert to_retire([*old, *discarded], 3) == {"c40"}
