"""Patience with a hub, on a clock that only waiting moves."""

import random

import pytest

from trainer_operator.agent.hub.errors import HubThrottled, HubUnreachable
from trainer_operator.agent.hub.patience import LIMIT, Patience


class Time:
    def __init__(self):
        self.now, self.waits = 0.0, []

    def wait(self, seconds):
        self.now += seconds
        self.waits.append(seconds)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def patience(time):
    return Patience(clock=lambda: time.now, pause=time.wait, rng=random.Random(1))


def wait_out(patience):
    def fails():
        raise HubUnreachable("no answer")

    with pytest.raises(HubUnreachable, match="no answer"):
        patience.call(fails)


def test_pauses_grow_and_end_when_nothing_came_for_long_enough(time, patience):
    """HF5."""
    wait_out(patience)
    assert LIMIT <= time.now <= LIMIT + 15
    assert time.waits[0] <= 0.5
    assert max(time.waits) <= 15
    assert len(time.waits) < 30


def test_progress_begins_a_new_count(time, patience):
    """EC9: a slow hub is not a dead one."""
    for _ in range(50):
        patience.wait(HubUnreachable("cut"))
        patience.progressed()
    assert max(time.waits) <= 0.5
    assert time.now < LIMIT
    time.waits.clear()
    wait_out(patience)
    assert sum(time.waits) >= LIMIT


def test_a_hub_that_names_a_time_is_left_alone_for_it(time, patience):
    """HF5: 429 with Retry-After."""
    answers = [HubThrottled("slower", pause=30.0), HubThrottled("slower", pause=1e9)]

    def ask():
        if answers:
            raise answers.pop(0)
        return "answer"

    assert patience.call(ask) == "answer"
    assert time.waits == [30.0, LIMIT]
