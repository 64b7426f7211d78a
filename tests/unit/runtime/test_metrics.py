"""Metric names are an interface: dashboards and alerts are built on them."""

from pathlib import Path

from runtime.metrics import Metrics, QueueSnapshot, Tally

GOLDEN = Path(__file__).parents[2] / "golden" / "runtime_metrics.txt"


def filled() -> Metrics:
    metrics = Metrics()
    metrics.declare_controller("things", workers=4)
    metrics.declare_election("lease")
    tally = Tally()
    metrics.cache_lag(kind="Thing", seconds=lambda: 0.0)
    metrics.queues.watch("things", lambda: QueueSnapshot({}, 0, 0, tally, tally, 0.0, 0.0))
    return metrics


def test_names_types_and_labels_are_those_of_the_golden_file():
    """C8, Q7. Regenerate on purpose only: a renamed metric breaks its readers."""
    assert "\n".join(described()) + "\n" == GOLDEN.read_text()


def described() -> list[str]:
    metrics = filled()
    for metric in vars(metrics).values():
        if names := getattr(metric, "_labelnames", ()):
            metric.labels(*names)  # so that each metric has a sample to read the labels from
    lines = []
    for family in metrics.registry.collect():
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        lines.append(f"{family.name} {family.type} {','.join(labels)}".rstrip())
    return sorted(lines)


def test_every_series_of_a_controller_starts_at_zero():
    """C8."""
    value = filled().registry.get_sample_value
    for result in ("success", "error", "requeue", "requeue_after"):
        labels = {"controller": "things", "result": result}
        assert value("controller_runtime_reconcile_total", labels) == 0
    for name in ("errors", "panics", "timeouts"):
        assert value(f"controller_runtime_reconcile_{name}_total", {"controller": "things"}) == 0
    assert value("controller_runtime_terminal_reconcile_errors_total", {"controller": "things"}) == 0
    assert value("controller_runtime_max_concurrent_reconciles", {"controller": "things"}) == 4
    assert value("leader_election_master_status", {"name": "lease"}) == 0
    assert value("leader_election_slowpath_total", {"name": "lease"}) == 0


def test_two_sets_of_metrics_share_nothing():
    """P3: injected, never a singleton."""
    one, other = filled(), filled()
    one.reconcile_errors.labels("things").inc()
    assert (
        other.registry.get_sample_value("controller_runtime_reconcile_errors_total", {"controller": "things"})
        == 0
    )


def test_exposition_is_the_text_format_without_creation_times():
    """C8."""
    text = filled().exposition().decode()
    assert "# TYPE controller_runtime_reconcile_total counter" in text
    assert "_created" not in text
    assert text.count("# TYPE workqueue_depth gauge") == 1


def test_a_tally_counts_into_cumulative_buckets():
    """Q7."""
    tally = Tally()
    for seconds in (0.0, 0.001, 0.5, 5000.0):
        tally.observe(seconds)
    buckets = dict(tally.buckets())
    assert buckets["0.001"] == 2
    assert buckets["1.0"] == 3
    assert buckets["1000.0"] == 3
    assert buckets["+Inf"] == 4
    assert tally.total == 5000.501


def test_what_client_and_caches_report_reaches_the_registry():
    """C8."""
    metrics = Metrics()
    metrics.request_finished(code="200", method="GET", host="api", seconds=0.1)
    metrics.request_retried(code="429", method="GET", host="api")
    metrics.request_throttled(seconds=2.0)
    metrics.watch_restarted(kind="Pod", reason="closed")
    metrics.relisted(kind="Pod", reason="expired")
    metrics.object_skipped(kind="Pod", reason="undecodable")
    metrics.cache_size(kind="Pod", objects=7)
    metrics.cache_lag(kind="Pod", seconds=lambda: 3.0)
    metrics.cache_lag(kind="Pod", seconds=lambda: 8.0)
    value = metrics.registry.get_sample_value
    assert value("rest_client_requests_total", {"code": "200", "method": "GET", "host": "api"}) == 1
    assert value("rest_client_request_duration_seconds_sum", {"verb": "GET", "host": "api"}) == 0.1
    assert value("rest_client_request_retries_total", {"code": "429", "verb": "GET", "host": "api"}) == 1
    assert value("rest_client_rate_limiter_duration_seconds_sum") == 2.0
    assert value("runtime_watch_restarts_total", {"kind": "Pod", "reason": "closed"}) == 1
    assert value("runtime_relists_total", {"kind": "Pod", "reason": "expired"}) == 1
    assert value("runtime_objects_skipped_total", {"kind": "Pod", "reason": "undecodable"}) == 1
    assert value("runtime_cache_objects", {"kind": "Pod"}) == 7
    assert value("runtime_cache_lag_seconds", {"kind": "Pod"}) == 8.0  # of two caches the worse one
