"""Budgets: what a failure costs, whether it ends the Trainer, and how long the restart waits (RC1 to RC7)."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer_operator.api import pattern
from trainer_operator.api.profile import EffectiveRetryPolicy, RestartPolicy
from trainer_operator.api.trainer import FailureAction, FailureRule
from trainer_operator.trainer.failures import Failure, FailureClass


@dataclass(frozen=True, slots=True)
class Charge:
    """What one group of failures adds to the counters, and whether the Trainer fails for it."""

    failures: int = 0
    disruptions: int = 0
    fail_reason: str | None = None
    fail_message: str = ""
    restart_all: bool = False
    """Whether a rule asks for a restart of every member."""


def charge(
    group: list[Failure],
    policy: EffectiveRetryPolicy,
    rules: Sequence[FailureRule],
    *,
    failures: int,
    disruptions: int,
) -> Charge:
    """Charge a group of failures seen together: one count, however many members it took down (RC1, RC3)."""
    rated = [(failure, first_match(rules, failure)) for failure in group]
    for failure, rule in rated:
        if rule is not None and rule.action is FailureAction.FAIL_TRAINER:
            return Charge(1, 0, "FailureRule", f"a failure rule ends the Trainer: {failure.message}")
    everyone = any(rule is not None and rule.action is FailureAction.RESTART_ALL for _, rule in rated)
    counted = [(f, rule) for f, rule in rated if rule is None or rule.action is not FailureAction.IGNORE]
    app = [failure for failure, _ in counted if failure.kind is not FailureClass.DISRUPTION]
    for failure, rule in counted:
        refusal = _not_retried(failure, policy) if rule is None else None  # a rule comes before the policy
        if refusal is not None:
            return Charge(1, 0, refusal, failure.message)
    if app:
        if failures + 1 > policy.backoff_limit:
            return Charge(
                1,
                0,
                "BackoffLimitExceeded",
                f"{failures + 1} failures, backoffLimit is {policy.backoff_limit}: {app[0].message}",
            )
        return Charge(failures=1, restart_all=everyone)
    if not counted:
        return Charge()
    limit = policy.max_disruptions
    if limit is not None and disruptions + 1 > limit:
        return Charge(
            0, 1, "MaxDisruptionsExceeded", f"{disruptions + 1} disruptions, maxDisruptions is {limit}"
        )
    return Charge(disruptions=1, restart_all=everyone)


def first_match(rules: Sequence[FailureRule], failure: Failure) -> FailureRule | None:
    """Return the first failure rule that matches."""
    for rule in rules:
        if _matches(rule, failure):
            return rule
    return None


def _matches(rule: FailureRule, failure: Failure) -> bool:
    """Whether all criteria that are given hold."""
    return (
        (rule.role is None or rule.role == failure.member.role)
        and (rule.exit_codes is None or failure.exit_code in rule.exit_codes)
        and (rule.reason is None or rule.reason == failure.reason)
        and (rule.message_pattern is None or pattern.is_found(rule.message_pattern, failure.message))
    )


def pattern_fault(rules: Sequence[FailureRule]) -> str:
    """Say which pattern is no regular expression, which the API server cannot tell; empty when all are."""
    for position, rule in enumerate(rules):
        wrong = pattern.fault(rule.message_pattern or "")
        if wrong:
            name = f"spec.failureRules[{position}].messagePattern"
            return f"{name} {rule.message_pattern!r} is no regular expression: {wrong}"
    return ""


def restart_delay(number: int, policy: EffectiveRetryPolicy, *, chance: float) -> float:
    """Return the seconds before restart `number` (1, 2, ...): none, then exponential with jitter and a cap (RC1)."""
    if number <= 1:
        return 0.0
    exponent = min(number - 2, 32)
    full = min(float(policy.cap_seconds), policy.base_seconds * 2.0**exponent)
    return full / 2 + full / 2 * chance


def _not_retried(failure: Failure, policy: EffectiveRetryPolicy) -> str | None:
    if failure.kind is FailureClass.DISRUPTION:
        return None
    if failure.kind is FailureClass.CONFIG:
        return "CannotExecute"
    if policy.restart_policy == RestartPolicy.NEVER:
        return "RestartPolicyNever"
    if (
        policy.restart_policy == RestartPolicy.EXIT_CODE
        and failure.exit_code is not None
        and failure.exit_code <= 128
    ):
        return "PermanentExitCode"
    return None
