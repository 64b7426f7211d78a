"""What people are told of a change, and how much it matters."""

from datetime import UTC, datetime

import pytest

from trainer_operator.api.meta import Condition
from trainer_operator.api.status import MembershipStatus, Phase, RecoveryStatus, TrainerStatus
from trainer_operator.notify.triggers import Severity, Trigger, happenings


def status(phase, *, restarts=0, epoch=1, **more):
    return TrainerStatus(phase=phase, restarts=restarts, membership=MembershipStatus(epoch=epoch), **more)


@pytest.mark.parametrize(
    ("before", "after", "trigger", "severity"),
    [
        (Phase.STARTING, Phase.RUNNING, Trigger.RUNNING, Severity.Info),
        (Phase.RECOVERING, Phase.RUNNING, Trigger.RECOVERED, Severity.Info),
        (Phase.RUNNING, Phase.RECOVERING, Trigger.RECOVERING, Severity.Warning),
        (Phase.RUNNING, Phase.SUSPENDED, Trigger.SUSPENDED, Severity.Info),
        (Phase.RUNNING, Phase.SUCCEEDED, Trigger.SUCCEEDED, Severity.Info),
        (Phase.RECOVERING, Phase.FAILED, Trigger.FAILED, Severity.Critical),
    ],
)
def test_a_change_of_phase_is_told_with_its_severity(before, after, trigger, severity):
    """NT1."""
    (found,) = happenings(status(before), status(after), generation=1)
    assert (found.trigger, found.trigger.severity) == (trigger, severity)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_status_that_stays_as_it_is_tells_nothing(phase):
    """NT3: one message per transition."""
    assert happenings(status(phase), status(phase), generation=1) == []


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.STARTING, Phase.SCALING])
def test_what_is_on_its_way_is_not_told(phase):
    assert happenings(status(Phase.RUNNING), status(phase), generation=1) == []


def test_a_failure_says_why_budget_included():
    after = status(Phase.FAILED, reason="BackoffLimitExceeded", message="6 failures")
    (found,) = happenings(status(Phase.RECOVERING), after, generation=1)
    assert found.text == "BackoffLimitExceeded: 6 failures"


def test_a_recovery_says_what_failed():
    after = status(Phase.RECOVERING, recovery=RecoveryStatus(message="worker-1 was killed by signal 9"))
    (found,) = happenings(status(Phase.RUNNING), after, generation=1)
    assert found.text == "worker-1 was killed by signal 9"


def test_the_same_transition_a_second_time_and_of_another_generation_has_another_name():
    """NT3: the key is stable, and different for what is different."""
    names = {
        happenings(status(Phase.RUNNING), status(Phase.RECOVERING, **more), generation=generation)[
            0
        ].transition
        for more, generation in [
            ({}, 1),
            ({}, 1),
            ({"restarts": 1}, 1),
            ({"epoch": 2}, 1),
            ({}, 2),
        ]
    }
    assert len(names) == 4


def test_events_of_the_operator_that_people_should_know_are_told_and_others_are_not():
    events = [
        ("StallDetected", "worker-0 stands"),
        ("EpochStarted", "epoch 2"),
        ("StackDump", "secret things"),
    ]
    found = happenings(status(Phase.RUNNING), status(Phase.RUNNING), generation=1, events=events)
    assert [(each.trigger, each.text) for each in found] == [
        (Trigger.STALLED, "StallDetected: worker-0 stands")
    ]


def test_checkpoints_that_fail_are_told_when_that_begins_and_not_while_it_lasts():
    row = Condition(
        type="CheckpointHealthy",
        status="False",
        reason="AttemptsFail",
        message="three",
        last_transition_time=datetime(2026, 1, 1, tzinfo=UTC),
    )
    ill, well = status(Phase.RUNNING, conditions=(row,)), status(Phase.RUNNING)
    assert [each.trigger for each in happenings(well, ill, generation=1)] == [Trigger.CHECKPOINTS_FAIL]
    assert happenings(ill, ill, generation=1) == []
