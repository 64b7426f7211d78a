"""Pods that others delete while they train: a checkpoint comes before their loss is acted on."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, WORKER, active, agent, exited, observed, pod, with_spec, with_status
from trainer_operator.api.checkpoint import CheckpointReason
from trainer_operator.api.status import CheckpointInFlight, MembershipPhase, PendingChange, Phase
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import CreateCheckpoint, EmitEvent
from trainer_operator.trainer.views import CheckpointView

NAME = "t-c00001"


def after(seconds):
    return START + timedelta(seconds=seconds)


def one_pass(status=None, *, of=None, seconds=0, grace=30, agents=None, checkpoints=(), **leaving):
    """One decision while the pod of worker 0 is being deleted; returns it."""
    status = status or active("worker:0-1", world=2, phase=Phase.RUNNING, last_checkpoint_attempt=START)
    return decide(
        observed(
            of=with_status(of or trainer(), status),
            pods=[(WORKER, pod(terminating=True, grace=grace, **leaving)), (OTHER, pod(OTHER))],
            agents=agents or [agent(step=7), agent(OTHER, step=7)],
            checkpoints=tuple(checkpoints),
            now=after(seconds),
        )
    )


def checkpoint(state="Staging", **changes):
    fields = {"id": "", "step": 9, "health": "Unknown", "reason": "PreEvict", "sequence": 1}
    return CheckpointView(NAME, state=state, **{**fields, **changes})


def ordered(decision):
    return [action for action in decision.actions if isinstance(action, CreateCheckpoint)]


def reasons(decision):
    return [action.reason for action in decision.actions if isinstance(action, EmitEvent)]


def acted_on(decision):
    """Whether the loss was counted and a new epoch begun."""
    return (decision.status.disruptions, decision.status.membership.phase) == (1, MembershipPhase.PREPARING)


def test_a_checkpoint_is_taken_before_the_loss_is_acted_on():
    """CS10: no step is lost, and the pause is as short as the checkpoint."""
    first = one_pass()
    assert ordered(first) == [CreateCheckpoint(NAME, CheckpointReason.PRE_EVICT, pause=True)]
    assert first.status.pending_change == PendingChange(reason="Evict", since=START, checkpoint=NAME)
    assert reasons(first) == ["Evicting"]
    assert not acted_on(first)
    assert first.wake is not None
    second = one_pass(first.status, seconds=3, checkpoints=[checkpoint()])
    assert (reasons(second), acted_on(second)) == ([], False)
    assert second.status.pending_change == first.status.pending_change
    done = one_pass(second.status, seconds=4, checkpoints=[checkpoint("Committed")])
    assert acted_on(done)
    assert done.status.pending_change is None
    assert done.directives[WORKER][0].kind == "Drain"


@pytest.mark.parametrize("state", ["GarbageCollected", "Committed"])
def test_whatever_becomes_of_the_checkpoint_the_loss_is_then_acted_on(state):
    """CS10."""
    first = one_pass()
    assert acted_on(one_pass(first.status, checkpoints=[checkpoint(state)]))


def test_five_seconds_of_the_grace_are_left():
    """CS10: deadline = grace - 5 s, on our own clock."""
    first = one_pass(grace=30)
    assert not acted_on(one_pass(first.status, seconds=24, checkpoints=[checkpoint()]))
    assert acted_on(one_pass(first.status, seconds=25, checkpoints=[checkpoint()]))


@pytest.mark.parametrize(
    ("staging", "begins"), [([24.0], True), ([26.0], False), ([90.0, 20.0, 21.0, 22.0], True)]
)
def test_none_is_begun_that_usually_takes_longer_than_the_grace(staging, begins):
    """CS10: the average of the last three."""
    known = [
        checkpoint("Committed", sequence=number, staging=seconds) for number, seconds in enumerate(staging, 1)
    ]
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, checkpoint_sequence=4)
    decision = one_pass(status, checkpoints=known)
    assert bool(ordered(decision)) is begins
    assert acted_on(decision) is not begins
    assert ("NoTimeForCheckpoint" in reasons(decision)) is not begins


def test_one_that_is_being_taken_is_joined():
    """CS10."""
    flight = CheckpointInFlight(name=NAME, reason=CheckpointReason.INTERVAL, pause=False, since=START)
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, checkpoint_in_flight=flight)
    decision = one_pass(status, checkpoints=[checkpoint()])
    assert ordered(decision) == []
    assert decision.status.pending_change.checkpoint == NAME


@pytest.mark.parametrize(
    "case",
    [
        {"of": with_spec(trainer(), checkpoint=None)},
        {"grace": 5},
        {"phase": "Pending"},
        {"agents": [agent(**exited(1)), agent(OTHER)]},
        {"agents": [agent(age=60.0), agent(OTHER)]},
        {"agents": [agent(), agent(OTHER, phase="init")]},
        {"agents": [agent(epoch=0), agent(OTHER)]},
        {"agents": [agent(phase="draining"), agent(OTHER)]},
    ],
    ids=[
        "no bucket",
        "no grace",
        "not started",
        "crashed",
        "silent",
        "other not ready",
        "old epoch",
        "drained",
    ],
)
def test_where_none_can_be_taken_the_loss_is_acted_on_at_once(case):
    """CS10."""
    decision = one_pass(**case)
    assert ordered(decision) == []
    assert acted_on(decision)


def test_a_change_that_is_under_way_is_not_held_up():
    """CS10, ME6: its checkpoint is being taken already."""
    change = PendingChange(reason="Scale", since=START, checkpoint=NAME)
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, pending_change=change)
    assert acted_on(one_pass(status, checkpoints=[checkpoint()]))


def test_with_parameter_servers_the_loss_is_acted_on_at_once():
    """CS10, ME5: a worker's loss costs no step there."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    decision = one_pass(status, of=trainer(servers=1))
    assert ordered(decision) == []
    assert decision.status.disruptions >= 1


def test_a_suspend_takes_over_the_checkpoint():
    """TR34, CS10."""
    first = one_pass()
    of = with_spec(trainer(), suspend=True)
    decision = one_pass(first.status, of=of, checkpoints=[checkpoint()])
    assert (decision.status.pending_change.reason, decision.status.pending_change.checkpoint) == (
        "Suspend",
        NAME,
    )


def test_an_eviction_is_no_change_of_size():
    """ST6."""
    status = one_pass().status
    found = next(each for each in status.conditions if each.type == "Resizing")
    assert (found.status, found.reason) == ("False", "Stable")
