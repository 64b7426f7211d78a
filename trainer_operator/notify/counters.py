"""Metrics of notifications; labels are services, which the administrator names, and fixed words (NT4, MX3)."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

DROPS = ("queue full", "refused", "too late")


class NotifyCounters:
    """What was sent, put off and dropped, for each service."""

    def __init__(self, registry: CollectorRegistry, services: Iterable[str]) -> None:
        self._sent = Counter(
            "trainer_notifications_sent", "Messages that a service took.", ["service"], registry=registry
        )
        self._put_off = Counter(
            "trainer_notifications_put_off",
            "Tries to send that are made again.",
            ["service"],
            registry=registry,
        )
        self._dropped = Counter(
            "trainer_notifications_dropped",
            "Messages that were given up.",
            ["service", "reason"],
            registry=registry,
        )
        self._waiting = Gauge(
            "trainer_notifications_waiting", "Messages that wait to be sent.", ["service"], registry=registry
        )
        for service in services:
            self._sent.labels(service)
            self._put_off.labels(service)
            self._waiting.labels(service)
            for reason in DROPS:
                self._dropped.labels(service, reason)

    def sent(self, service: str) -> None:
        """Count a message that was taken."""
        self._sent.labels(service).inc()

    def put_off(self, service: str) -> None:
        """Count a try that was in vain."""
        self._put_off.labels(service).inc()

    def dropped(self, service: str, reason: str) -> None:
        """Count a message that was given up."""
        self._dropped.labels(service, reason).inc()

    def waiting(self, service: str, count: int) -> None:
        """Tell how many wait."""
        self._waiting.labels(service).set(count)
