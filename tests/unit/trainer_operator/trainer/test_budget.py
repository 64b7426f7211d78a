"""Budgets: delays of restarts, what is charged to which counter, and what ends a Trainer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.views import OTHER, WORKER
from trainer_operator.api.profile import EffectiveRetryPolicy, RestartPolicy
from trainer_operator.api.trainer import FailureRule
from trainer_operator.trainer.budget import Charge, charge, first_match, pattern_fault, restart_delay
from trainer_operator.trainer.failures import Failure, FailureClass

POLICY = EffectiveRetryPolicy(backoff_limit=2)


def failed(kind=FailureClass.APP, *, member=WORKER, reason="ProcessExited", message="", exit_code=1):
    return Failure(member, "0/b/0", kind, reason, message, pod_gone=False, exit_code=exit_code)


def disrupted(**changes):
    return failed(FailureClass.DISRUPTION, reason="Lost", exit_code=None, **changes)


def rule(action, **criteria):
    return FailureRule.read({"action": action, **criteria})


def cost(*group, policy=POLICY, rules=(), failures=0, disruptions=0):
    return charge(list(group), policy, rules, failures=failures, disruptions=disruptions)


# -- delays


@pytest.mark.parametrize(
    ("number", "least", "most"),
    [
        (1, 0, 0),
        (2, 1, 2),
        (3, 2, 4),
        (4, 4, 8),
        (5, 8, 16),
        (6, 16, 32),
        (7, 32, 64),
        (8, 64, 128),
        (9, 128, 256),
        (10, 150, 300),
        (11, 150, 300),
        (1000, 150, 300),
    ],
)
def test_a_restart_waits_within_these_bounds(number, least, most):
    """RC1, LT9: U(d/2, d) with d = min(300, 2 * 2^(n-2)); the first at once."""
    assert restart_delay(number, POLICY, chance=0.0) == least
    assert restart_delay(number, POLICY, chance=1.0) == most


@pytest.mark.parametrize(("number", "most"), [(2, 10), (3, 20), (4, 30), (5, 30)])
def test_base_and_cap_are_the_policys(number, most):
    """RC1."""
    policy = EffectiveRetryPolicy(base_seconds=10, cap_seconds=30)
    assert restart_delay(number, policy, chance=1.0) == most


@given(
    st.integers(0, 10_000),
    st.integers(1, 86_400),
    st.integers(1, 86_400),
    st.floats(0, 1, exclude_max=True),
)
def test_no_restart_waits_longer_than_the_cap_or_shorter_than_the_one_before_could(number, base, cap, chance):
    """RC1."""
    policy = EffectiveRetryPolicy(base_seconds=min(base, cap), cap_seconds=cap)
    delay = restart_delay(number, policy, chance=chance)
    assert 0 <= delay <= cap
    assert restart_delay(number + 1, policy, chance=1.0) >= delay


# -- counts


@pytest.mark.parametrize("kind", [FailureClass.APP, FailureClass.OOM])
def test_failures_of_the_training_itself_use_up_the_backoff_limit(kind):
    """RC3, TR01: the failure that makes the count exceed the limit ends it."""
    assert [cost(failed(kind), failures=before).fail_reason for before in (0, 1, 2)] == [
        None,
        None,
        "BackoffLimitExceeded",
    ]


def test_with_limit_zero_the_first_failure_ends_it():
    """RC3."""
    assert cost(failed(), policy=EffectiveRetryPolicy(backoff_limit=0)).fail_reason == "BackoffLimitExceeded"


def test_disruptions_leave_the_backoff_limit_alone():
    """RC3, FT18, TR11."""
    assert cost(disrupted(), failures=2, disruptions=1000) == Charge(disruptions=1)


@pytest.mark.parametrize(("before", "ends"), [(0, False), (4, False), (5, True)])
def test_disruptions_end_it_only_beyond_their_own_limit(before, ends):
    """RC3, FT18: with a reason of its own."""
    charged = cost(disrupted(), policy=EffectiveRetryPolicy(max_disruptions=5), disruptions=before)
    assert charged.disruptions == 1
    assert (charged.fail_reason == "MaxDisruptionsExceeded") is ends


def test_failures_seen_together_are_one_count():
    """RC1: 1,000 crashed ranks are one."""
    assert cost(*[failed() for _ in range(1000)]) == Charge(failures=1)
    assert cost(*[disrupted() for _ in range(1000)]) == Charge(disruptions=1)


def test_a_group_with_a_failure_in_it_is_a_failure():
    """RC3."""
    assert cost(disrupted(), failed(member=OTHER)) == Charge(failures=1)


def test_the_message_says_how_many_there_were():
    message = cost(failed(message="exit code 1"), failures=2).fail_message
    assert message == "3 failures, backoffLimit is 2: exit code 1"


# -- restart policies


@pytest.mark.parametrize(
    ("policy", "exit_code", "reason"),
    [
        (RestartPolicy.ON_FAILURE, 1, None),
        (RestartPolicy.ON_FAILURE, 137, None),
        (RestartPolicy.ALWAYS, 1, None),
        (RestartPolicy.NEVER, 1, "RestartPolicyNever"),
        (RestartPolicy.NEVER, 137, "RestartPolicyNever"),
        (RestartPolicy.EXIT_CODE, 1, "PermanentExitCode"),
        (RestartPolicy.EXIT_CODE, 128, "PermanentExitCode"),
        (RestartPolicy.EXIT_CODE, 129, None),
        (RestartPolicy.EXIT_CODE, 137, None),
        (RestartPolicy.EXIT_CODE, None, None),
    ],
)
def test_the_restart_policy_decides_which_exits_are_retried(policy, exit_code, reason):
    """RC7, TR02."""
    charged = cost(failed(exit_code=exit_code), policy=EffectiveRetryPolicy(restart_policy=policy))
    assert (charged.failures, charged.fail_reason) == (1, reason)


@pytest.mark.parametrize("policy", list(RestartPolicy))
def test_no_restart_policy_ends_a_trainer_for_a_disruption(policy):
    """RC3, RC7, TR11."""
    assert cost(disrupted(), policy=EffectiveRetryPolicy(restart_policy=policy)) == Charge(disruptions=1)


def test_what_cannot_be_executed_is_not_retried():
    """DT2."""
    assert cost(failed(FailureClass.CONFIG)).fail_reason == "CannotExecute"


def test_one_permanent_exit_among_others_ends_it():
    """RC7."""
    policy = EffectiveRetryPolicy(restart_policy=RestartPolicy.EXIT_CODE)
    assert cost(failed(exit_code=137), failed(exit_code=2), policy=policy).fail_reason == "PermanentExitCode"


# -- rules


@pytest.mark.parametrize(
    ("criteria", "matches"),
    [
        ({"role": "worker"}, True),
        ({"role": "ps"}, False),
        ({"exitCodes": [3, 1]}, True),
        ({"exitCodes": [3]}, False),
        ({"reason": "ProcessExited"}, True),
        ({"reason": "Process"}, False),
        ({"messagePattern": "CUDA.*memory"}, True),
        ({"messagePattern": "^memory"}, False),
        ({"role": "worker", "exitCodes": [3]}, False),
        ({"role": "worker", "exitCodes": [1], "reason": "ProcessExited", "messagePattern": "CUDA"}, True),
    ],
)
def test_a_rule_matches_when_all_its_criteria_do(criteria, matches):
    """DT2."""
    one = rule("Ignore", **criteria)
    assert (first_match([one], failed(message="CUDA out of memory")) is one) is matches


def test_a_rule_whose_pattern_is_none_never_matches_and_is_named():
    """DT2, TR30: recovery does not stop for it."""
    broken, good = rule("FailTrainer", messagePattern="("), rule("Ignore", messagePattern="CUDA")
    assert first_match([broken, good], failed(message="CUDA out of memory")) is good
    assert pattern_fault([good]) == ""
    assert pattern_fault([good, broken]).startswith(
        "spec.failureRules[1].messagePattern '(' is no regular expression: missing )"
    )


def test_the_first_rule_that_matches_decides():
    """DT2."""
    ignore, fail = rule("Ignore", role="worker"), rule("FailTrainer", role="worker")
    assert cost(failed(), rules=[ignore, fail]) == Charge()
    assert cost(failed(), rules=[fail, ignore]).fail_reason == "FailureRule"


def test_a_rule_may_end_the_trainer_for_a_disruption():
    """DT2."""
    assert cost(disrupted(), rules=[rule("FailTrainer", reason="Lost")]).fail_reason == "FailureRule"


def test_an_ignored_failure_costs_nothing_beyond_any_limit():
    """DT2."""
    assert cost(failed(), rules=[rule("Ignore", exitCodes=[1])], failures=99) == Charge()


def test_an_ignored_disruption_costs_nothing_either():
    """DT2."""
    policy = EffectiveRetryPolicy(max_disruptions=0)
    assert cost(disrupted(), policy=policy, rules=[rule("Ignore", reason="Lost")]) == Charge()


def test_ignoring_one_failure_leaves_the_others_of_its_group():
    """DT2."""
    rules = [rule("Ignore", exitCodes=[1])]
    assert cost(failed(), failed(exit_code=2, member=OTHER), rules=rules) == Charge(failures=1)
    assert cost(failed(), disrupted(member=OTHER), rules=rules) == Charge(disruptions=1)


@pytest.mark.parametrize("policy", [RestartPolicy.NEVER, RestartPolicy.EXIT_CODE])
def test_a_rule_that_restarts_comes_before_the_restart_policy(policy):
    """DT2: rules come first; the failure still counts."""
    effective = EffectiveRetryPolicy(backoff_limit=1, restart_policy=policy)
    rules = [rule("RestartMember", exitCodes=[1])]
    assert cost(failed(), policy=effective, rules=rules) == Charge(failures=1)
    assert cost(failed(exit_code=2), policy=effective, rules=rules).fail_reason is not None
    assert cost(failed(), policy=effective, rules=rules, failures=1).fail_reason == "BackoffLimitExceeded"
