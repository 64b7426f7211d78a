"""Our rules hold in the model, and each weakened rule breaks; the wide bounds are for `make models`."""

import pytest

from models.variants import OURS, WEAKENED


@pytest.mark.parametrize("variant", [v for v in (*OURS, *WEAKENED) if not v.is_wide], ids=lambda v: v.name)
def test_rules_hold_and_break_where_they_are_weakened(variant):
    """DE1, DE4, GC2, GC3, GC4, GC6, IV2, IV3, IV6."""
    verdict = variant.explore()
    assert verdict.safe is variant.is_safe, verdict
    assert verdict.safe or verdict.trace


def test_one_look_loses_what_a_checkpoint_relies_on_that_was_committed_meanwhile():
    """GC4: its base, which was not read yet, is buried when it is."""
    once = next(v for v in WEAKENED if v.name == "one look at who lives")
    verdict = once.explore()
    assert verdict.broken == "A has DECISION commit and lacks X of C1"
    assert verdict.trace[-2:] == ("1 look(C2): gone", "1 deletes X of C1")
