"""The expectations of the demo: each holds on a good training and fails for its own reason."""

import pytest

from trainer_operator.demo.disturbances import PLAN
from trainer_operator.demo.measures import Row
from trainer_operator.demo.timeline import LeadersSeen, StepSeen, Timeline
from trainer_operator.demo.verify import (
    Reference,
    accurate,
    charged,
    complete,
    explained_repeats,
    finished,
    kept_others,
    kept_pace,
    monotone,
    single_leader,
    survived,
    unbroken,
    verify,
)
from trainer_operator.devcluster.auditlog import parse

SAMPLES, TOTAL = 35, 40  # of the recording: ten epochs of four steps
REFERENCE = Reference(accuracy=0.975, steps=TOTAL)


def row(disturbance, **changes):
    values = {
        "kind": disturbance.kind,
        "title": disturbance.title,
        "target": "it",
        "victims": ("worker-1",),
        "survived": True,
        "detected": 0.3,
        "next_step": 2.0,
        "longest_gap": 0.2,
        "step_before": 10,
        "step_after": 10,
        "failures": disturbance.failures,
        "disruptions": disturbance.disruptions,
        "restarted": ("worker-1",),
    }
    return Row(**{**values, **changes})


CHARGED = {"failures": sum(d.failures for d in PLAN), "disruptions": sum(d.disruptions for d in PLAN)}
ROWS = tuple(row(disturbance) for disturbance in PLAN)


def with_one(kind_position, **changes):
    return [row(d, **changes) if n == kind_position else row(d) for n, d in enumerate(PLAN)]


def test_a_good_training_meets_every_expectation(recording):
    recording.apply(TOTAL).tell(phase="Succeeded", step=TOTAL, accuracy=0.9722, **CHARGED)
    checks = verify(recording.timeline, ROWS, REFERENCE)
    assert [check for check in checks if not check.holds] == []


def test_nothing_seen_meets_no_expectation_that_needs_something():
    checks = verify(Timeline(), (), None)
    assert sum(not check.holds for check in checks) >= 5


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({"phase": "Succeeded", "step": TOTAL}, True),
        ({"phase": "Succeeded", "step": TOTAL - 1}, False),
        ({"phase": "Failed", "step": TOTAL, "message": "why"}, False),
        ({"phase": "Running", "step": TOTAL}, False),
    ],
)
def test_success_at_the_last_step_is_expected(recording, change, holds):
    assert finished(recording.tell(**change).timeline, REFERENCE).holds is holds


@pytest.mark.parametrize(
    ("accuracy", "reference", "holds"),
    [
        (0.975, 0.975, True),
        (0.971, 0.975, True),
        (0.969, 0.975, False),
        (0.981, 0.975, False),
        (0.949, 0.949, False),
        (None, 0.975, False),
    ],
)
def test_accuracy_is_that_of_the_undisturbed_run(recording, accuracy, reference, holds):
    recording.tell(accuracy=accuracy)
    assert accurate(recording.timeline, Reference(reference, TOTAL)).holds is holds


def test_a_disturbance_that_was_not_tried_or_not_survived_is_told():
    assert survived(ROWS, PLAN).holds
    assert not survived(ROWS[:-1], PLAN).holds
    failed = survived(with_one(0, survived=False), PLAN)
    assert not failed.holds
    assert PLAN[0].title in failed.found


@pytest.mark.parametrize("position", range(len(PLAN)))
def test_a_wrong_charge_is_told(recording, position):
    """RC1, RC3."""
    recording.tell(**CHARGED)
    assert charged(recording.timeline, ROWS, PLAN).holds
    rows = with_one(position, failures=PLAN[position].failures + 1)
    wrong = charged(recording.tell(failures=CHARGED["failures"] + 1).timeline, rows, PLAN)
    assert not wrong.holds
    assert PLAN[position].title in wrong.found


def test_a_charge_that_no_disturbance_explains_is_told(recording):
    recording.tell(failures=CHARGED["failures"], disruptions=CHARGED["disruptions"] + 1)
    assert not charged(recording.timeline, ROWS, PLAN).holds


def test_a_worker_that_ends_because_of_the_server_is_told():
    """PSR2."""
    position = next(n for n, d in enumerate(PLAN) if d.kind == "kill-server")
    assert kept_others(with_one(position, victims=("ps-0",), restarted=("ps-0",)), PLAN).holds
    wrong = kept_others(with_one(position, victims=("ps-0",), restarted=("ps-0", "worker-1")), PLAN)
    assert not wrong.holds
    assert "worker-1 restarted" in wrong.found


def test_scaling_may_restart_everybody():
    position = next(n for n, d in enumerate(PLAN) if d.kind == "scale-up")
    assert kept_others(with_one(position, victims=(), restarted=("ps-0", "worker-1")), PLAN).holds


def test_training_must_not_wait_for_a_leader():
    """AG8."""
    position = next(n for n, d in enumerate(PLAN) if d.keeps_pace)
    assert kept_pace(ROWS, PLAN).holds
    assert not kept_pace(with_one(position, longest_gap=12.0), PLAN).holds
    assert not kept_pace(ROWS[:position], PLAN).holds


def test_the_step_falls_only_by_recorded_rollbacks(recording):
    """ME7."""
    recording.tell(step=30).tell(step=20, rollbacks=1, rollback=(30, 20)).tell(step=25)
    assert monotone(recording.timeline).holds
    assert not monotone(recording.tell(step=24).timeline).holds


def test_repeated_steps_need_a_recorded_rollback_that_covers_them(recording):
    """ME7, ME8."""
    recording.apply(30).roll_back(20).apply(20)
    assert explained_repeats(recording.timeline).holds
    recording.step = 35
    assert not explained_repeats(recording.apply(1).timeline).holds


def test_a_rollback_explains_one_setback_only(recording):
    recording.apply(30).roll_back(20).apply(10)
    recording.step = 20
    assert not explained_repeats(recording.apply(10).timeline).holds


def test_a_rollback_from_elsewhere_explains_nothing(recording):
    recording.apply(30).tell(step=10, rollbacks=1, rollback=(15, 10))
    recording.step = 10
    assert not explained_repeats(recording.apply(1).timeline).holds


def test_the_step_under_way_at_a_kill_may_come_again(recording):
    """Its push was never answered, so neither status nor any worker can know of it."""
    recording.apply(29).tell(step=20, rollbacks=1, rollback=(29, 20))
    recording.apply(1, members=("ps-0",))
    recording.step = 20
    assert explained_repeats(recording.apply(20).timeline).holds


def test_a_step_that_nobody_applied_is_told(recording):
    recording.apply(5)
    recording.step += 1
    assert not explained_repeats(recording.apply(5).timeline).holds
    assert not complete(recording.timeline, REFERENCE).holds


def test_workers_are_the_truth_where_no_server_is(recording):
    recording.apply(TOTAL, members=("worker-0", "worker-1"))
    assert complete(recording.timeline, REFERENCE).holds


def test_every_sample_counts_once_in_each_epoch(recording):
    """ME8."""
    recording.apply(TOTAL)
    found = complete(recording.timeline, REFERENCE)
    assert found.holds
    assert f"10 epochs of {SAMPLES} samples" in found.found


@pytest.mark.parametrize(
    ("step", "data_epoch", "first", "end"),
    [(3, 0, 10, 20), (4, 0, 30, 34), (5, 0, 0, 10), (5, 1, 5, 15), (TOTAL, 9, 30, 31)],
    ids=["samples twice", "epoch too short", "epoch not left", "samples left out", "last epoch too short"],
)
def test_a_batch_other_than_the_schedule_is_told(recording, step, data_epoch, first, end):
    recording.apply(TOTAL)
    recording.timeline.add(StepSeen(recording.now, "ps-0", 1, 1, step, data_epoch, first, end, 2))
    assert not complete(recording.timeline, REFERENCE).holds


def test_two_leaders_at_once_are_told(recording):
    """L2."""
    assert single_leader(recording.timeline).holds
    recording.timeline.add(LeadersSeen(9.0, ("operator-a", "operator-b")))
    found = single_leader(recording.timeline)
    assert not found.holds
    assert found.found == "operator-a and operator-b both led after 9.0 s"


@pytest.mark.parametrize(("code", "holds"), [(200, True), (403, False)])
def test_the_audit_log_breaks_no_invariant(code, holds):
    """TR41: a refused right is one of them."""
    line = f'{{"verb": "list", "user": {{"username": "us"}}, "responseStatus": {{"code": {code}}}}}'
    assert unbroken([parse(line.encode())], operator="us").holds is holds


def test_an_empty_audit_log_proves_nothing():
    assert not unbroken([], operator="us").holds
