"""What all operators of a Trainer's life counted together is what happened, however often they were killed."""

import asyncio

import pytest

from simulation.world import Operator, World, run
from trainer_operator.api.status import Phase
from trainer_operator.topology.members import MemberId

RESTARTS = "trainer_restarts_total"


def total(operators, name, **labels):
    found = (operator.registry.get_sample_value(name, labels) or 0.0 for operator in operators)
    return sum(found)


@pytest.mark.parametrize("writes", [None, 2, 3, 5])
def test_the_increase_over_restarts_equals_the_true_transitions(writes):
    """TR44: one crash and one deleted pod; each operator dies before its n-th write until six did."""
    world = World(epochs=4)
    script = [
        (lambda w: w.step >= 9, lambda w: w.crash(MemberId("worker", 1))),
        (lambda w: w.step >= 20, lambda w: w.delete_pod("t-worker-0")),
    ]
    operators = [Operator(world)]
    tick = world.tick

    def tick_and_kill(operator):
        if writes is not None and world.api.kill_at is None and len(operators) < 7:
            world.api.kill_at = len(world.api.writes) + writes
        tick(operator)

    world.tick = tick_and_kill
    asyncio.run(run(world, script=script, operators=operators))
    assert len(operators) == (1 if writes is None else 7)
    status = world.status
    assert status.phase is Phase.SUCCEEDED
    labels = {"namespace": "default"}
    assert total(operators, RESTARTS, cause="failures", **labels) == status.failures == 1
    assert total(operators, RESTARTS, cause="disruptions", **labels) == status.disruptions == 1
    assert total(operators, "training_epochs_total", **labels) == status.epochs_completed
    transitions = "trainer_phase_transitions_total"
    assert total(operators, transitions, phase="Succeeded", **labels) == 1
    lost = status.last_rollback
    assert status.rollbacks == 0 or lost is not None
    assert (total(operators, "trainer_lost_steps_total", **labels) > 0) == (status.rollbacks > 0)
