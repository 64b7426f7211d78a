"""When training is whole again after a disturbance."""

import pytest

from trainer_operator.demo.disturbances import PLAN, Kind
from trainer_operator.demo.steady import (
    STEADY_STEPS,
    has_checkpoint,
    has_ended,
    recovered,
    steps_since,
    trains,
)
from trainer_operator.demo.timeline import CheckpointSeen, LeaseSeen, PodSeen

BY_KIND = {disturbance.kind: disturbance for disturbance in PLAN}


def test_training_is_steady_when_everybody_is_there_and_steps_follow(recording):
    began = recording.now
    recording.apply(STEADY_STEPS - 1)
    assert not trains(recording.timeline, since=began)
    assert trains(recording.apply(1).timeline, since=began)


@pytest.mark.parametrize("change", [{"phase": "Recovering"}, {"changing": True}])
def test_training_is_not_steady_while_the_operator_says_otherwise(recording, change):
    began = recording.now
    assert not trains(recording.apply(20).tell(**change).timeline, since=began)


def test_training_is_not_steady_while_a_member_has_no_process(recording):
    began = recording.now
    recording.apply(20).timeline.add(PodSeen(recording.now, "digits-worker-2", "worker-2"))
    assert not trains(recording.timeline, since=began)
    recording.process("worker-2", 300)
    assert trains(recording.timeline, since=began)


def test_a_pod_that_is_ending_takes_no_part(recording):
    """A pod on a node without power stays for as long as the node."""
    began = recording.now
    recording.apply(20).timeline.add(PodSeen(recording.now, "digits-worker-2", "worker-2", is_ending=True))
    assert trains(recording.timeline, since=began)


def test_a_step_counts_once_however_many_members_tell_of_it(recording):
    began = recording.now
    assert steps_since(recording.apply(3).timeline, began) == 3


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_training_has_ended(recording, phase):
    assert not has_ended(recording.timeline)
    assert has_ended(recording.tell(phase=phase).timeline)


def test_only_a_committed_checkpoint_counts(recording):
    recording.timeline.add(CheckpointSeen(1.0, "c1", 5, "Staging"))
    assert not has_checkpoint(recording.timeline)
    recording.timeline.add(CheckpointSeen(2.0, "c1", 5, "Committed"))
    assert has_checkpoint(recording.timeline)


def is_over(recording, kind, began, *victims, killed=""):
    return recovered(recording.timeline, BY_KIND[kind], began=began, victims=victims, killed=killed)


def test_a_killed_process_is_over_when_it_was_noticed_replaced_and_training_goes_on(recording):
    began = recording.apply(10).now
    recording.wait(0.2).process("worker-1", None)
    assert not is_over(recording, Kind.KILL_WORKER, began, "worker-1")
    recording.tell(restarts=1)
    recording.wait(1).process("worker-1", 200)
    assert not is_over(recording, Kind.KILL_WORKER, began, "worker-1")
    recording.apply(STEADY_STEPS)
    assert is_over(recording, Kind.KILL_WORKER, began, "worker-1")


def test_a_process_replaced_by_itself_is_not_over_before_the_operator_counts_it(recording):
    began = recording.apply(10).now
    recording.wait(1).process("worker-1", 200).apply(20)
    assert not is_over(recording, Kind.KILL_WORKER, began, "worker-1")


def test_scaling_is_over_when_the_new_world_trains(recording):
    began = recording.apply(10).now
    for index in (2, 3, 4):
        recording.timeline.add(
            PodSeen(recording.now, f"digits-worker-{index}", f"worker-{index}", 0, "", "Running")
        )
        recording.process(f"worker-{index}", 200 + index)
    recording.apply(20).tell(epoch=2, world=5)
    assert not is_over(recording, Kind.SCALE_UP, began)  # the old epoch's steps do not count
    recording.epoch = 2
    assert is_over(recording.apply(STEADY_STEPS + 1), Kind.SCALE_UP, began)


def test_a_lost_leader_is_over_when_another_leads_and_writes(recording):
    began = recording.apply(10).now
    recording.wait(15).timeline.add(LeaseSeen(recording.now, "second"))
    recording.lead("operator-b").apply(STEADY_STEPS)
    assert not is_over(recording, Kind.KILL_LEADER, began, killed="operator-a")
    assert is_over(recording.tell(step=20), Kind.KILL_LEADER, began, killed="operator-a")


@pytest.mark.parametrize("leaders", [(), ("operator-a",)])
def test_a_lost_leader_is_not_over_while_nobody_else_leads(recording, leaders):
    began = recording.apply(10).now
    recording.wait(15).timeline.add(LeaseSeen(recording.now, "second"))
    recording.lead(*leaders).apply(STEADY_STEPS).tell(step=20)
    assert not is_over(recording, Kind.KILL_LEADER, began, killed="operator-a")
