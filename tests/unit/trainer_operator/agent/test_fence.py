"""The self-fence: when a training pauses by itself, and when it goes on."""

import random

import pytest

from trainer_operator.agent.fence import Fence
from trainer_operator.agent.state import State


class Cut:
    """An agent whose ways to the operator and the API server can be cut, on a clock that stands still."""

    def __init__(self):
        self.now = 0.0
        self.api = True
        self.asked = 0
        self.done = []
        self.during_question = None
        self.state = State(lambda: self.now)
        self.start(epoch=3)
        self.fence = Fence(
            self.state,
            lost_after=10.0,
            reaches_api=self.reaches,
            pause=lambda: self.done.append("pause"),
            resume=lambda: self.done.append("resume"),
            log=lambda text: None,
            clock=lambda: self.now,
            rng=random.Random(1),
        )
        self.fence.heard(3, 2.0)

    def start(self, epoch):
        self.state.prepare(epoch, 1)
        self.state.spawn(epoch, 0, step=0)
        self.state.spawned(42)

    def reaches(self):
        self.asked += 1
        if self.during_question is not None:
            self.during_question()
        return self.api

    def pass_time(self, seconds):
        for _ in range(seconds):
            self.now += 1.0
            self.fence.look()


@pytest.fixture
def cut():
    made = Cut()
    made.pass_time(1)
    assert made.asked == 1
    return made


def test_cut_off_from_everybody_it_pauses_once_after_three_windows(cut):
    """AG8, ND5."""
    cut.api = False
    cut.pass_time(29)
    assert cut.done == []
    cut.pass_time(200)
    assert cut.done == ["pause"]


def test_the_operator_down_alone_changes_nothing(cut):
    """AG8: and the API server is asked once in three windows at most, by thousands of agents."""
    cut.pass_time(300)
    assert cut.done == []
    assert 10 <= cut.asked <= 20


def test_the_api_server_down_alone_changes_nothing(cut):
    """AG8: nor is it asked while the operator answers."""
    cut.api = False
    for _ in range(30):
        cut.pass_time(10)
        cut.fence.heard(3, 2.0)
    assert (cut.done, cut.asked) == ([], 1)


def test_the_window_follows_the_heartbeat(cut):
    """DT3: 3 hb, with ten thousand agents 20 s."""
    cut.fence.heard(3, 6.7)
    cut.api = False
    cut.pass_time(60)
    assert cut.done == []
    cut.pass_time(2)
    assert cut.done == ["pause"]


def test_heard_again_in_the_same_epoch_it_goes_on(cut):
    """AG8, DT5."""
    cut.api = False
    cut.pass_time(40)
    cut.fence.heard(3, 2.0)
    assert cut.done == ["pause", "resume"]
    cut.fence.heard(3, 2.0)
    cut.pass_time(100)
    assert cut.done == ["pause", "resume", "pause"]


@pytest.mark.parametrize("epoch", [4, 0], ids=["moved on", "a leader that does not know it yet"])
def test_heard_in_another_epoch_it_stays_paused(cut, epoch):
    """AG8, DT5: what happens then is up to the operator's orders."""
    cut.api = False
    cut.pass_time(40)
    cut.fence.heard(epoch, 2.0)
    assert cut.done == ["pause"]


def test_a_process_of_the_next_epoch_is_not_told_to_go_on_nor_kept_from_pausing(cut):
    """AG8: its pauses are the operator's."""
    cut.api = False
    cut.pass_time(40)
    cut.start(epoch=4)
    cut.fence.heard(4, 2.0)
    assert cut.done == ["pause"]
    cut.pass_time(100)
    assert cut.done == ["pause", "pause"]


def test_a_word_that_comes_while_the_api_server_is_asked_counts(cut):
    """AG8."""
    cut.api = False
    cut.during_question = lambda: cut.fence.heard(3, 2.0)
    cut.pass_time(40)
    assert cut.asked > 1
    assert cut.done == []


def test_a_training_that_the_operator_paused_is_left_alone(cut):
    """AG8: it would otherwise go on without the operator's word."""
    cut.state.entered("paused")
    cut.api = False
    cut.pass_time(100)
    cut.fence.heard(3, 2.0)
    assert cut.done == []


def test_without_a_process_nothing_is_asked(cut):
    """AG8."""
    cut.state.exited(0, 0, fingerprint=None, tail="")
    cut.api = False
    cut.pass_time(300)
    assert (cut.done, cut.asked) == ([], 1)


def test_a_pod_that_could_never_reach_the_api_server_does_not_pause():
    """AG8: with a network policy that forbids it, the operator's end alone would look like a partition."""
    cut = Cut()
    cut.api = False
    cut.pass_time(300)
    assert cut.asked > 5
    assert cut.done == []
