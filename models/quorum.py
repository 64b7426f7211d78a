"""The quorum and the decision of one checkpoint: several shards, several copies of each (QR, DE, PB3).

Each copy is written and acknowledged by itself, at any time or never; members may say what they like of it. At most
as many copies of a shard are bad at a time as a majority of them leaves over, whatever became of them: a disk that
lost them, or one that said they were durable. Two coordinators, which is a leader with the agent that it orders
from, decide at the same time; each may stop after any call, and is followed by another one that knows nothing. They read
one copy after the other, in any order, and may be held up before any call for as long as it takes.

As in the code, what was decided is read back from the store, and the object of the checkpoint shows it afterwards; an
object that shows an abort has the data swept; a prober completes and mends the copies of what is committed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from models.explorer import Verdict, explore
from models.rules import Counted, QuorumRules

NOTHING, CHECKED, DURABLE, ACKED, HOLLOW, PROBED, LOST, SWEPT = range(8)
"""HOLLOW is acknowledged before its data is durable, PROBED completed by the prober and not registered yet; CHECKED and
PROBED are told apart only where there is a base (`sharedbase`)."""
NONE, COMMIT, ABORT = range(3)
STAGING, COMMITTED, ABORTED = range(3)
IDLE, READING, ABORTING, KNOWS_COMMIT, KNOWS_ABORT = range(5)
_SAID = {COMMIT: "commit", ABORT: "abort"}


class Copy(NamedTuple):
    """One copy of one shard."""

    at: int = NOTHING
    read: int = 0
    """Coordinators that count it, as bits."""
    named: int = 0
    """1 if DECISION names it, 2 if it was completed later; no other copy exists (QR5)."""
    below: bool = True
    """What it refers to of the base is there."""
    doomed: bool = False
    """A collection of the base is about to delete that."""

    @property
    def restores(self) -> bool:
        """Whether it can be restored from."""
        return bool(self.named) and self.at in (DURABLE, ACKED) and self.below


class Base(NamedTuple):
    """The checkpoint that is built on, and the collection of it."""

    at: int = 0
    pin: int = 0
    named: bool = False
    """Somebody is about to mark it, having read that nobody pins it."""
    hand: int = 0


Shard = tuple[Copy, ...]


class State(NamedTuple):
    """Everything that is durable or under way."""

    shards: tuple[Shard, ...]
    decision: int = NONE
    shown: int = STAGING
    """What the object shows."""
    coordinators: tuple[int, int] = (IDLE, IDLE)
    base: Base = Base()


Step = tuple[str, State]


class Quorum:
    """The model under one set of rules."""

    def __init__(self, rules: QuorumRules) -> None:
        self.rules = rules
        self._majority = rules.copies // 2 + 1

    @property
    def start(self) -> State:
        """Nothing is stored, and nobody does anything."""
        return State(((Copy(),) * self.rules.copies,) * self.rules.shards)

    def explore(self) -> Verdict:
        """Visit every state."""
        return explore(
            self.start, steps=self.steps, violation=self.violation, representative=self.representative
        )

    def violation(self, state: State) -> str:
        """Say what is wrong with a state (IV1, IV2, IV3)."""
        if state.decision == COMMIT:
            for number, shard in enumerate(state.shards):
                if not any(copy.restores for copy in shard):
                    return f"it is committed, and no copy of shard {number} is left"
        if state.shown == COMMITTED and state.decision != COMMIT:
            return "the object says Committed, the store does not"
        if state.shown == ABORTED and state.decision == COMMIT:
            return "it was told to be aborted, and is committed"
        return ""

    def representative(self, state: State) -> State:
        """Return one of the states that differ in the numbers of copies, shards and coordinators only."""
        if state.decision and self.rules.is_decided_once and self.rules.sweep_keeps_decision:
            # What was counted is of no more use: whoever tries to decide finds what was decided.
            state = state._replace(
                shards=tuple(tuple(copy._replace(read=0) for copy in shard) for shard in state.shards)
            )
        mirrored = state._replace(
            shards=tuple(tuple(copy._replace(read=_swapped(copy.read)) for copy in s) for s in state.shards),
            coordinators=(state.coordinators[1], state.coordinators[0]),
        )
        return min(_sorted(state), _sorted(mirrored))

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what can happen next."""
        for shard in range(self.rules.shards):
            for copy in range(self.rules.copies):
                for name, after in self.copy_steps(state, shard, state.shards[shard][copy]):
                    yield f"{name}({shard}.{copy})", with_copy(state, shard, copy, after)
        for which in (0, 1):
            yield from self._coordinator(state, which)
        if state.shown == ABORTED and state.decision == ABORT:
            left = NONE if not self.rules.sweep_keeps_decision else state.decision
            yield "collect sweeps what it left", state._replace(shards=_swept(state.shards), decision=left)

    # -- copies

    def copy_steps(self, state: State, shard: int, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """What its writer, its disk and the prober do to a copy."""
        if copy.at == NOTHING:
            yield from self.written(state, copy)
            if not self.rules.acks_last:
                yield "write_ack first", copy._replace(at=HOLLOW)
        elif copy.at == HOLLOW:
            yield "write_copy", copy._replace(at=ACKED)
        elif copy.at == DURABLE and not copy.named:
            yield "write_ack", copy._replace(at=ACKED)
        bad = sum(other.at == LOST for other in state.shards[shard])
        if copy.at in (DURABLE, ACKED) and bad < self._majority - 1:
            yield "the store loses", copy._replace(at=LOST)
        is_lacking = state.shown == COMMITTED and not copy.restores
        if is_lacking and any(other.restores for other in state.shards[shard]):
            yield from self.completed(copy)

    def written(self, _state: State, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """Make a copy durable (QR3)."""
        yield "write_copy", copy._replace(at=DURABLE)

    def completed(self, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """Make good what is missing or bad, and let it count (PB2, PB3)."""
        yield "the prober completes", copy._replace(at=ACKED, named=copy.named or 2)

    def may_commit(self, _state: State) -> bool:
        """Whether a leader orders a commit."""
        return True

    # -- coordinators

    def _coordinator(self, state: State, which: int) -> Iterator[Step]:
        at, name = state.coordinators[which], f"{which + 1}"
        if at != IDLE:
            yield f"{name} stops", _at(state, which, IDLE)
        if at == IDLE and state.shown == STAGING:
            if state.decision:
                yield f"{name} reads {_SAID[state.decision]}", _knows(state, which, state.decision)
            else:
                if self.may_commit(state):
                    yield f"{name} commit is ordered, no DECISION yet", _at(state, which, READING)
                yield f"{name} abort is ordered", _at(state, which, ABORTING)
        elif at == READING:
            yield from self._read(state, which)
            if self._has_quorum(state, which):
                yield from self._decide(state, which, COMMIT)
        elif at == ABORTING:
            yield from self._decide(state, which, ABORT)
        elif at in (KNOWS_COMMIT, KNOWS_ABORT):
            shown, said = (COMMITTED, "Committed") if at == KNOWS_COMMIT else (ABORTED, "Aborted")
            if state.shown == STAGING:  # a compare-and-swap
                yield f"{name} apply({said})", _at(state, which, IDLE)._replace(shown=shown)

    def _read(self, state: State, which: int) -> Iterator[Step]:
        """Count one copy more: those whose ack is in the store, with the index that it names (DE3, QR3).

        What is lost may still look so, since nobody reads the data then.
        """
        believed = {NOTHING, DURABLE, ACKED} if self.rules.believes_members else {ACKED, HOLLOW, LOST}
        for shard, copies in enumerate(state.shards):
            for number, copy in enumerate(copies):
                if copy.at in believed and not copy.read >> which & 1:
                    counted = copy._replace(read=copy.read | 1 << which)
                    yield f"{which + 1} counts {shard}.{number}", with_copy(state, shard, number, counted)

    def _has_quorum(self, state: State, which: int) -> bool:
        """Whether it may commit (QR2)."""
        counted = [sum(copy.read >> which & 1 for copy in shard) for shard in state.shards]
        match self.rules.counted:
            case Counted.MAJORITY_OF_EACH:
                return min(counted) >= self._majority
            case Counted.MINORITY_OF_EACH:
                return min(counted) >= self._majority - 1
            case Counted.MAJORITY_OF_ALL:
                return sum(counted) >= self.rules.shards * self.rules.copies // 2 + 1
            case Counted.MAJORITY_OF_ONE:
                return max(counted) >= self._majority

    def _decide(self, state: State, which: int, outcome: int) -> Iterator[Step]:
        """Create DECISION if it is absent, and read back what holds (DE1, DE2)."""
        wins = not state.decision or not self.rules.is_decided_once
        decided = _named(state, which, outcome) if wins else state
        known = decided.decision if self.rules.reads_back else outcome
        did = f"decide_{_SAID[outcome]}"
        yield f"{which + 1} {did}: {_SAID[known]}", _knows(decided, which, known)
        if not self.rules.records_aborts and outcome == ABORT:
            yield f"{which + 1} aborts in the object", _at(state, which, KNOWS_ABORT)


def _named(state: State, which: int, outcome: int) -> State:
    """Write DECISION; a commit names the copies that were counted."""
    counts = outcome == COMMIT
    shards = tuple(
        tuple(copy._replace(named=copy.read >> which & 1 if counts else 0) for copy in shard)
        for shard in state.shards
    )
    return state._replace(shards=shards, decision=outcome)


def _knows(state: State, which: int, outcome: int) -> State:
    return _at(state, which, KNOWS_COMMIT if outcome == COMMIT else KNOWS_ABORT)


def _at(state: State, which: int, at: int) -> State:
    """Move a coordinator; what it counted is forgotten unless it goes on counting."""
    coordinators = (at, state.coordinators[1]) if which == 0 else (state.coordinators[0], at)
    shards = tuple(
        tuple(copy._replace(read=copy.read & ~(1 << which)) for copy in shard) for shard in state.shards
    )
    return state._replace(shards=shards, coordinators=coordinators)


def with_copy(state: State, shard: int, number: int, copy: Copy) -> State:
    """Put another copy in the place of one."""
    copies = state.shards[shard]
    changed = (*copies[:number], copy, *copies[number + 1 :])
    return state._replace(shards=(*state.shards[:shard], changed, *state.shards[shard + 1 :]))


def _swept(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
    """Delete what is there; a writer that is under way goes on."""
    return tuple(
        tuple(copy if copy.at in (NOTHING, LOST) else copy._replace(at=SWEPT) for copy in shard)
        for shard in shards
    )


def _swapped(bits: int) -> int:
    return bits >> 1 | (bits & 1) << 1


def _sorted(state: State) -> State:
    return state._replace(shards=tuple(sorted(tuple(sorted(shard)) for shard in state.shards)))
