"""When a container that ended is started again: restart policy and crash-loop backoff; pure.

The first restart is immediate, the second waits 10 s after the end, each later one twice as long up to 5 minutes. A
container that ran for 10 minutes beyond the last start's backoff begins anew, as at the kubelet.
"""

from __future__ import annotations

from dataclasses import dataclass

BASE = 10.0
CAP = 300.0


@dataclass(frozen=True, slots=True)
class CrashBackoff:
    """Backoff of one container; times are seconds of the monotonic clock."""

    delay: float = 0.0
    updated: float = 0.0
    base: float = BASE

    def remaining(self, ended: float, *, now: float) -> float:
        """Return how many seconds a container that ended then still has to wait."""
        if self._expired(ended):
            return 0.0
        return max(0.0, ended + self.delay - now)

    def restarted(self, ended: float, *, now: float) -> CrashBackoff:
        """Return the backoff after a container that ended then was started again."""
        if self._expired(ended):
            return CrashBackoff(self.base, now, self.base)
        return CrashBackoff(min(self.delay * 2, CAP), now, self.base)

    def _expired(self, ended: float) -> bool:
        return self.delay == 0.0 or ended - self.updated > 2 * CAP


def should_restart(policy: str, exit_code: int) -> bool:
    """Tell whether a pod's restart policy starts a container again that ended with this code."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
