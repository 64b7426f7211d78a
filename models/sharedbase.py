"""Several shards and copies on a base that is collected meanwhile: quorum, decision, pin and collection in one model.

Every copy of the attempt refers to data of the same copy of the base, which shares nothing with that of other copies
(CK4). The base is pinned before anybody writes, and may be marked whenever nobody pins it. A collection stops after any
call and is begun anew. It lists what will go, learns whether the attempt lives, reads which copies have an index,
and deletes one thing after the other. The prober mends what is missing before it registers a copy, and may be held up
in between.
"""

from collections.abc import Callable, Iterator

from models.quorum import (
    ABORT,
    ACKED,
    CHECKED,
    COMMIT,
    DURABLE,
    LOST,
    PROBED,
    STAGING,
    Copy,
    Quorum,
    State,
    Step,
)
from models.rules import Pin

LIVES, MARKED, BURIED = range(3)
UNPINNED, PINNED, DROPPED = range(3)
OFF, UNDECIDED, ALIVE, DELETES = range(4)
_HAS_INDEX = (DURABLE, ACKED, PROBED)


class QuorumOnBase(Quorum):
    """The model under one set of rules."""

    def violation(self, state: State) -> str:
        """Say what is wrong with a state (IV1, IV2, IV3)."""
        for number, shard in enumerate(state.shards):
            if state.decision == COMMIT and any(_counts(copy) and not copy.below for copy in shard):
                return f"it is committed, and what a copy of shard {number} refers to is deleted"
        return super().violation(state)

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what can happen next."""
        yield from super().steps(state)
        yield from self._pin(state)
        yield from self._mark(state)
        yield from self._collect(state)

    def copy_steps(self, state: State, shard: int, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """What its writer, its disk, the prober and the collection do to a copy."""
        yield from super().copy_steps(state, shard, copy)
        if copy.at == CHECKED:
            yield "write_copy creates the index", copy._replace(at=DURABLE)
        elif copy.at == PROBED:
            yield "register", copy._replace(at=ACKED, named=2)
        if copy.doomed and state.base.hand == DELETES and state.base.at == BURIED:
            yield "the collection deletes below", copy._replace(below=False, doomed=False)

    def written(self, state: State, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """See that what the base has is there, before the index is written."""
        if copy.below and (state.base.pin != UNPINNED or self.rules.pin is Pin.NEVER):
            yield "check_stored", copy._replace(at=CHECKED)

    def completed(self, copy: Copy) -> Iterator[tuple[str, Copy]]:
        """Mend what is missing, also below, before it is registered; what DECISION names already counts."""
        if copy.named:
            yield "the prober mends", copy._replace(at=ACKED, below=True)
        elif copy.at != PROBED or not copy.below:
            yield "the prober completes", copy._replace(at=PROBED, below=True)

    def may_commit(self, state: State) -> bool:
        """Whether the base waits for it; else an abort is ordered."""
        return self.rules.pin is not Pin.UNTIL_OUTCOME or state.base.pin == PINNED

    def _pin(self, state: State) -> Iterator[Step]:
        base = state.base
        if base.pin == UNPINNED and base.at == LIVES and state.shown == STAGING:
            if self.rules.pin is not Pin.NEVER:
                yield "pin_base", state._replace(base=base._replace(pin=PINNED))
        elif base.pin == PINNED:
            acked = self.rules.pin is Pin.UNTIL_ACKED and self._is_acked(state)
            if state.shown != STAGING or acked:
                yield "still_pinned drops it", state._replace(base=base._replace(pin=DROPPED))

    def _is_acked(self, state: State) -> bool:
        needed = self.rules.copies // 2 + 1
        return all(sum(copy.at == ACKED for copy in shard) >= needed for shard in state.shards)

    def _mark(self, state: State) -> Iterator[Step]:
        """Mark the base, which nobody pins: in one step by compare-and-swap, else some time after that was read."""
        base = state.base
        if base.at == LIVES:
            is_free = base.pin != PINNED
            if self.rules.mark_is_cas:
                if is_free:
                    yield "mark", state._replace(base=base._replace(at=MARKED))
                return
            if is_free and not base.named:
                yield "to_retire names it", state._replace(base=base._replace(named=True))
            if base.named:
                yield "mark", state._replace(base=base._replace(at=MARKED, named=False))
        elif base.at == MARKED:
            yield "bury", state._replace(base=base._replace(at=BURIED))

    def _collect(self, state: State) -> Iterator[Step]:
        """List, look who lives, settle, spare; the deletions are steps of the copies (GC4, GC5, GC6)."""
        hand = state.base.hand
        if hand != OFF:
            yield "the collection stops", _doom(_hand(state, OFF), lambda _: False)
        if hand == OFF and (state.base.at == BURIED or self.rules.looks_first):
            listed = _doom(state, lambda copy: copy.below)
            after = ALIVE if state.decision == COMMIT else UNDECIDED if not state.decision else DELETES
            if after == UNDECIDED and not self.rules.settles_orphans:
                after = DELETES
            yield f"look: {('undecided', 'alive', 'gone')[state.decision]}", _hand(listed, after)
        elif hand == UNDECIDED:
            settled = state if state.decision else state._replace(decision=ABORT)
            yield "abort_orphan", _hand(settled, ALIVE if settled.decision == COMMIT else DELETES)
        elif hand == ALIVE:
            yield "spare what indexes refer to", _hand(self._spared(state), DELETES)

    def _spared(self, state: State) -> State:
        """Take from what is doomed what an index refers to, of whichever copy, since all of a shard are alike (GC5)."""
        shards = tuple(
            tuple(
                copy._replace(doomed=copy.doomed and not any(map(self._is_referring, others)))
                for copy in shard
                for others in (shard if self.rules.spares_other_copies else (copy,),)
            )
            for shard in state.shards
        )
        return state._replace(shards=shards)

    def _is_referring(self, copy: Copy) -> bool:
        """Whether it has an index; one that DECISION names, and that is lost, counts (GC5)."""
        is_lost = bool(copy.named) and copy.at == LOST
        return copy.at in _HAS_INDEX or (is_lost and self.rules.spares_lost)


def _counts(copy: Copy) -> bool:
    """Whether a restore may read it: DECISION names it, or it is registered (PB3)."""
    return copy.named == 1 or (copy.named == 2 and copy.at == ACKED)


def _hand(state: State, at: int) -> State:
    return state._replace(base=state.base._replace(hand=at))


def _doom(state: State, chosen: Callable[[Copy], bool]) -> State:
    shards = tuple(tuple(copy._replace(doomed=chosen(copy)) for copy in shard) for shard in state.shards)
    return state._replace(shards=shards)
