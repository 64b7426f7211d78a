"""The life of one checkpoint as a pure state machine (CS1 to CS7).

    Pending ──target chosen──▶ Staging ──quorum, DECISION commit──▶ Committed ──retention──▶ GarbageCollected
       └── timeout, epoch moved on, quorum impossible: DECISION abort ──▶ GarbageCollected (Aborted) ── sweep

`step(facts) -> Move`: what the object becomes, and what agents are told. Acts of agents are idempotent, so a leader
that takes over repeats them. The state is written only after the store's DECISION is known (CS3).
"""

from dataclasses import dataclass
from enum import StrEnum

from trainer_operator.api.checkpoint import CheckpointState

MAX_TRIES = 4
SWEEP_GRACE = 600.0
"""Seconds after an abort until what the attempt left is deleted: longer than any write that agents have under way."""


class Outcome(StrEnum):
    """What the DECISION in the store says."""

    COMMIT = "commit"
    ABORT = "abort"


class Order(StrEnum):
    """What agents shall do for this checkpoint now."""

    NOTHING = "nothing"
    SAVE = "save"
    COMMIT = "commit"
    ABORT = "abort"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything the next step depends on."""

    state: CheckpointState | None
    epoch: int
    """Epoch it was staged in; 0 before."""
    current_epoch: int
    trains: bool
    """The current epoch is Active, its servers serve, and every holder's process runs."""
    ended: bool = False
    """The Trainer has ended: no process will reach a target any more."""
    tries: int = 0
    passed: bool = False
    """A holder was at the target already."""
    quorum: bool = False
    impossible: bool = False
    commit_failed: bool = False
    """Agents tried to write the commit, and failed, as often as they may."""
    commit_failure: str = "CommitFailed"
    """Why they failed."""
    abort_failed: bool = False
    """The same of the abort."""
    failure: str = "CopiesFailed"
    """Why copies could not be made."""
    age: float = 0.0
    staged_for: float = 0.0
    pending_timeout: float = 60.0
    staging_timeout: float = 600.0
    outcome: Outcome | None = None
    """The store's DECISION, once an agent read it back."""
    unpinned: bool = False
    """It has a base that waits for it no longer, so what it refers to may be deleted."""
    retire: bool = False
    """Retention or deletion wants it gone."""
    marked: bool = False
    """It was chosen for collection before; there is no way back (GC4)."""
    collected: bool = False
    """An agent finished the collection."""
    aborted_for: float | None = None
    """Seconds since it was given up, as long as what it may have stored is not known to be swept."""
    sweep_failed: bool = False
    """Agents tried to sweep it, and failed, as often as they may; a later collection does it (PB5)."""


@dataclass(frozen=True, slots=True)
class Move:
    """The next state, what to order, and why."""

    state: CheckpointState
    order: Order = Order.NOTHING
    new_target: bool = False
    reason: str = ""


def step(facts: Facts) -> Move:
    """Return the one next move. Total: every combination of facts has an answer, and no state goes back (CS7)."""
    match facts.state:
        case None | CheckpointState.PENDING:
            return _pending(facts)
        case CheckpointState.STAGING:
            return _staging(facts)
        case CheckpointState.COMMITTED:
            return _committed(facts)
        case _:
            return _ended(facts)


def _pending(facts: Facts) -> Move:
    if facts.trains:
        return Move(CheckpointState.STAGING, Order.SAVE, new_target=True)
    if facts.ended:
        return Move(CheckpointState.GARBAGE_COLLECTED, reason="TrainerEnded")
    if facts.age >= facts.pending_timeout:
        return Move(
            CheckpointState.GARBAGE_COLLECTED, reason="PendingTimeout"
        )  # nothing was stored, nothing to decide
    return Move(CheckpointState.PENDING)


def _staging(facts: Facts) -> Move:
    if facts.outcome is Outcome.COMMIT:
        return Move(CheckpointState.COMMITTED)
    if facts.outcome is Outcome.ABORT:
        return Move(CheckpointState.GARBAGE_COLLECTED, reason="Aborted")
    if facts.commit_failed:
        return Move(CheckpointState.STAGING, Order.ABORT, reason=facts.commit_failure)
    if facts.unpinned:
        return Move(CheckpointState.STAGING, Order.ABORT, reason="BaseLost")
    if facts.quorum:
        return Move(CheckpointState.STAGING, Order.COMMIT)
    if facts.impossible and facts.abort_failed:
        # The store takes no record. Without a majority of copies nobody will ever commit, so none is needed.
        return Move(CheckpointState.GARBAGE_COLLECTED, reason=facts.failure)
    if facts.impossible:
        return Move(CheckpointState.STAGING, Order.ABORT, reason=facts.failure)
    if facts.current_epoch != facts.epoch:
        return Move(CheckpointState.STAGING, Order.ABORT, reason="EpochEnded")
    if facts.staged_for >= facts.staging_timeout:
        return Move(CheckpointState.STAGING, Order.ABORT, reason="StagingTimeout")
    if facts.passed and facts.ended:
        return Move(CheckpointState.STAGING, Order.ABORT, reason="TrainerEnded")
    if facts.passed:
        if facts.tries < MAX_TRIES:
            return Move(CheckpointState.STAGING, Order.SAVE, new_target=True)
        return Move(CheckpointState.STAGING, Order.ABORT, reason="TargetPassed")
    return Move(CheckpointState.STAGING, Order.SAVE)


def _committed(facts: Facts) -> Move:
    if not facts.retire and not facts.marked:
        return Move(CheckpointState.COMMITTED)
    if facts.marked and facts.collected:
        return Move(CheckpointState.GARBAGE_COLLECTED, reason="Retention")
    return Move(
        CheckpointState.COMMITTED, Order.COLLECT
    )  # the mark is written before agents hear of it (GC4)


def _ended(facts: Facts) -> Move:
    is_due = facts.aborted_for is not None and facts.aborted_for >= SWEEP_GRACE
    if is_due and not facts.collected and not facts.sweep_failed:
        return Move(CheckpointState.GARBAGE_COLLECTED, Order.COLLECT)
    return Move(CheckpointState.GARBAGE_COLLECTED)
