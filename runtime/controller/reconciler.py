"""What a reconciler is told and what it may answer (C1, C4).

It is told a key and nothing else: not what happened, not how often, not why. It reads the world, acts, and answers
when it wants to look again. Whatever it raises is retried with backoff, unless it says that retrying cannot help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from runtime.errors import RuntimeFault
from runtime.objects import ObjectKey

__all__ = ["Reconciler", "Request", "Result", "TerminalError"]


@dataclass(frozen=True, slots=True)
class Request:
    """Which object to look at."""

    key: ObjectKey

    @property
    def namespace(self) -> str:
        """The object's namespace, empty for a cluster-wide kind."""
        return self.key.namespace

    @property
    def name(self) -> str:
        """The object's name."""
        return self.key.name


@dataclass(frozen=True, slots=True)
class Result:
    """When to look again, if nothing happens before."""

    requeue_after: float | None = None
    """Seconds; 0 asks for another call at once, None for none."""
    priority: int | None = None
    """Priority of that call; None keeps the priority of this one (Q4)."""

    def __post_init__(self) -> None:
        if self.requeue_after is not None and not math.isfinite(self.requeue_after):
            raise ValueError(f"requeue_after must be a finite number of seconds, got {self.requeue_after}")


class TerminalError(RuntimeFault):
    """The reconcile failed in a way that only a change of the object can cure; it is counted and not retried."""


class Reconciler(Protocol):
    """Brings the world nearer to what an object asks for."""

    async def reconcile(self, request: Request) -> Result | None:
        """Look at the object and act; None means there is nothing to come back for.

        Assumptions: never called for two requests with the same key at once (Q1).
        Raises: TerminalError not to be called again; anything else to be called again after a backoff.
        """
