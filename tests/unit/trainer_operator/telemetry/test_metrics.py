"""Metrics follow stored status, so nothing is counted twice."""

from prometheus_client import CollectorRegistry

from trainer_operator.api.status import Phase, Rollback, TrainerStatus
from trainer_operator.telemetry.metrics import BEATS, TrainerMetrics


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels) or 0.0


def test_counters_rise_by_the_difference_between_two_stored_statuses():
    """TR44: the increase over any window equals the true transitions, whoever counts."""
    registry = CollectorRegistry()
    metrics = TrainerMetrics(registry)
    before = TrainerStatus(phase=Phase.RUNNING, global_step=100, epochs_completed=3, failures=1)
    after = TrainerStatus(
        phase=Phase.RECOVERING, global_step=120, epochs_completed=5, failures=2, disruptions=1
    )
    metrics.stored("team", before, after)
    metrics.stored("team", after, after)
    assert value(registry, "training_epochs_total", namespace="team") == 2
    assert value(registry, "trainer_steps_total", namespace="team") == 20
    assert value(registry, "trainer_restarts_total", namespace="team", cause="failures") == 1
    assert value(registry, "trainer_restarts_total", namespace="team", cause="disruptions") == 1
    assert value(registry, "trainer_phase_transitions_total", namespace="team", phase="Recovering") == 1


def test_a_rollback_counts_the_steps_it_lost_and_never_lowers_a_counter():
    """ME7, MX1."""
    registry = CollectorRegistry()
    metrics = TrainerMetrics(registry)
    before = TrainerStatus(global_step=100)
    after = TrainerStatus(global_step=80, rollbacks=1, last_rollback=Rollback(from_step=104, to_step=80))
    metrics.stored("team", before, after)
    assert value(registry, "trainer_lost_steps_total", namespace="team") == 24
    assert value(registry, "trainer_steps_total", namespace="team") == 0


def test_only_committed_checkpoints_add_bytes():
    """MX1."""
    registry = CollectorRegistry()
    metrics = TrainerMetrics(registry)
    metrics.checkpoint_ended("team", "committed", size=10)
    metrics.checkpoint_ended("team", "aborted", size=10)
    assert value(registry, "trainer_checkpoint_bytes_total", namespace="team") == 10


def test_labels_are_fixed_words_and_start_at_zero():
    """MX3, MX6: no name, pod or text ever becomes a label."""
    registry = CollectorRegistry()
    TrainerMetrics(registry)
    for outcome in BEATS:
        assert registry.get_sample_value("trainer_agent_beats_total", {"outcome": outcome}) == 0
