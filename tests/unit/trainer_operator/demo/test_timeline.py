"""What was seen, and what it was at a given moment."""

from trainer_operator.demo.timeline import (
    EventSeen,
    NodeSeen,
    PodSeen,
    ProcessSeen,
    StatusSeen,
    StepSeen,
    Timeline,
)


def test_an_empty_timeline_has_an_empty_status():
    timeline = Timeline()
    assert timeline.status() == StatusSeen(0.0)
    assert timeline.step() == 0
    assert timeline.last(EventSeen) is None


def test_records_of_a_kind_are_found_by_time_with_the_begin_left_out():
    timeline = Timeline([EventSeen(float(at), False, f"E{at}", "") for at in range(5)])
    timeline.add(NodeSeen(2.5, "node-0", True))
    assert [event.reason for event in timeline.of(EventSeen, after=1.0, until=3.0)] == ["E2", "E3"]


def test_status_and_step_are_those_of_the_time_asked_for():
    timeline = Timeline([StatusSeen(1.0, step=5), StatusSeen(2.0, step=9)])
    timeline.add(StepSeen(1.5, "ps-0", 1, 1, 7, 0, 0, 10, 2))
    assert timeline.status(until=1.9).step == 5
    assert timeline.step(until=1.4) == 0
    assert timeline.step() == 7


def test_the_newest_attempt_of_a_member_is_its_pod():
    timeline = Timeline(
        [
            PodSeen(1.0, "digits-worker-0", "worker-0", 0),
            PodSeen(2.0, "digits-worker-0-a1", "worker-0", 1),
            PodSeen(3.0, "digits-worker-0", "worker-0", 0, is_ending=True),
        ]
    )
    assert timeline.pods()["worker-0"].name == "digits-worker-0-a1"
    timeline.add(PodSeen(4.0, "digits-worker-0-a1", "worker-0", 1, is_gone=True))
    assert timeline.pods()["worker-0"].name == "digits-worker-0"


def test_a_process_that_ended_is_no_process():
    timeline = Timeline([ProcessSeen(1.0, "worker-0", (10, 1)), ProcessSeen(2.0, "worker-0", None)])
    assert timeline.processes(until=1.5) == {"worker-0": (10, 1)}
    assert timeline.processes() == {}


def test_the_last_word_about_a_node_counts():
    timeline = Timeline([NodeSeen(1.0, "node-0", True), NodeSeen(2.0, "node-0", False)])
    assert timeline.nodes() == {"node-0": False}
