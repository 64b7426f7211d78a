"""Probes as a state machine; pure. `probing.py` asks the question, this module counts the answers.

    before          answer    after
    n successes     success   n+1; at successThreshold the verdict is Success
    any             failure   successes 0, failures+1; at failureThreshold the verdict is Failure
    n failures      success   failures 0

The verdict stays what it was until a threshold is reached. Before the first one a readiness or startup probe counts
as failed and a liveness probe as passed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from runtime.objects import JsonObject


class ProbeKind(Enum):
    """What a probe's verdict is for."""

    STARTUP = "startupProbe"
    LIVENESS = "livenessProbe"
    READINESS = "readinessProbe"


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """A probe's numbers; the defaults are the API's."""

    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace: float | None = None
    """Seconds a container gets to end when this probe fails; None takes the pod's."""

    @classmethod
    def of(cls, probe: JsonObject) -> ProbeSettings:
        """Read the numbers of a probe."""
        grace = probe.get("terminationGracePeriodSeconds")
        return cls(
            initial_delay=float(probe.get("initialDelaySeconds") or 0),
            period=float(probe.get("periodSeconds") or 10),
            timeout=float(probe.get("timeoutSeconds") or 1),
            success_threshold=int(probe.get("successThreshold") or 1),
            failure_threshold=int(probe.get("failureThreshold") or 3),
            grace=None if grace is None else float(grace),
        )


@dataclass(frozen=True, slots=True)
class ProbeState:
    """The verdict so far, and the run of equal answers since."""

    passing: bool
    successes: int = 0
    failures: int = 0
    failed: bool = False
    """True once failureThreshold was reached and no successThreshold since."""

    @classmethod
    def initial(cls, kind: ProbeKind) -> ProbeState:
        """Return the state before the first answer."""
        return cls(passing=kind is ProbeKind.LIVENESS)


def step(state: ProbeState, settings: ProbeSettings, *, success: bool) -> ProbeState:
    """Count one answer."""
    if success:
        counted = replace(state, successes=state.successes + 1, failures=0)
        if counted.successes >= settings.success_threshold:
            return replace(counted, passing=True, failed=False)
        return counted
    counted = replace(state, successes=0, failures=state.failures + 1)
    if counted.failures >= settings.failure_threshold:
        return replace(counted, passing=False, failed=True)
    return counted
