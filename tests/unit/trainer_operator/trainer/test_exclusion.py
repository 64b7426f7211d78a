"""Nodes that were lost: new pods keep away from them."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import active, observed, with_status
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.exclusion import LIMIT, away_from, exclude, excluded_names, refresh
from trainer_operator.trainer.views import NodeView

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def draft(*, seconds=0.0, nodes=(), status=None):
    status = status or active("worker:0-1", world=2)
    of = with_status(trainer(), status)
    ready = {name: NodeView(ready=True) for name in nodes}
    return Draft(observed(of=of, nodes=ready, now=START + timedelta(seconds=seconds)), status)


def excluded(made):
    return {
        entry.name: (entry.until - made.observed.now).total_seconds() for entry in made.status.excluded_nodes
    }


def test_a_lost_node_is_left_alone_for_half_an_hour_and_longer_each_time():
    """RC, row "node": doubling to a day."""
    made = draft()
    waits = []
    for _ in range(9):
        exclude(made, "bad")
        waits.append(excluded(made)["bad"])
    assert waits[:4] == [1800, 3600, 7200, 14400]
    assert waits[-1] == 24 * 3600


@pytest.mark.parametrize(("seconds", "known"), [(0, True), (1799, True), (1800, False)])
def test_an_exclusion_ends(seconds, known):
    made = draft()
    exclude(made, "bad")
    later = draft(seconds=seconds, nodes=["bad", "good"], status=made.status)
    refresh(later)
    assert (excluded_names(later.status) == ["bad"]) is known


def test_a_node_that_is_lost_again_after_its_time_stays_away_for_longer():
    """RC, row "node": 30 minutes, doubling; the count outlives the exclusion."""
    made = draft()
    exclude(made, "bad")
    later = draft(seconds=1800, nodes=["bad", "good"], status=made.status)
    refresh(later)
    exclude(later, "bad")
    assert later.status.excluded_nodes[0].count == 2


def test_exclusions_never_leave_a_trainer_without_any_ready_node():
    made = draft(nodes=["one", "two"])
    exclude(made, "one")
    refresh(made)
    assert set(excluded(made)) == {"one"}
    exclude(made, "two")
    refresh(made)
    assert excluded_names(made.status) == []


def test_exclusions_are_bounded_and_the_newest_is_among_them():
    """TR18."""
    made = draft()
    for number in range(40):
        exclude(made, f"node-{number:02d}")
    assert len(excluded(made)) == LIMIT
    assert "node-39" in excluded(made)


def test_without_exclusions_an_affinity_is_what_the_user_wrote():
    mine = {"podAffinity": {}}
    assert away_from(mine, []) == mine
    assert away_from(None, []) is None
    assert away_from({}, []) is None


def test_every_alternative_of_the_user_keeps_away():
    """RC, row "node": alternatives are or-ed, so one without the condition would lead back."""
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}, {"matchExpressions": []}]
    mine = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}, "podAntiAffinity": {"x": 1}}
    made = away_from(mine, ["bad", "worse"])
    keeps_away = [
        {"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("bad", "worse")
    ]
    assert made["podAntiAffinity"] == {"x": 1}
    for before, term in zip(terms, made["nodeAffinity"][REQUIRED]["nodeSelectorTerms"], strict=True):
        assert term == {**before, "matchFields": keeps_away}
    assert mine["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms


def test_without_alternatives_there_is_one_that_only_keeps_away():
    made = away_from(None, ["bad"])
    (term,) = made["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == ["bad"]
