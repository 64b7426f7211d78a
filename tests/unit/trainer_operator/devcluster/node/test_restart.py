"""Restart policy and crash-loop backoff."""

import pytest

from trainer_operator.devcluster.node.restart import CrashBackoff, should_restart


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [("Always", True, True), ("OnFailure", False, True), ("Never", False, False)],
)
def test_policy_decides(policy, after_success, after_failure):
    assert should_restart(policy, 0) is after_success
    assert should_restart(policy, 1) is after_failure


def test_first_restart_is_immediate_then_waits_double_up_to_five_minutes():
    backoff, now, waits = CrashBackoff(), 0.0, []
    for _ in range(8):
        waits.append(backoff.remaining(now, now=now))
        now += waits[-1]
        backoff = backoff.restarted(now - waits[-1], now=now)
        now += 1.0
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]


def test_wait_counts_from_the_end_of_the_run():
    backoff = CrashBackoff().restarted(0.0, now=0.0)
    assert backoff.remaining(5.0, now=9.0) == 6.0
    assert backoff.remaining(5.0, now=99.0) == 0.0


def test_long_run_begins_anew():
    backoff = CrashBackoff(300.0, 0.0)
    assert backoff.remaining(600.0, now=600.0) == 300.0
    assert backoff.remaining(601.0, now=601.0) == 0.0
    assert backoff.restarted(601.0, now=601.0).delay == 10.0
