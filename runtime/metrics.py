"""The metrics of one process, in a registry of its own (C8, Q7).

Names that controller-runtime and client-go have are used verbatim, so that existing dashboards and alerts work;
ours begin with ``runtime_``. Label sets are bounded. A metric whose labels are known beforehand starts at zero: a
counter that first appears with the value 1 is invisible to ``rate()``.

`Metrics` is injected and never a singleton, so that two managers in one process, or two tests, do not share figures.

The queue's figures are gathered by the queue itself in plain integers and a `Tally`, and turned into metrics when
scraped: three observations of prometheus_client would cost more than the queue's whole work on a key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What `Metrics.exposition` returns, as a Content-Type header."""

QUEUE_BUCKETS: Final = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
"""Seconds; controller-runtime's buckets for the work queue."""

RECONCILE_BUCKETS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9),
    *(1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
"""Seconds; controller-runtime's buckets for a reconcile."""

REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds; client-go's buckets for a request."""

RECONCILE_RESULTS: Final = ("success", "error", "requeue", "requeue_after")
"""The values of the label ``result``, as upstream."""

PRIORITY_VALUES: Final = 25
"""How many values the label ``priority`` may take (Q7); what comes later is counted as ``other``."""


class Tally:
    """A histogram of durations that costs a fraction of a microsecond per observation."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(QUEUE_BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(QUEUE_BUCKETS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative buckets as prometheus_client wants them."""
        running = 0
        buckets = []
        for bound, number in zip((*map(str, QUEUE_BUCKETS), "+Inf"), self.counts, strict=True):
            running += number
            buckets.append((bound, float(running)))
        return buckets


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The figures of one work queue at one moment."""

    depth: Mapping[int, int]
    """Ready keys by priority."""
    adds: int
    retries: int
    queue_duration: Tally
    work_duration: Tally
    unfinished_work: float
    """Seconds of work in keys being processed, summed."""
    longest_running: float
    """Seconds for which the oldest of them has been processed."""


class QueueCollector(Collector):
    """The ``workqueue_*`` metrics of all queues of a process."""

    def __init__(self) -> None:
        self._queues: dict[str, Callable[[], QueueSnapshot]] = {}
        self._priorities: dict[str, dict[int, str]] = {}

    def watch(self, name: str, snapshot: Callable[[], QueueSnapshot]) -> None:
        """Ask `snapshot` at each scrape; a later queue of the same name takes the place of the earlier."""
        self._queues[name] = snapshot

    def collect(self) -> Iterable[Metric]:
        """Yield one family per metric, with a sample per queue."""
        labels = ["name", "controller"]
        depth = GaugeMetricFamily(
            "workqueue_depth", "Keys ready to be worked on.", labels=[*labels, "priority"]
        )
        adds = CounterMetricFamily("workqueue_adds_total", "Adds, whatever became of them.", labels=labels)
        retries = CounterMetricFamily("workqueue_retries_total", "Rate-limited adds.", labels=labels)
        queue_time = HistogramMetricFamily(
            "workqueue_queue_duration_seconds", "How long keys were ready before being taken.", labels=labels
        )
        work_time = HistogramMetricFamily(
            "workqueue_work_duration_seconds", "How long keys were processed.", labels=labels
        )
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds", "Work in progress not yet observed.", labels=labels
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Age of the oldest work in progress.",
            labels=labels,
        )
        for name, take in self._queues.items():
            snapshot = take()
            values = [name, name]
            for label, number in self._depth_by_label(name, snapshot.depth).items():
                depth.add_metric([*values, label], number)
            adds.add_metric(values, snapshot.adds)
            retries.add_metric(values, snapshot.retries)
            queue_time.add_metric(values, snapshot.queue_duration.buckets(), snapshot.queue_duration.total)
            work_time.add_metric(values, snapshot.work_duration.buckets(), snapshot.work_duration.total)
            unfinished.add_metric(values, snapshot.unfinished_work)
            longest.add_metric(values, snapshot.longest_running)
        yield from (depth, adds, retries, queue_time, work_time, unfinished, longest)

    def _depth_by_label(self, name: str, depth: Mapping[int, int]) -> dict[str, int]:
        """Sum up by label; a priority that was seen once stays, at zero, so that its series does not end."""
        known = self._priorities.setdefault(name, {0: "0"})
        for priority in sorted(depth):
            if priority not in known:
                # one value is kept for the label that takes everything else
                known[priority] = str(priority) if len(set(known.values())) < PRIORITY_VALUES - 1 else "other"
        summed = dict.fromkeys(known.values(), 0)
        for priority, number in depth.items():
            summed[known[priority]] += number
        if (
            len(known) > 1000
        ):  # priorities come from code, but a label must not grow memory if they ever do not
            self._priorities[name] = dict(list(known.items())[:PRIORITY_VALUES])
        return summed


class CacheLagCollector(Collector):
    """For how long the server has said nothing to the caches of a kind, asked when scraped."""

    def __init__(self) -> None:
        self._lags: dict[str, list[Callable[[], float]]] = {}

    def watch(self, kind: str, seconds: Callable[[], float]) -> None:
        """Ask `seconds` at each scrape; of several caches of a kind the worst one counts."""
        self._lags.setdefault(kind, []).append(seconds)

    def collect(self) -> Iterable[Metric]:
        """Yield the one family."""
        lag = GaugeMetricFamily(
            "runtime_cache_lag_seconds",
            "Time since a list, event or bookmark last confirmed the cache; a quiet one has a bookmark a minute.",
            labels=["kind"],
        )
        for kind, asked in self._lags.items():
            lag.add_metric([kind], max(seconds() for seconds in asked))
        yield lag


class Metrics:
    """All metrics that `runtime` writes, each as an attribute."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        # a gauge per counter with its birth time doubles the page and serves nobody
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self.queues = QueueCollector()
        self.cache_lags = CacheLagCollector()
        registry.register(self.queues)
        registry.register(self.cache_lags)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, labels, registry=registry, buckets=buckets)

        base = "controller_runtime_reconcile"
        self.reconcile_total = counter(f"{base}_total", "Reconciles by outcome.", "controller", "result")
        self.reconcile_errors = counter(f"{base}_errors_total", "Reconciles that raised.", "controller")
        self.reconcile_panics = counter(
            f"{base}_panics_total", "Reconciles that raised what only a bug raises.", "controller"
        )
        self.reconcile_timeouts = counter(
            f"{base}_timeouts_total", "Reconciles cut off by the controller's timeout.", "controller"
        )
        self.reconcile_time = histogram(
            f"{base}_time_seconds", "Length of reconciles.", "controller", buckets=RECONCILE_BUCKETS
        )
        self.terminal_errors = counter(
            "controller_runtime_terminal_reconcile_errors_total",
            "Reconciles that ended in an error which a retry cannot cure.",
            "controller",
        )
        self.max_concurrent_reconciles = gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers of a controller.", "controller"
        )
        self.active_workers = gauge(
            "controller_runtime_active_workers", "Workers that are reconciling now.", "controller"
        )

        base = "controller_runtime_webhook"
        self.webhook_requests = counter(
            f"{base}_requests_total", "Admission requests by status code.", "webhook", "code"
        )
        self.webhook_latency = histogram(
            f"{base}_latency_seconds", "Time to answer.", "webhook", buckets=REQUEST_BUCKETS
        )
        self.webhook_in_flight = gauge(f"{base}_requests_in_flight", "Requests being answered.", "webhook")
        self.webhook_panics = counter(f"{base}_panics_total", "Handlers that raised.")

        base = "rest_client"
        self.requests = counter(
            f"{base}_requests_total", "API requests by status code.", "code", "method", "host"
        )
        self.request_duration = histogram(
            f"{base}_request_duration_seconds", "Time to an answer.", "verb", "host", buckets=REQUEST_BUCKETS
        )
        self.rate_limiter_duration = histogram(
            f"{base}_rate_limiter_duration_seconds",
            "Time spent waiting for our own limits.",
            buckets=REQUEST_BUCKETS,
        )
        self.request_retries = counter(
            f"{base}_request_retries_total", "Repeated requests.", "code", "verb", "host"
        )

        self.leader_status = gauge(
            "leader_election_master_status", "1 while this process leads, else 0.", "name"
        )
        self.leader_slowpath = counter(
            "leader_election_slowpath_total", "Renewals that had to read the lease first.", "name"
        )
        self.certificate_reads = counter("certwatcher_read_certificate_total", "Certificate reads.")
        self.certificate_read_errors = counter(
            "certwatcher_read_certificate_errors_total", "Certificate reads that failed."
        )

        self.watch_restarts = counter(
            "runtime_watch_restarts_total", "Watches opened again.", "kind", "reason"
        )
        self.relists = counter("runtime_relists_total", "Lists after the first.", "kind", "reason")
        self.objects_skipped = counter(
            "runtime_objects_skipped_total", "Objects that could not be used.", "kind", "reason"
        )
        self.cache_objects = gauge("runtime_cache_objects", "Objects in the cache.", "kind")
        self.loop_lag = gauge(
            "runtime_event_loop_lag_seconds", "How late the event loop ran at the last look."
        )
        self.events_dropped = counter(
            "runtime_events_dropped_total", "Events that were not written.", "reason"
        )

    def declare_controller(self, name: str, *, workers: int) -> None:
        """Start every series of a controller at zero."""
        for result in RECONCILE_RESULTS:
            self.reconcile_total.labels(name, result)
        for metric in (
            self.reconcile_errors,
            self.reconcile_panics,
            self.reconcile_timeouts,
            self.terminal_errors,
            self.reconcile_time,
            self.active_workers,
        ):
            metric.labels(name)
        self.max_concurrent_reconciles.labels(name).set(workers)

    def declare_election(self, name: str) -> None:
        """Start every series of an election at zero."""
        self.leader_status.labels(name).set(0)
        self.leader_slowpath.labels(name)

    def declare_webhook(self, path: str) -> None:
        """Start the series of a webhook at zero."""
        for code in ("200", "500"):
            self.webhook_requests.labels(path, code)
        self.webhook_latency.labels(path)
        self.webhook_in_flight.labels(path).set(0)

    # What the client counts (runtime.client.telemetry)

    def request_finished(self, *, code: str, method: str, host: str, seconds: float) -> None:
        """Count an attempt; the code is `<error>` when no answer came."""
        self.requests.labels(code, method, host).inc()
        self.request_duration.labels(method, host).observe(seconds)

    def request_retried(self, *, code: str, method: str, host: str) -> None:
        """Count a repeated attempt."""
        self.request_retries.labels(code, method, host).inc()

    def request_throttled(self, *, seconds: float) -> None:
        """Record how long an attempt waited for the token bucket and the in-flight limit."""
        self.rate_limiter_duration.observe(seconds)

    # What the caches count (runtime.cache.telemetry)

    def watch_restarted(self, *, kind: str, reason: str) -> None:
        """Count a watch that was started again at its version."""
        self.watch_restarts.labels(kind, reason).inc()

    def relisted(self, *, kind: str, reason: str) -> None:
        """Count a list that was needed after the first one."""
        self.relists.labels(kind, reason).inc()

    def object_skipped(self, *, kind: str, reason: str) -> None:
        """Count an object or event that could not be used."""
        self.objects_skipped.labels(kind, reason).inc()

    def cache_size(self, *, kind: str, objects: int) -> None:
        """Record how many objects a cache holds."""
        self.cache_objects.labels(kind).set(objects)

    def cache_lag(self, *, kind: str, seconds: Callable[[], float]) -> None:
        """Ask at each scrape for how long the server has not confirmed a cache."""
        self.cache_lags.watch(kind, seconds)

    def exposition(self) -> bytes:
        """Return all metrics in the text format that Prometheus reads."""
        return generate_latest(self.registry)
