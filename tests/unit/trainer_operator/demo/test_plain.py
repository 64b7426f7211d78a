"""Without a terminal: a line for everything that is new, and nothing twice."""

from dataclasses import replace
from io import StringIO

import pytest

from trainer_operator.demo.frame import Frame, SetupStep
from trainer_operator.demo.plain import PROGRESS_INTERVAL, Plain, lines, outcome
from trainer_operator.demo.timeline import EventSeen, StatusSeen

RUNNING = Frame(trainer="digits", status=StatusSeen(1.0, phase="Running"), step=5, epochs=50)


def test_a_set_up_step_is_told_when_it_is_done():
    begun = Frame(setup=(SetupStep("operators", 0.0),))
    done = Frame(setup=(SetupStep("operators", 0.0, 2.5, "operator-a leads"),))
    assert lines(Frame(), begun) == []
    assert lines(begun, done) == ["operators: 2.5 s  (operator-a leads)"]
    assert lines(done, done) == []


def test_a_change_of_phase_is_told():
    assert lines(Frame(), RUNNING) == ["trainer digits is Running at step 5"]
    later = replace(RUNNING, status=StatusSeen(2.0, phase="Running"), step=9)
    assert lines(RUNNING, later) == []


def test_an_event_is_told_once():
    event = EventSeen(1.0, True, "ProcessExited", "it ended")
    told = replace(RUNNING, events=(event,))
    assert lines(RUNNING, told) == ["event ProcessExited: it ended"]
    assert lines(told, told) == []


def test_nodes_leaders_and_activities_are_told_when_they_change():
    old = replace(RUNNING, nodes=(("node-0", True),), leader="operator-a")
    new = replace(RUNNING, nodes=(("node-0", False), ("node-1", True)), leader="operator-b", activity="scale")
    assert lines(old, new) == ["operator-b leads", "node-0 is not ready", "--- scale"]


def test_the_stream_gets_times_and_now_and_then_the_progress():
    stream = StringIO()
    plain = Plain(stream)
    for elapsed in (1.0, 2.0, 1.0 + PROGRESS_INTERVAL, 2.0 + PROGRESS_INTERVAL):
        plain.show(replace(RUNNING, elapsed=elapsed))
    assert stream.getvalue().splitlines() == [
        "   1.0 s  trainer digits is Running at step 5",
        "  11.0 s  step 5, epoch 0 of 50, Running",
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "survived: kill (it): noticed after 0.3 s, next training step after 2.0 s, from step 9 to 8"),
        ({"next_step": None, "detected": None}, "survived: kill (it): training did not pause"),
        ({"survived": False}, "NOT SURVIVED: kill (it)"),
    ],
)
def test_the_outcome_of_a_disturbance_is_a_sentence(row, changes, text):
    assert outcome(replace(row, **changes)) == text
