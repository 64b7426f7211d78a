"""What a decision puts into the outbox."""

from dataclasses import replace

import pytest

from simulation.cluster import trainer
from simulation.views import OTHER, WORKER, active, agent, observed, pod, with_spec, with_status
from trainer_operator.api.profile import RetryPolicy
from trainer_operator.api.status import Phase
from trainer_operator.notify.notice import try_read
from trainer_operator.notify.routes import Services
from trainer_operator.notify.triggers import Severity
from trainer_operator.topology.beat import Exit
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.views import CheckpointView

TEAM = Services(frozenset({"team"}), {"team": Severity.Info})


def seen(status=None, *, agents=None, **changes):
    made = with_status(trainer(workers=2), status or active("worker:0-1", world=2, phase=Phase.RUNNING))
    members = (agent(WORKER), agent(OTHER)) if agents is None else agents
    pods = [(member, pod(member)) for member in (WORKER, OTHER)]
    return observed(of=made, pods=pods, agents=members, services=TEAM, **changes)


def told(decision):
    return [(str(notice.trigger), notice.text) for notice in map(try_read, decision.status.outbox)]


def checkpoint(health, state="Committed"):
    return CheckpointView("t-5", "5", 5, state, health, "Interval", 1)


@pytest.mark.parametrize(("health", "count"), [("Corrupt", 1), ("Healthy", 0)])
def test_a_checkpoint_that_is_found_damaged_is_told_and_a_sound_one_is_not(health, count):
    """NT1, TR18."""
    decision = decide(seen(checkpoints=(checkpoint(health),)))
    found = [text for trigger, text in told(decision) if trigger == "CheckpointDamaged"]
    assert len(found) == count
    assert all("checkpoint t-5 of step 5 is damaged" in text for text in found)


def test_the_next_decision_says_the_same_of_it_no_more():
    """NT3: an idle Trainer is not written."""
    before = seen(checkpoints=(checkpoint("Corrupt"),))
    first = decide(before)
    second = decide(replace(before, trainer=with_status(before.trainer, first.status)))
    assert (second.status.outbox, second.status.told) == (first.status.outbox, first.status.told)


def test_a_used_up_budget_is_told_with_its_reason():
    """NT1."""
    crashed = agent(WORKER, proc="exited", exit=Exit(code=1, sig=0), phase="done")
    before = seen(agents=(crashed, agent(OTHER)))
    strict = with_spec(before.trainer, retry_policy=RetryPolicy.read({"backoffLimit": 0}))
    decision = decide(replace(before, trainer=strict))
    assert decision.status.phase is Phase.FAILED
    ((trigger, text),) = told(decision)
    assert trigger == "Failed"
    assert text.startswith("BackoffLimitExceeded: ")
