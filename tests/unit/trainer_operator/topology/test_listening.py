"""Silence in which we could not listen ourselves, and silence of everybody."""

import pytest

from runtime.testing.clock import SimClock
from simulation.views import beat
from trainer_operator.topology.listening import PERIOD, Listening
from trainer_operator.topology.members import MemberId, Members

UID = "uid-t"


@pytest.fixture
def clock():
    return SimClock()


def heard(clock, count, *, uid=UID):
    members = Members(clock)
    for index in range(count):
        assert members.accept(beat(MemberId("worker", index), tuid=uid))
    return members


class Late:
    """A clock whose sleeps take longer than they should, once."""

    def __init__(self, clock, late):
        self._clock, self._late = clock, late
        self.monotonic = clock.monotonic

    async def sleep(self, seconds):
        if self._late is None:
            raise InterruptedError
        self._clock.advance(seconds + self._late)
        self._late = None


@pytest.mark.parametrize(("late", "age"), [(20.0, PERIOD), (0.5, 1.0)])
async def test_a_time_in_which_the_loop_stood_still_is_forgiven(clock, late, age):
    """TX5: a lag of more than half a heartbeat moves all deadlines; a smaller one is noise."""
    members = heard(clock, 2)
    with pytest.raises(InterruptedError):
        await Listening(members, clock=Late(clock, late)).run()
    assert members.view(UID)[MemberId("worker", 0)].age == pytest.approx(age)


@pytest.mark.parametrize(
    ("agents", "silent", "ours"),
    [
        (10, 3, False),
        (10, 4, True),
        (20, 6, False),
        (20, 7, True),
        (2, 2, True),
        (2, 1, False),
        (1, 1, False),
    ],
)
def test_silence_of_many_at_once_is_held_to_be_our_own_fault(clock, agents, silent, ours):
    """DT4: all, or more than three and 30 %."""
    members = heard(clock, agents)
    clock.advance(20)
    for index in range(silent, agents):
        members.accept(beat(MemberId("worker", index), seq=2))
    assert members.mass_silence(10.0) is ours


def test_trainings_that_are_over_say_nothing_about_us(clock):
    """DT4."""
    members = heard(clock, 8, uid="over")
    members.close("over")
    members.accept(beat(MemberId("worker", 0)))
    members.accept(beat(MemberId("worker", 1)))
    clock.advance(20)
    members.accept(beat(MemberId("worker", 0), seq=2))
    assert not members.mass_silence(10.0)
