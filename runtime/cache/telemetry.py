"""What the caches count, as a seam: whoever owns the registry implements it."""

from collections.abc import Callable
from typing import Protocol

__all__ = ["CacheMetrics", "Uncounted"]


class CacheMetrics(Protocol):
    """The counters of list and watch (C8, `runtime_*`)."""

    def watch_restarted(self, *, kind: str, reason: str) -> None:
        """Count a watch that was started again at its version."""
        ...

    def relisted(self, *, kind: str, reason: str) -> None:
        """Count a list that was needed after the first one."""
        ...

    def object_skipped(self, *, kind: str, reason: str) -> None:
        """Count an object or event that could not be used."""
        ...

    def cache_size(self, *, kind: str, objects: int) -> None:
        """Record how many objects a cache holds."""
        ...

    def cache_lag(self, *, kind: str, seconds: Callable[[], float]) -> None:
        """Keep a way to ask for how long the server has not confirmed a cache."""
        ...


class Uncounted:
    """Counts nothing."""

    def watch_restarted(self, *, kind: str, reason: str) -> None:
        """Count nothing."""

    def relisted(self, *, kind: str, reason: str) -> None:
        """Count nothing."""

    def object_skipped(self, *, kind: str, reason: str) -> None:
        """Count nothing."""

    def cache_size(self, *, kind: str, objects: int) -> None:
        """Record nothing."""

    def cache_lag(self, *, kind: str, seconds: Callable[[], float]) -> None:
        """Keep nothing."""
