"""The row of a disturbance, from a recorded training."""

import pytest

from trainer_operator.demo.disturbances import PLAN, Incident, Kind
from trainer_operator.demo.measures import longest_pause, measure
from trainer_operator.demo.timeline import EventSeen, LeaseSeen, PodSeen, Timeline

BY_KIND = {disturbance.kind: disturbance for disturbance in PLAN}


def incident(kind, began, settled, *victims, target="it"):
    return Incident(BY_KIND[kind], began, settled, victims, target)


def test_a_killed_worker_is_measured_from_the_kill_to_the_step_after_the_pause(recording):
    recording.apply(10)
    began = recording.now
    recording.apply(1)  # was under way already
    recording.wait(0.1).process("worker-1", None)
    recording.wait(0.1).tell(failures=1, restarts=1, recovering=("worker-1",), step=11)
    recording.wait(1.8).process("worker-1", 200).apply(5)
    row = measure(
        recording.timeline,
        incident(Kind.KILL_WORKER, began, recording.now, "worker-1", target="worker-1, pid 102"),
    )
    assert row.detected == pytest.approx(0.3)
    assert row.next_step == pytest.approx(2.2)
    assert (row.step_before, row.step_after, row.repeated) == (11, 11, 0)
    assert (row.failures, row.disruptions) == (1, 0)
    assert row.restarted == ("worker-1",)
    assert row.survived


def test_a_rollback_shows_the_step_before_and_the_step_that_training_goes_on_from(recording):
    """ME7."""
    recording.apply(30)
    began = recording.now
    recording.wait(0.2).tell(failures=1, restarts=1, recovering=("ps-0",))
    recording.wait(2.0).roll_back(20).apply(3)
    row = measure(recording.timeline, incident(Kind.KILL_SERVER, began, recording.now, "ps-0"))
    assert (row.step_before, row.step_after, row.repeated) == (30, 20, 10)


def test_training_that_keeps_its_pace_has_no_pause(recording):
    recording.apply(10)
    began = recording.now
    recording.apply(100)
    recording.timeline.add(LeaseSeen(recording.now, "second"))
    row = measure(recording.timeline, incident(Kind.KILL_LEADER, began, recording.now))
    assert row.next_step is None
    assert row.longest_gap == pytest.approx(0.1)
    assert row.detected == pytest.approx(10.0)
    assert row.step_before == row.step_after == 10


def test_a_leader_that_only_renews_is_no_new_leader(recording):
    began = recording.now
    recording.wait(1).timeline.add(LeaseSeen(recording.now, "first"))
    recording.timeline.add(LeaseSeen(recording.now, ""))
    row = measure(recording.timeline, incident(Kind.KILL_LEADER, began, recording.wait(1).now))
    assert row.detected is None


def test_a_restart_that_names_other_members_is_no_detection(recording):
    began = recording.apply(3).now
    recording.wait(1).tell(restarts=1, recovering=("worker-0",))
    row = measure(recording.timeline, incident(Kind.DELETE_POD, began, recording.wait(1).now, "worker-1"))
    assert row.detected is None


@pytest.mark.parametrize("sign", ["event", "status", "pod"])
def test_scaling_is_noticed_by_the_first_sign_of_it(recording, sign):
    began = recording.apply(3).now
    recording.wait(0.5)
    match sign:
        case "event":
            recording.timeline.add(EventSeen(recording.now, False, "Scaling", ""))
        case "status":
            recording.tell(changing=True)
        case "pod":
            recording.timeline.add(PodSeen(recording.now, "digits-worker-2", "worker-2"))
    row = measure(recording.timeline, incident(Kind.SCALE_UP, began, recording.wait(1).now))
    assert row.detected == pytest.approx(0.5)


def test_without_any_step_there_is_no_pause_to_measure(recording):
    began = recording.apply(3).now
    assert longest_pause(recording.timeline, after=began, until=began + 30) is None
    row = measure(recording.timeline, incident(Kind.KILL_NODE, began, began + 30, "worker-1"))
    assert row.longest_gap == pytest.approx(30)
    assert row.next_step is None


def test_a_pause_that_began_before_the_disturbance_counts_from_the_disturbance(recording):
    recording.apply(3).wait(5)
    began = recording.now
    recording.wait(1).apply(1)
    pause = longest_pause(recording.timeline, after=began, until=recording.now)
    assert pause.length == pytest.approx(1.1)
    assert (pause.reached, pause.resumed) == (3, 4)


def test_an_empty_timeline_can_be_measured():
    row = measure(Timeline(), incident(Kind.KILL_WORKER, 1.0, 2.0, "worker-0"))
    assert (row.detected, row.next_step, row.restarted) == (None, None, ())
