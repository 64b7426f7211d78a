"""At which step to save: ahead of every holder, and not by much."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.views import OTHER, WORKER, agent
from trainer_operator.checkpoint.target import choose_target, median_step


@pytest.mark.parametrize(
    ("durations", "seconds"),
    [
        ([], 0.1),
        ([100.0], 0.1),
        ([10, 20, 30], 0.02),
        ([10, 1000, 20], 0.02),
        ([0, 0], 0.1),
        ([0, 40], 0.04),
        ([1e-9], 1e-4),
    ],
)
def test_the_median_of_the_last_steps_is_what_one_takes(durations, seconds):
    """CS2."""
    assert median_step(agent(dt_ms=[float(d) for d in durations])) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("age", "tries", "target"), [(0.0, 0, 106), (1.0, 0, 116), (0.0, 1, 111), (0.0, 3, 141)]
)
def test_the_target_leaves_room_for_the_beat_on_its_way_and_more_after_each_miss(age, tries, target):
    """CS2: step + (age + 0.5 s * 2^tries) / 0.1 s + 1."""
    assert choose_target([agent(step=100, age=age, dt_ms=[100.0])], tries=tries) == target


def test_the_target_is_ahead_of_the_fastest_holder():
    """CS2."""
    agents = [agent(WORKER, step=100, dt_ms=[100.0]), agent(OTHER, step=200, dt_ms=[100.0])]
    assert choose_target(agents, tries=0) > 200


def test_the_target_is_above_what_was_committed_before():
    """CS1, IV5."""
    assert choose_target([agent(step=10, dt_ms=[100.0])], tries=0, at_least=5000) == 5000


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.floats(0, 60), st.lists(st.floats(0, 1e5), max_size=16)),
        max_size=5,
    ),
    st.integers(0, 4),
    st.integers(0, 10**9),
)
def test_every_holder_is_before_the_target(told, tries, at_least):
    """CS2, IV5."""
    agents = [agent(step=step, age=age, dt_ms=durations) for step, age, durations in told]
    target = choose_target(agents, tries=tries, at_least=at_least)
    assert target >= at_least
    assert all(target > one.beat.step for one in agents)
    assert choose_target(agents, tries=tries + 1, at_least=at_least) >= target
