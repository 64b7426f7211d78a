"""Shards and copies: our rules hold in the models, and each weakened rule breaks; wide bounds are for `make models`."""

import pytest

from models.quorum import Quorum
from models.rules import Counted, QuorumRules
from models.sharedbase import QuorumOnBase
from models.variants import ALL, ON_BASE, QUORUM


@pytest.mark.parametrize("variant", [v for v in QUORUM if not v.is_wide], ids=lambda v: v.name)
def test_quorum_and_decision_hold_and_break_where_they_are_weakened(variant):
    """QR2, QR3, QR5, DE1, DE2, DE3, IV1, IV2, IV3, FC12, FC13."""
    verdict = variant.explore()
    assert verdict.safe is variant.is_safe, verdict
    assert verdict.safe or verdict.trace


@pytest.mark.parametrize("variant", [v for v in ON_BASE if not v.is_wide], ids=lambda v: v.name)
def test_copies_on_a_base_that_is_collected_hold_and_break_where_they_are_weakened(variant):
    """QR2, QR5, PB3, GC2, GC3, GC4, GC5, GC6, IV1, IV2, IV3."""
    verdict = variant.explore()
    assert verdict.safe is variant.is_safe, verdict
    assert verdict.safe or verdict.trace


def test_one_copy_of_a_shard_is_lost_and_three_of_the_other_don_t_help():
    """FC13: a majority of all copies together."""
    verdict = Quorum(QuorumRules(counted=Counted.MAJORITY_OF_ALL)).explore()
    assert verdict.broken.endswith("is left")
    shard = verdict.broken.split()[-3]
    of_shard = f"({shard}."
    assert sum("write_copy" in step and of_shard in step for step in verdict.trace) == 1
    assert any(step.startswith(f"the store loses({shard}.") for step in verdict.trace)


def test_a_leader_that_was_held_up_commits_what_was_swept_if_the_abort_s_record_goes():
    """FC12, DE4: it counted before the abort."""
    verdict = Quorum(QuorumRules(sweep_keeps_decision=False)).explore()
    *before, last = verdict.trace
    assert last.endswith("decide_commit: commit")
    assert before[-1] == "collect sweeps what it left"
    assert last[0] not in {step[0] for step in before if "decide_abort" in step}


def test_without_faults_left_over_one_lost_copy_is_one_too_many():
    """QR2: with one copy no loss is borne, so the model has none; a commit at nothing at all breaks it at once."""
    verdict = Quorum(QuorumRules(copies=1, counted=Counted.MINORITY_OF_EACH)).explore()
    assert verdict.trace == ("1 commit is ordered, no DECISION yet", "1 decide_commit: commit")


def test_a_copy_that_is_registered_while_the_base_is_collected_lacks_a_piece_if_only_indexes_spare_their_own():
    """PB3, GC5: the prober looked before the collection did, and wrote its index after that."""
    verdict = QuorumOnBase(QuorumRules(shards=1, spares_other_copies=False)).explore()
    assert verdict.trace[-3:] == (
        "the prober completes(0.2)",
        "register(0.2)",
        "the collection deletes below(0.2)",
    )


def test_states_that_differ_in_numbers_only_are_one():
    """The representative is the same for each of them, and itself."""
    model = QuorumOnBase(QuorumRules())
    start = model.representative(model.start)
    seen, waiting = {start}, [start]
    for state in waiting:
        if len(seen) > 300:
            break
        for _, following in model.steps(state):
            one = model.representative(following)
            assert model.representative(one) == one
            turned = following._replace(shards=tuple(shard[::-1] for shard in following.shards[::-1]))
            assert model.representative(turned) == one
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    assert len(seen) > 300


def test_names_of_variants_differ():
    """What `make models` prints says which one broke."""
    assert len({variant.name for variant in ALL}) == len(ALL)
