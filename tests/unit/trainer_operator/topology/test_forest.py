"""Trees of several Trainers, and how long each of them is calm."""

from runtime.testing.clock import SimClock
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.members import MemberId
from trainer_operator.topology.state import Input, State

A, B = MemberId("worker", 0), MemberId("worker", 1)


def feed(forest, inputs, *, active=True, members=(A, B)):
    forest.feed("uid", inputs, causes={}, members=members, active=active)


def test_clocks_stand_still_while_a_member_is_away():
    """DT6."""
    clock = SimClock()
    forest = Forest(clock)
    assert forest.calm_for("uid") == 0
    feed(forest, {A: [Input.ADVANCED], B: [Input.ADVANCED]})
    clock.advance(100)
    assert forest.calm_for("uid") == 100
    feed(forest, {B: [Input.EXIT_N]})
    clock.advance(50)
    assert forest.calm_for("uid") == 0
    feed(forest, {B: [Input.RESPAWN, Input.ADVANCED]})
    clock.advance(7)
    assert forest.calm_for("uid") == 7


def test_a_stall_does_not_stop_the_clock_that_found_it():
    """DT6, SL2: only crashed and lost members do."""
    clock = SimClock()
    forest = Forest(clock)
    feed(forest, {A: [Input.ADVANCED], B: [Input.ADVANCED]})
    clock.advance(70)
    feed(forest, {A: [Input.SOFT, Input.HARD]})
    clock.advance(1)
    assert forest.calm_for("uid") == 71


def test_clocks_stand_still_while_an_epoch_is_prepared():
    """DT6, SL1."""
    clock = SimClock()
    forest = Forest(clock)
    feed(forest, {A: [Input.ADVANCED]}, active=False)
    clock.advance(100)
    assert forest.calm_for("uid") == 0


def test_a_member_that_left_and_a_trainer_that_is_gone_are_forgotten():
    """TR21: nothing grows for ever."""
    forest = Forest(SimClock())
    feed(forest, {A: [Input.ADVANCED], B: [Input.GONE]})
    feed(forest, {}, members=(A,))
    assert (forest.tree("uid").state(A), forest.tree("uid").state(B)) == (State.READY, None)
    forest.drop("uid")
    assert forest.tree("uid") is None
