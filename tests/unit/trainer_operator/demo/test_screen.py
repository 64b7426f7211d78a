"""The screen holds what matters at every size, and the terminal is left as it was."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from trainer_operator.demo.disturbances import PLAN
from trainer_operator.demo.frame import Frame, SetupStep, compose
from trainer_operator.demo.measures import Row
from trainer_operator.demo.screen import Screen, render
from trainer_operator.demo.timeline import CheckpointSeen, EventSeen
from trainer_operator.demo.verify import Check, Reference

ROW = Row(
    kind=PLAN[1].kind,
    title=PLAN[1].title,
    target="ps-0, pid 4711",
    victims=("ps-0",),
    survived=True,
    detected=0.31,
    next_step=3.42,
    longest_gap=3.4,
    step_before=90,
    step_after=80,
    failures=1,
    disruptions=0,
    restarted=("ps-0",),
)


@pytest.fixture
def frame(recording):
    recording.apply(30).tell(ready_workers="2/2", ready_servers="1/1", accuracy=0.9722, data_epochs=7)
    recording.timeline.add(CheckpointSeen(1.0, "digits-c1", 25, "Committed", "Interval"))
    recording.timeline.extend(
        EventSeen(float(n), n == 1, f"Reason{n}", "a long message " * 20) for n in range(5)
    )
    return compose(
        recording.timeline,
        now=83.0,
        activity="kill -9 the parameter server",
        trainer="digits",
        epochs=50,
        leader="operator-a",
        rows=[ROW],
        planned=7,
        reference=Reference(0.97, 1150),
    )


def text_of(renderable, *, width=120):
    console = Console(file=StringIO(), width=width, force_terminal=False, color_system=None)
    console.print(renderable)
    return console.file.getvalue()


def test_everything_is_there_on_a_large_terminal(frame):
    text = text_of(render(frame, width=120, height=42))
    for part in (
        "1:23",
        "● Running",
        "step 30 of 1150",
        "epoch 7/50",
        "97.2%",
        "workers 2/2",
        "operator-a",
        "digits-ps-0",
        "node-2",
        "Committed",
        "Reason4",
        "now  kill -9 the parameter server",
        "ps-0, pid 4711",
        "0.3 s",
        "3.4 s",
        "90 → 80",
        "1 failure",
    ):
        assert part in text, part


@pytest.mark.parametrize(("width", "height"), [(120, 42), (80, 24), (60, 20), (200, 60)])
def test_no_line_is_wider_and_the_screen_no_higher_than_the_terminal(frame, width, height):
    lines = text_of(render(frame, width=width, height=height), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    assert "digits" in lines[1]


def test_the_disturbances_stay_on_a_small_terminal(frame):
    text = text_of(render(frame, width=80, height=24), width=80)
    assert "kill -9 the parameter server" in text
    assert "90 → 80" in text
    assert "Reason4" not in text


def test_before_there_is_a_trainer_the_set_up_is_shown():
    steps = (SetupStep("Kubernetes", 0.0, 5.0, "4 nodes"), SetupStep("operators", 5.0))
    text = text_of(render(Frame(elapsed=7.5, setup=steps), width=100, height=30))
    assert "✓ Kubernetes  4 nodes" in text
    assert "5.0 s" in text
    assert "… operators" in text
    assert "2.5 s" in text


def test_no_leader_is_told(frame):
    assert "leader none" in text_of(render(replace(frame, leader=""), width=120, height=42))


def test_expectations_take_the_place_of_events_at_the_end(frame):
    checks = (Check("it trains", True, "it did"), Check("it is quick", False, "it was not"))
    text = text_of(render(replace(frame, checks=checks), width=120, height=42))
    assert "✓  it trains" in text
    assert "✗  it is quick" in text
    assert "Reason4" not in text


def test_the_terminal_is_left_as_it_was(frame):
    console = Console(file=StringIO(), width=120, height=42, force_terminal=True)
    with Screen(console) as screen:
        screen.show(frame)
    text = console.file.getvalue()
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
