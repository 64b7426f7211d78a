"""Waiting times."""

import random

from runtime.backoff import Backoff


class Fixed:
    def __init__(self, value):
        self.value = value

    def random(self):
        return self.value


def test_delays_double_up_to_the_cap():
    """W10."""
    backoff = Backoff(rng=Fixed(0.0))
    assert [backoff.next(0.0) for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]


def test_jitter_at_most_doubles_a_delay():
    """W10."""
    backoff = Backoff(rng=random.Random(1))
    for expected in (0.8, 1.6, 3.2, 6.4):
        assert expected <= backoff.next(0.0) < 2 * expected


def test_two_minutes_of_health_start_afresh_and_less_does_not():
    """W10, RT3: the wait itself does not count as health."""
    backoff = Backoff(rng=Fixed(0.0), jitter=0.0)
    backoff.next(0.0)
    assert backoff.next(0.8 + 119.0) == 1.6
    assert backoff.next(0.8 + 119.0 + 1.6 + 121.0) == 0.8


def test_reset_forgets_at_once():
    """W10."""
    backoff = Backoff(rng=Fixed(0.0))
    backoff.next(0.0)
    backoff.reset()
    assert backoff.next(1.0) == 0.8


def test_a_base_above_the_cap_is_capped():
    """W10."""
    assert Backoff(base=5.0, cap=2.0, jitter=0.0).next(0.0) == 2.0
