"""Statuses, which decisions change."""

from datetime import UTC, datetime

from trainer_operator.api.meta import Condition
from trainer_operator.api.status import MemberStatus, RecoveryStatus, TrainerStatus


def test_a_copy_of_a_status_may_be_changed_and_what_is_frozen_is_shared():
    """RC8: a decision changes its own copy."""
    condition = Condition(
        type="Ready", status="True", reason="R", last_transition_time=datetime(2026, 1, 1, tzinfo=UTC)
    )
    status = TrainerStatus(
        members=[MemberStatus(role="worker", index=0)],
        recovery=RecoveryStatus(members=["worker-0"]),
        metrics={"accuracy": 0.5},
        conditions=(condition,),
    )
    copied = status.model_copy(deep=True)
    assert copied == status
    assert copied.conditions[0] is condition
    copied.members[0].attempt = 3
    copied.roles.worker.ready = 2
    copied.recovery.members.append("worker-1")
    copied.metrics["accuracy"] = 0.9
    assert (status.members[0].attempt, status.roles.worker.ready) == (0, 0)
    assert (status.recovery.members, status.metrics) == (["worker-0"], {"accuracy": 0.5})
