"""Thresholds of the step clock, on the synthetic step times of the design."""

import random

import pytest

from trainer_operator.topology.stepclock import MAX_FACTOR, NEEDED, StepClock

STEPS = 30_000


def step_times(kind, rng):
    for index in range(STEPS):
        base = rng.lognormvariate(0, 0.05)
        if kind == "spread":
            base = rng.lognormvariate(0, 0.3)
        elif kind == "two modes" and rng.random() < 0.15:
            base *= 3
        elif kind == "rare spikes" and rng.random() < 0.005:
            base *= rng.choice((5, 10, 20))
        elif kind == "heavy tail":
            base = 0.8 + 0.2 * rng.paretovariate(1.8)
        yield index, base


def false_alarms(kind, unit):
    """Count healthy steps that pass a threshold, per 100,000: soft, hard, twice hard."""
    clock, rng = StepClock(), random.Random(11)
    soft = hard = double = 0
    known = None
    for index, base in step_times(kind, rng):
        seconds = base * unit
        if known is None or index % 8 == 0:
            known = clock.thresholds
        if known is not None:
            soft += seconds > known.soft
            hard += seconds > known.hard
            double += seconds > 2 * known.hard
            if seconds > known.hard:
                clock.false_alarm()
                known = None
        clock.add([seconds])
    return [count * 100_000 / STEPS for count in (soft, hard, double)]


@pytest.mark.parametrize("unit", [0.5, 5, 30])
@pytest.mark.parametrize("kind", ["tight", "spread", "two modes"])
def test_regular_steps_raise_no_alarm(kind, unit):
    """SL2, LT5: 0 false actions on regular steps."""
    assert false_alarms(kind, unit) == [0, 0, 0]


@pytest.mark.parametrize("kind", ["rare spikes", "heavy tail"])
def test_irregular_steps_are_almost_never_acted_on(kind):
    """LT5: at most 5 of 100,000 where there is no evidence, which is at twice the hard threshold."""
    _, hard, double = false_alarms(kind, 5)
    assert double <= 5
    assert hard <= 30


def test_nothing_is_judged_before_sixteen_steps():
    """SL2."""
    clock = StepClock()
    clock.add([1.0] * (NEEDED - 1))
    assert (clock.thresholds, clock.median) == (None, None)
    clock.add([1.0])
    assert clock.median == 1.0


def test_fast_steps_have_floors_and_slow_ones_multiples():
    """SL2: soft 30 s or five steps, hard 60 s or twenty."""
    fast, slow = StepClock(), StepClock()
    fast.add([0.01] * 64)
    slow.add([10.0] * 64)
    assert (fast.thresholds.soft, fast.thresholds.hard) == (30, 60)
    assert (slow.thresholds.soft, slow.thresholds.hard) == (50, 200)


def test_a_long_step_is_remembered_for_512_steps():
    """SL2: an evaluation that nobody declared is an alarm once, not again and again."""
    clock = StepClock()
    clock.add([1.0] * 64)
    clock.add([100.0])
    assert clock.thresholds.hard == 200
    clock.add([1.0] * 511)
    assert clock.thresholds.hard == 200
    clock.add([1.0])
    assert clock.thresholds.hard == 60


def test_false_alarms_double_the_threshold_and_calm_halves_it():
    """SL2: at most eight times; back after 2,000 clean steps."""
    clock = StepClock()
    clock.add([1.0] * 64)
    for _ in range(5):
        clock.false_alarm()
    assert clock.thresholds.hard == 60 * MAX_FACTOR
    clock.add([1.0] * 2001)
    assert clock.thresholds.hard == 60 * MAX_FACTOR / 2
