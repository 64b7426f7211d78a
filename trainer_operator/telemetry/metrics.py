"""Metrics of trainings, on the runtime's registry (MX1 to MX3, MX5, TR44).

Counters follow the status that was stored: the difference between the status before and after a write is what this
process did, so restarts of the operator and repeated passes count nothing twice. Labels are namespaces and fixed
words, never names, pods or texts (MX3).
"""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from trainer_operator.api.checkpoint import CheckpointHealth
from trainer_operator.api.status import TrainerStatus

Ending = Literal["committed", "aborted", "collected"]
BEATS = ("accepted", "older", "malformed", "unauthenticated", "refused", "too fast", "too slow", "not ready")


class TrainerMetrics:
    """All `trainer_` and `training_` metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._epochs = Counter(
            "training_epochs", "Epochs of training data that were finished.", ["namespace"], registry=registry
        )
        self._steps = Counter(
            "trainer_steps", "Training steps that were finished.", ["namespace"], registry=registry
        )
        self._restarts = Counter(
            "trainer_restarts",
            "Restarts of members, by what made them necessary.",
            ["namespace", "cause"],
            registry=registry,
        )
        self._lost_steps = Counter(
            "trainer_lost_steps", "Training steps that had to be repeated.", ["namespace"], registry=registry
        )
        self._transitions = Counter(
            "trainer_phase_transitions",
            "Changes of a Trainer's phase, by the new one.",
            ["namespace", "phase"],
            registry=registry,
        )
        self._checkpoints = Counter(
            "trainer_checkpoints",
            "Checkpoints that reached an end.",
            ["namespace", "outcome"],
            registry=registry,
        )
        self._checkpoint_bytes = Counter(
            "trainer_checkpoint_bytes", "Bytes of committed checkpoints.", ["namespace"], registry=registry
        )
        self._restored_bytes = Counter(
            "trainer_restored_bytes",
            "Bytes of checkpoints that members started from, by where they came from.",
            ["namespace", "source"],
            registry=registry,
        )
        self._scrubs = Counter(
            "trainer_checkpoint_scrubs",
            "Checkpoints that were read in full, or could not be, by what was found.",
            ["namespace", "health"],
            registry=registry,
        )
        self._scrubbed_bytes = Counter(
            "trainer_checkpoint_scrubbed_bytes",
            "Bytes of checkpoints that were read and hashed.",
            ["namespace"],
            registry=registry,
        )
        self._repaired = Counter(
            "trainer_checkpoint_repaired_objects",
            "Objects of checkpoints that were written again from another copy.",
            ["namespace"],
            registry=registry,
        )
        self._scrub_lag = Gauge(
            "trainer_checkpoint_scrub_lag_seconds",
            "How long the verification of a checkpoint is overdue, of the one that waits longest.",
            registry=registry,
        )
        self._beats = Counter(
            "trainer_agent_beats",
            "Reports of agents, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self._mass_silence = Gauge(
            "trainer_mass_silence",
            "1 while most agents are silent at once and our own fault is assumed.",
            registry=registry,
        )
        for outcome in BEATS:
            self._beats.labels(outcome)

    def stored(self, namespace: str, before: TrainerStatus, after: TrainerStatus) -> None:
        """Count what changed with a status that was stored."""
        self._epochs.labels(namespace).inc(max(0, after.epochs_completed - before.epochs_completed))
        self._steps.labels(namespace).inc(max(0, after.global_step - before.global_step))
        for cause in ("failures", "disruptions"):
            self._restarts.labels(namespace, cause).inc(
                max(0, getattr(after, cause) - getattr(before, cause))
            )
        if after.rollbacks > before.rollbacks and after.last_rollback is not None:
            self._lost_steps.labels(namespace).inc(
                max(0, after.last_rollback.from_step - after.last_rollback.to_step)
            )
        if after.last_restore is not None and after.last_restore != before.last_restore:
            for source in ("own", "peer", "store"):
                count: int = getattr(after.last_restore, f"{source}_bytes")
                self._restored_bytes.labels(namespace, source).inc(count)
        if after.phase != before.phase and after.phase is not None:
            self._transitions.labels(namespace, str(after.phase)).inc()

    def checkpoint_ended(self, namespace: str, outcome: Ending, *, size: int = 0) -> None:
        """Count a checkpoint that was committed, aborted or collected."""
        self._checkpoints.labels(namespace, outcome).inc()
        if outcome == "committed":
            self._checkpoint_bytes.labels(namespace).inc(size)

    def checkpoint_scrubbed(
        self, namespace: str, health: CheckpointHealth, *, size: int, repaired: int
    ) -> None:
        """Count a scrub whose result was stored (PB6)."""
        self._scrubs.labels(namespace, health.lower()).inc()
        self._scrubbed_bytes.labels(namespace).inc(size)
        self._repaired.labels(namespace).inc(repaired)

    def scrub_lag(self, measure: Callable[[], float]) -> None:
        """Ask this function for the lag whenever metrics are read (PB6)."""
        self._scrub_lag.set_function(measure)

    def beat(self, outcome: str) -> None:
        """Count one report of an agent."""
        self._beats.labels(outcome).inc()

    def mass_silence(self, silent: bool) -> None:
        """Tell whether most agents are silent at once (DT4)."""
        self._mass_silence.set(silent)
