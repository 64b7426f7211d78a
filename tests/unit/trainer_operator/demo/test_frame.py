"""What people see at one moment."""

import pytest

from trainer_operator.demo.frame import checkpoint_rows, compose, member_rows, pulse
from trainer_operator.demo.timeline import CheckpointSeen, EventSeen, NodeSeen, PodSeen, Timeline


def state_of(recording, member):
    return {row.name: row.state for row in member_rows(recording.timeline, now=recording.now)}.get(member)


def test_servers_come_first_and_members_in_the_order_of_their_index(recording):
    for index in (10, 2):
        recording.timeline.add(PodSeen(recording.now, f"digits-worker-{index}", f"worker-{index}"))
    names = [row.name for row in member_rows(recording.timeline, now=0.0)]
    assert names == ["ps-0", "worker-0", "worker-1", "worker-2", "worker-10"]


def test_a_member_that_applies_steps_trains_and_one_that_does_not_waits(recording):
    recording.apply(3)
    assert state_of(recording, "worker-0") == "training"
    assert state_of(recording.wait(2), "worker-0") == "waiting"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"phase": "Succeeded"}, "done"),
        ({"phase": "Failed"}, "failed"),
        ({"is_ending": True}, "ending"),
        ({"node": "node-9"}, "node down"),
    ],
)
def test_the_pod_says_what_a_member_is_beyond_training(recording, changes, state):
    recording.apply(3).timeline.add(NodeSeen(recording.now, "node-9", False))
    pod = {"node": "node-1", "phase": "Running", **changes}
    recording.timeline.add(PodSeen(recording.now, "digits-worker-0", "worker-0", 0, **pod))
    assert state_of(recording, "worker-0") == state


def test_a_member_without_process_is_down_after_it_had_one_and_starting_before(recording):
    recording.process("worker-0", None)
    assert state_of(recording, "worker-0") == "down"
    recording.timeline.add(PodSeen(recording.now, "digits-worker-5", "worker-5"))
    assert state_of(recording, "worker-5") == "starting"


def test_a_gone_pod_is_not_shown(recording):
    recording.timeline.add(PodSeen(recording.now, "digits-worker-0", "worker-0", is_gone=True))
    assert state_of(recording, "worker-0") is None


def test_every_process_of_a_member_counts_as_a_start(recording):
    recording.wait(1).process("worker-0", None).process("worker-0", 300)
    rows = {row.name: row for row in member_rows(recording.timeline, now=recording.now)}
    assert (rows["worker-0"].starts, rows["worker-0"].pid, rows["worker-1"].starts) == (2, 300, 1)


def test_the_newest_checkpoints_are_shown_without_the_collected():
    timeline = Timeline(CheckpointSeen(float(n), f"c{n}", n * 10, "Committed") for n in range(9))
    timeline.add(CheckpointSeen(10.0, "c8", 80, "GarbageCollected"))
    assert [row.step for row in checkpoint_rows(timeline, limit=3)] == [70, 60, 50]


def test_the_pulse_counts_each_step_once(recording):
    recording.apply(10, pace=0.1).wait(1).apply(5, pace=0.2)
    assert sum(pulse(recording.timeline, now=recording.now, length=20)) == 15
    assert pulse(recording.timeline, now=recording.now, length=3)[-1] == 5


def test_a_frame_of_nothing_can_be_composed():
    frame = compose(Timeline(), now=1.0)
    assert frame.status is None
    assert frame.members == ()


def test_only_the_newest_events_are_in_a_frame(recording):
    recording.timeline.extend(EventSeen(float(n), False, f"E{n}", "") for n in range(9))
    frame = compose(recording.timeline, now=9.0, events=2)
    assert [event.reason for event in frame.events] == ["E7", "E8"]


def test_the_step_follows_the_step_logs_before_status_does(recording):
    recording.apply(7).tell(step=3)
    assert compose(recording.timeline, now=recording.now).step == 7
    recording.tell(step=8, phase="Succeeded")
    assert compose(recording.timeline, now=recording.now).step == 8
