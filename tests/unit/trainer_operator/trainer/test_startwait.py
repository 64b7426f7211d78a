"""A start that waits for its store says so where people look."""

import pytest

from simulation.cluster import trainer
from simulation.views import OTHER, WORKER, active, agent, observed, pod, with_spec, with_status
from trainer_operator.api.status import MembershipPhase
from trainer_operator.api.trainer import CheckpointPolicy
from trainer_operator.trainer import startwait
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import Draft, EmitEvent

BOTH = [(WORKER, pod()), (OTHER, pod(OTHER))]
TOLD = "Unreachable: no answer from minio:9000: timed out"


def waiting(text=TOLD, **changes):
    return agent(OTHER, **{"proc": "none", "phase": "init", "waits": text, **changes})


def view(*agents, status=None):
    policy = CheckpointPolicy(bucket="file:///srv/checkpoints")
    of = with_status(with_spec(trainer(), checkpoint=policy), status or active("worker:0-1", world=2))
    return observed(of=of, pods=BOTH, agents=agents)


def said(decision):
    (condition,) = [c for c in decision.status.conditions if c.type == "CheckpointHealthy"]
    events = [a for a in decision.actions if isinstance(a, EmitEvent) and a.reason == "StartWaitsForStore"]
    return condition, events


def test_a_wait_is_one_event_and_a_condition_until_it_is_over():
    """RS2, EV1."""
    first = decide(view(agent(), waiting()))
    condition, events = said(first)
    assert (condition.status, condition.reason) == ("False", "Unreachable")
    assert condition.message == "the start waits for the store: no answer from minio:9000: timed out"
    assert [(event.type, "it is tried again" in event.message) for event in events] == [("Warning", True)]
    second = decide(view(agent(), waiting(), status=first.status))
    assert said(second)[1] == []
    over = decide(view(agent(), agent(OTHER), status=second.status))
    assert said(over)[0].reason == "NoneYet"
    assert len(said(decide(view(agent(), waiting(), status=over.status)))[1]) == 1


@pytest.mark.parametrize(
    "quiet",
    [waiting(""), waiting(proc="running"), waiting(attempt=3), waiting(age=1000.0)],
    ids=["waits for nothing", "runs", "another attempt", "silent"],
)
def test_who_does_not_wait_is_no_problem(quiet):
    """DT5."""
    of = view(agent(), quiet)
    assert startwait.problem(Draft(of, of.trainer.status)) is None


def test_an_epoch_that_is_prepared_waits_for_no_store():
    """ME3: what an agent said of its last start is void."""
    status = active("worker:0-1", world=2)
    status.membership.phase = MembershipPhase.PREPARING
    of = view(agent(), waiting(), status=status)
    assert startwait.problem(Draft(of, status)) is None


def test_a_word_that_is_no_reason_is_not_taken_for_one():
    """RD: conditions hold words of ours only."""
    of = view(agent(), waiting("x" * 600))
    assert startwait.problem(Draft(of, of.trainer.status)) == (
        "StoreFails",
        ("the start waits for the store: " + "x" * 600)[:512],
    )
