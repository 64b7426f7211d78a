"""How pods end that the operator has no use for: the agent ends the process, then the pod is deleted."""

from dataclasses import replace

import pytest

from simulation.cluster import Cluster, rescale, trainer
from simulation.views import OTHER, WORKER, active, agent, exited, observed, pod, with_spec, with_status
from trainer_operator.api.status import Phase
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import DeletePod

DRAIN = "drain:0/boot/0"


def suspended():
    """A Trainer that has just been suspended, its pods not deleted yet."""
    made = with_spec(trainer(), suspend=True)
    return with_status(made, active("", world=2, phase=Phase.SUSPENDED))


def one_pass(*agents, **changes):
    view = pod(**changes)
    return decide(observed(of=suspended(), pods=[(WORKER, view)], agents=agents))


def deleted(decision):
    return [(action.name, action.grace) for action in decision.actions if isinstance(action, DeletePod)]


def told(decision, member=WORKER):
    return [(each.id, each.kind) for each in decision.directives.get(member, ())]


def test_the_process_is_ended_before_the_pod_and_has_the_grace_that_users_gave_it():
    """ND6."""
    decision = one_pass(agent())
    assert deleted(decision) == []
    assert told(decision) == [(DRAIN, "Drain")]
    grace = trainer().spec.topology.pod_spec.termination_grace_period_seconds
    assert decision.directives[WORKER][0].args == {"pod": "pod-worker-0-0", "budget": grace}
    assert decision.wake is not None


@pytest.mark.parametrize("proc", [exited(143, 15), exited(0), {"proc": "none", "phase": "init"}])
def test_a_pod_whose_process_has_ended_is_deleted_with_a_short_grace(proc):
    """ND6."""
    decision = one_pass(agent(**proc))
    assert deleted(decision) == [("t-worker-0", 5)]
    assert told(decision) == []


@pytest.mark.parametrize(
    "agents",
    [(), (agent(age=60.0),), (agent(pod="pod-of-its-successor"),)],
    ids=["unknown", "silent", "other"],
)
def test_a_pod_whose_agent_is_not_heard_is_deleted_with_its_whole_grace(agents):
    """ND6: its process may be saving what it has."""
    decision = one_pass(*agents)
    assert deleted(decision) == [("t-worker-0", 30)]
    assert told(decision) == []


def test_an_agent_that_cannot_is_not_waited_for():
    """ND6: one of an older version, say."""
    refused = {DRAIN: DirectiveResult(DRAIN, ok=False, error="this agent does not know 'Drain'")}
    assert deleted(one_pass(agent(results=refused))) == [("t-worker-0", 5)]


def test_an_agent_that_does_not_do_as_told_is_waited_for_as_long_as_the_process_may_take():
    """ND6."""
    assert deleted(one_pass(replace(agent(), asked={DRAIN: 34.0}))) == []
    assert deleted(one_pass(replace(agent(), asked={DRAIN: 36.0}))) == [("t-worker-0", 5)]


def test_the_agent_of_a_pod_that_somebody_else_deletes_is_told_as_well():
    """ND6, CS10: it waits for what the operator wants of it."""
    decision = one_pass(agent(), terminating=True)
    assert deleted(decision) == []
    assert told(decision) == [(DRAIN, "Drain")]


def test_scaling_down_drains_the_members_that_left_and_nobody_else():
    """ND6, ME6: at once wanted again, a drained member takes part with the same pod or another."""
    cluster = Cluster(trainer(workers=3, epochs=50))
    for _ in range(12):
        cluster.reconcile()
        cluster.tick()
    rescale(cluster, 2)
    drained = set()
    for _ in range(30):
        decision = cluster.reconcile()
        drained |= {m for m, orders in decision.directives.items() for each in orders if each.kind == "Drain"}
        cluster.tick()
    assert drained == {MemberId("worker", 2)}
    assert sorted(cluster.pods) == [f"{WORKER}-a0", f"{OTHER}-a0"]
    rescale(cluster, 3)
    for _ in range(30):
        cluster.reconcile()
        cluster.tick()
    assert cluster.trainer.status.phase == Phase.RUNNING
    assert cluster.trainer.status.failures == cluster.trainer.status.disruptions == 0
