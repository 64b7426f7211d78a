"""Commit, abort, pin and collection of checkpoints in one model (DE, GC).

C1 = {X, Y} is committed, and C2 = {X of C1}. Two attempts follow: A = {X, Y} builds on C2, B = {Z} on C2 or A; or else
A = {Z} on C2, B = {X} on C2. Leaders write the objects, one compare-and-swap at a time, whenever they see the reason;
which leader makes no difference. What a leader ordered is carried out at any time later, or never. Two collections are
under way at a time, and may stop after any call and forget what they knew: the first reads and deletes one thing after
the other, the second learns who lives at one instant. The writers of the attempts need no leader once they were told,
and do not hear of an abort.

The steps bear the names of the functions that they stand for. What is one call to the API server or to the store is
one step. What can wait without learning anything new is not held up in a state of its own: a delayed abort is an abort
that comes later, a delayed commit is not, for what it was ordered on may be over by then.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from models.explorer import Verdict, explore
from models.rules import Look, Pin, Purge, Rules

C1, C2, A, B = range(4)
NAMES = ("C1", "C2", "A", "B")
ATTEMPTS = (A, B)
X1, Y1, YA = 1, 2, 4
CHUNKS = {X1: "X of C1", Y1: "Y of C1", YA: "Y of A"}
OWNED = (X1 | Y1, 0, YA, 0)
(ABSENT, PENDING, STAGING, COMMITTED, MARKED, COLLECTED, ABORTED, DELETED) = range(8)
OVER = frozenset({COMMITTED, MARKED, COLLECTED, ABORTED, DELETED})
CREATED = OVER | {PENDING, STAGING}
NONE, COMMIT, ABORT = range(3)
UNTOLD, ACKED = range(2)


class Hand(NamedTuple):
    """How far a collection is, and what it knows; sets are bits."""

    at: str = ""
    ckpt: int = 0
    doomed: int = 0
    """Chunks that will be deleted."""
    alive: int = 0
    gone: int = 0
    names: int = 0
    """Checkpoints of this look."""
    unread: int = 0
    seen: int = 0
    """Undecided ones of this look."""
    before: int = -1
    """Undecided ones of the look before."""


IDLE = Hand()


class State(NamedTuple):
    """Everything that is durable or under way."""

    objects: tuple[int, ...]
    pins: tuple[int, ...]
    """By base, the attempts that it waits for, as bits."""
    bases: tuple[int, ...]
    """By attempt, once it stages."""
    writers: tuple[int, ...]
    orders: int
    """Attempts whose commit was ordered and has not been tried yet, as bits."""
    named: int
    """Checkpoints that somebody is about to mark, having read that nobody pins them, as bits."""
    decisions: tuple[int, ...]
    tombstones: int
    indexes: int
    chunks: int
    hands: tuple[Hand, Hand]


START = State(
    objects=(COMMITTED, COMMITTED, ABSENT, ABSENT),
    pins=(0, 0, 0, 0),
    bases=(C1, C1, C1, C1),
    writers=(ACKED, ACKED, UNTOLD, UNTOLD),
    orders=0,
    named=0,
    decisions=(COMMIT, COMMIT, NONE, NONE),
    tombstones=0,
    indexes=1 << C1 | 1 << C2,
    chunks=X1 | Y1,
    hands=(IDLE, IDLE),
)
Step = tuple[str, State]


class Checkpoints:
    """The model under one set of rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def explore(self) -> Verdict:
        """Visit every state."""
        return explore(START, steps=self.steps, violation=self.violation)

    def violation(self, state: State) -> str:
        """Say what is wrong with a state (IV2, IV3, IV6, IV8)."""
        if COMMITTED not in state.objects:
            return "no checkpoint is left"
        living = 0
        for ckpt in range(4):
            phase, decision = state.objects[ckpt], state.decisions[ckpt]
            lives = decision == COMMIT and not state.tombstones >> ckpt & 1
            refers = self._refers(ckpt)
            living |= refers if lives else 0
            if lives and refers & ~state.chunks:
                return f"{NAMES[ckpt]} has DECISION commit and lacks {_names(refers & ~state.chunks)}"
            if phase == COMMITTED and not lives:
                return f"the object of {NAMES[ckpt]} says Committed, the store does not"
            if phase == ABORTED and decision == COMMIT:
                return f"{NAMES[ckpt]} was told to be aborted, and is committed"
        for ckpt in (C1, A):
            owned = OWNED[ckpt] & state.chunks
            if (
                state.objects[ckpt] == COLLECTED
                and owned
                and not _has_records(state, ckpt)
                and not owned & living
            ):
                return f"nobody will ever delete {_names(owned)}"
        return ""

    def steps(self, state: State) -> Iterator[Step]:
        """Yield what can happen next."""
        yield from self._writers(state)
        yield from self._objects(state)
        yield from self._decisions(state)
        yield from self._janitors(state)
        for which in (0, 1):
            hand = state.hands[which]
            if hand.at:
                yield f"{which + 1} stops", _do(state, which, IDLE)
                yield from self._work[hand.at](self, state, which, hand)
            else:
                yield from self._begin(state, which)

    # -- what needs no hand: one write each

    def _writers(self, state: State) -> Iterator[Step]:
        """An attempt's agent: INTENT, what the base lacks, index and ack (QR3)."""
        for ckpt in ATTEMPTS:
            at = state.writers[ckpt]
            name = NAMES[ckpt]
            if at == UNTOLD and state.objects[ckpt] in (STAGING, ABORTED, DELETED) and state.bases[ckpt]:
                own = self._refers(ckpt) & ~self._refers(state.bases[ckpt])
                chunks = state.chunks | own
                if not self._refers(ckpt) & ~chunks:  # else `check_stored` refuses
                    stored = state._replace(writers=_set(state.writers, ckpt, ACKED), chunks=chunks)
                    stored = stored._replace(indexes=state.indexes | 1 << ckpt)
                    yield f"write_intent({name}), write_copy creates {_names(own)}, write_ack", stored

    def _objects(self, state: State) -> Iterator[Step]:
        """What any leader writes into one object, compare-and-swap, whenever it sees the reason."""
        rules, objects = self._rules, state.objects
        for ckpt in ATTEMPTS:
            name, phase, decision = NAMES[ckpt], objects[ckpt], state.decisions[ckpt]
            if phase == ABSENT and (ckpt == A or objects[A] in (CREATED if rules.overlap else OVER)):
                yield f"create({name})", state._replace(objects=_set(objects, ckpt, PENDING))
            elif phase == PENDING:
                yield from self._stage(state, ckpt)
            elif phase == STAGING and decision:
                outcome = COMMITTED if decision == COMMIT else ABORTED
                said = "Committed" if decision == COMMIT else "Aborted"
                yield f"apply({name}, {said})", state._replace(objects=_set(objects, ckpt, outcome))
            if rules.objects_vanish and phase in (PENDING, STAGING):
                yield f"a user deletes object {name}", state._replace(objects=_set(objects, ckpt, DELETED))
        for ckpt in range(3):
            buried = state.tombstones >> ckpt & 1
            if objects[ckpt] == MARKED and not buried and state.decisions[ckpt]:
                yield f"bury({NAMES[ckpt]})", state._replace(tombstones=state.tombstones | 1 << ckpt)
            elif objects[ckpt] == MARKED and not state.indexes >> ckpt & 1:
                ended = state._replace(objects=_set(objects, ckpt, COLLECTED))
                yield f"apply({NAMES[ckpt]}, GarbageCollected)", ended
        for base in (C2, A):
            waited = state.pins[base]
            for ckpt in ATTEMPTS:
                over = objects[ckpt] in OVER or (
                    rules.pin is Pin.UNTIL_ACKED and state.writers[ckpt] == ACKED
                )
                if waited >> ckpt & 1 and over:
                    dropped = _set(state.pins, base, waited & ~(1 << ckpt))
                    yield f"still_pinned({NAMES[base]}) drops {NAMES[ckpt]}", state._replace(pins=dropped)
        yield from self._marks(state)

    def _marks(self, state: State) -> Iterator[Step]:
        """Mark what `to_retire` names: in one step by compare-and-swap, else some time after it was read."""
        retirable = list(self._retirable(state))
        if self._rules.mark_is_cas:
            for ckpt in retirable:
                yield f"mark({NAMES[ckpt]})", state._replace(objects=_set(state.objects, ckpt, MARKED))
            return
        for ckpt in range(3):
            bit = 1 << ckpt
            if ckpt in retirable and not state.named & bit:
                yield f"to_retire names {NAMES[ckpt]}", state._replace(named=state.named | bit)
            if state.named & bit and state.objects[ckpt] == COMMITTED:
                marked = state._replace(objects=_set(state.objects, ckpt, MARKED))
                yield f"mark({NAMES[ckpt]})", marked._replace(named=state.named & ~bit)

    def _stage(self, state: State, ckpt: int) -> Iterator[Step]:
        """Pin the newest, then stage on what is pinned; in between another one may become the newest.

        Both are compare-and-swaps, so what is pinned is Committed then, even if it is not the newest any more.
        """
        chosen, name = C2 if self._rules.behind and ckpt == B else _newest(state), NAMES[ckpt]
        never = self._rules.pin is Pin.NEVER
        if not never and not state.pins[chosen] >> ckpt & 1 and state.objects[chosen] == COMMITTED:
            pinned = _set(state.pins, chosen, state.pins[chosen] | 1 << ckpt)
            yield f"pin_base({name}, {NAMES[chosen]})", state._replace(pins=pinned)
        for base in (C2, A):
            if state.pins[base] >> ckpt & 1 or (never and base == chosen):
                staged = state._replace(objects=_set(state.objects, ckpt, STAGING))
                staged = staged._replace(bases=_set(state.bases, ckpt, base))
                yield f"apply({name}, Staging) on {NAMES[base]}", staged

    def _decisions(self, state: State) -> Iterator[Step]:
        """Create DECISION if it is absent (DE1); what came first is read by whoever looks."""
        for ckpt in ATTEMPTS:
            name, bit, undecided = NAMES[ckpt], 1 << ckpt, not state.decisions[ckpt]
            waits = state.objects[ckpt] == STAGING and undecided and state.writers[ckpt] == ACKED
            if waits and state.indexes & bit and not state.orders & bit and self._is_pinned(state, ckpt):
                yield f"commit({name}) is ordered", state._replace(orders=state.orders | bit)
            if state.orders & bit and undecided:
                committed = state._replace(decisions=_set(state.decisions, ckpt, COMMIT))
                yield f"decide_commit({name})", committed._replace(orders=state.orders & ~bit)
            if state.objects[ckpt] in (STAGING, DELETED) and undecided:
                yield f"decide_abort({name})", self._abort(state, ckpt)

    def _abort(self, state: State, ckpt: int) -> State:
        return state._replace(decisions=_set(state.decisions, ckpt, ABORT))

    def _janitors(self, state: State) -> Iterator[Step]:
        """Sweep of aborted attempts (CS4, PB5), and purge of records (DE4), whatever the objects say."""
        for ckpt in ATTEMPTS:
            if state.decisions[ckpt] == ABORT:
                bit = 1 << ckpt
                swept = state._replace(tombstones=state.tombstones | bit, indexes=state.indexes & ~bit)
                swept = swept._replace(chunks=state.chunks & ~self._own(ckpt))
                if not self._rules.sweep_keeps_decision:
                    swept = swept._replace(decisions=_set(state.decisions, ckpt, NONE))
                yield f"collect({NAMES[ckpt]}) sweeps", swept
        if self._rules.purge is Purge.NEVER:
            return
        for ckpt in range(4):
            if self._is_purgeable(state, ckpt):
                if self._rules.purge is Purge.TOMBSTONE_FIRST or not state.decisions[ckpt]:
                    bare = state._replace(tombstones=state.tombstones & ~(1 << ckpt))
                    yield f"purge({NAMES[ckpt]}) deletes GC", bare
                else:
                    bare = state._replace(decisions=_set(state.decisions, ckpt, NONE))
                    yield f"purge({NAMES[ckpt]}) deletes DECISION", bare

    def _is_purgeable(self, state: State, ckpt: int) -> bool:
        purge = self._rules.purge
        left = state.chunks & OWNED[ckpt] or state.indexes >> ckpt & 1
        if not state.tombstones >> ckpt & 1 or (left and purge is not Purge.WITH_DATA):
            return False
        held_up = state.orders >> ckpt & 1 or any(hand.at and hand.ckpt == ckpt for hand in state.hands)
        return purge is Purge.AT_ONCE or not held_up

    # -- what a hand begins

    def _begin(self, state: State, which: int) -> Iterator[Step]:
        tag = which + 1
        for ckpt in range(3):
            name = NAMES[ckpt]
            if state.objects[ckpt] == MARKED and state.tombstones >> ckpt & 1:
                yield f"{tag} collect({name}) lists", self._list(state, which, ckpt)
        if self._rules.looks_first and not which:
            for ckpt in self._retirable(state):
                yield f"{tag} lists {NAMES[ckpt]}", self._list(state, which, ckpt)

    def _retirable(self, state: State) -> Iterator[int]:
        """Yield what `to_retire` may name: committed, not the newest, not pinned (GC1)."""
        newest = _newest(state)
        for ckpt in range(3):
            if state.objects[ckpt] == COMMITTED and ckpt != newest and not state.pins[ckpt]:
                yield ckpt

    def _is_pinned(self, state: State, ckpt: int) -> bool:
        base = state.bases[ckpt]
        pinned = state.pins[base] >> ckpt & 1 and state.objects[base] == COMMITTED
        return bool(pinned) or self._rules.pin is not Pin.UNTIL_OUTCOME

    # -- what a hand goes on with, a call at a time

    def _list(self, state: State, which: int, ckpt: int) -> State:
        """List what is doomed: the data of the victim and of those of its owners that are buried."""
        doomed = self._listed(state, ckpt)
        if which or self._rules.look is Look.FROM_OBJECTS:
            return self._look_at_once(state, which, Hand("delete", ckpt, doomed=doomed))
        return self._living(state, which, Hand("", ckpt, doomed=doomed))

    def _look_at_once(self, state: State, which: int, hand: Hand) -> State:
        alive, doomed = 0, hand.doomed
        for ckpt in range(4):
            if self._rules.look is Look.FROM_OBJECTS:
                lives = state.objects[ckpt] == COMMITTED
            else:
                lives = state.decisions[ckpt] == COMMIT and not state.tombstones >> ckpt & 1
            if lives and ckpt != hand.ckpt:
                alive |= 1 << ckpt
                doomed &= ~self._refers(ckpt)
        for ckpt in self._orphans(state, alive):
            if not state.decisions[ckpt]:
                state = self._abort(state, ckpt)
        return _do(state, which, hand._replace(doomed=doomed))

    def _orphans(self, state: State, alive: int) -> Iterator[int]:
        """Yield the attempts that were begun and whose base does not live."""
        if self._rules.settles_orphans:
            for ckpt in ATTEMPTS:
                if state.writers[ckpt] != UNTOLD and not alive >> state.bases[ckpt] & 1:
                    yield ckpt

    def _listed(self, state: State, victim: int) -> int:
        owners = {C1: 1 << C1, C2: 1 << C1 | 1 << C2}.get(victim, 1 << C1 | 1 << A | 1 << victim)
        buried = owners & state.tombstones | 1 << victim
        doomed = sum(OWNED[ckpt] for ckpt in range(4) if buried >> ckpt & 1)
        if not self._rules.own_keys:
            doomed |= self._refers(victim)
        return doomed & state.chunks

    def _living(self, state: State, which: int, hand: Hand) -> State:
        """Begin a look. What can change no more is read at once, since it makes no difference when."""
        if not hand.doomed:
            return _do(state, which, Hand("delete", hand.ckpt))
        names = gone = 0
        for ckpt in range(4):
            bit = 1 << ckpt
            listed = state.writers[ckpt] != UNTOLD and _has_records(state, ckpt)
            if not listed or (hand.alive | hand.gone) & bit:
                continue
            names |= bit
            if state.tombstones & bit or state.decisions[ckpt] == ABORT or ckpt == hand.ckpt:
                gone |= bit
        looking = hand._replace(at="read", names=names, unread=names & ~gone, gone=hand.gone | gone, seen=0)
        return self._read_all(state, which, looking) if not looking.unread else _do(state, which, looking)

    def _read(self, state: State, which: int, hand: Hand) -> Iterator[Step]:
        """Read one checkpoint's DECISION and tombstone, in any order of checkpoints."""
        for ckpt in range(4):
            bit = 1 << ckpt
            if not hand.unread & bit:
                continue
            changed, said = hand._replace(unread=hand.unread & ~bit), "undecided"
            if not state.decisions[ckpt]:
                changed = changed._replace(seen=hand.seen | bit)
            elif state.decisions[ckpt] == COMMIT and not state.tombstones & bit:
                changed, said = changed._replace(alive=hand.alive | bit), "alive"
            else:
                changed, said = changed._replace(gone=hand.gone | bit), "gone"
            done = not changed.unread
            following = self._read_all(state, which, changed) if done else _do(state, which, changed)
            yield f"{which + 1} look({NAMES[ckpt]}): {said}", following

    def _read_all(self, state: State, which: int, hand: Hand) -> State:
        """End a look: once more, or settle what is undecided, then spare."""
        nothing_new = hand.seen == hand.before and hand.seen == hand.names
        if self._rules.look is not Look.ONCE and not nothing_new:
            return self._living(state, which, hand._replace(before=hand.seen))
        orphans = sum(1 << ckpt for ckpt in self._orphans(state, hand.alive) if hand.seen >> ckpt & 1)
        clean = Hand("settle", hand.ckpt, doomed=hand.doomed, alive=hand.alive, unread=orphans)
        return _do(state, which, clean) if orphans else self._spare_next(state, which, clean)

    def _settle(self, state: State, which: int, hand: Hand) -> Iterator[Step]:
        """Abort an undecided attempt whose base does not live, unless it was committed first."""
        ckpt = A if hand.unread >> A & 1 else B
        left = hand._replace(unread=hand.unread & ~(1 << ckpt))
        if not state.decisions[ckpt]:
            state = self._abort(state, ckpt)
        elif state.decisions[ckpt] == COMMIT:
            left = left._replace(alive=hand.alive | 1 << ckpt)
        following = _do(state, which, left) if left.unread else self._spare_next(state, which, left)
        yield f"{which + 1} abort_orphan({NAMES[ckpt]})", following

    def _spare_next(self, state: State, which: int, hand: Hand) -> State:
        """Go on with the next living checkpoint that refers to what is doomed; the others change nothing."""
        for ckpt in range(4):
            if hand.alive >> ckpt & 1 and self._refers(ckpt) & hand.doomed:
                return _do(state, which, hand._replace(at="spare"))
        return _do(state, which, Hand("delete", hand.ckpt, doomed=hand.doomed))

    def _spare(self, state: State, which: int, hand: Hand) -> Iterator[Step]:
        """Read one living checkpoint's index, if another collection has not deleted it since."""
        ckpt = next(each for each in range(4) if hand.alive >> each & 1 and self._refers(each) & hand.doomed)
        left = hand._replace(alive=hand.alive & ~(1 << ckpt))
        if state.indexes >> ckpt & 1:
            left = left._replace(doomed=hand.doomed & ~self._refers(ckpt))
            yield f"{which + 1} spare({NAMES[ckpt]})", self._spare_next(state, which, left)
        elif self._rules.looks_again:
            again = self._living(state, which, Hand("", hand.ckpt, doomed=hand.doomed))
            yield f"{which + 1} finds no index of {NAMES[ckpt]}, looks again", again
        else:
            yield f"{which + 1} finds no index of {NAMES[ckpt]}", self._spare_next(state, which, left)

    def _delete(self, state: State, which: int, hand: Hand) -> Iterator[Step]:
        """Delete the doomed, one at a time, then the index and the other records but DECISION and GC."""
        ckpt, name = hand.ckpt, NAMES[hand.ckpt]
        if self._rules.looks_first and not state.tombstones >> ckpt & 1:
            return  # it is marked and buried first
        if hand.doomed:
            bit = hand.doomed & -hand.doomed
            fewer = state._replace(chunks=state.chunks & ~bit)
            yield (
                f"{which + 1} deletes {CHUNKS[bit]}",
                _do(fewer, which, hand._replace(doomed=hand.doomed ^ bit)),
            )
            return
        bare = state._replace(indexes=state.indexes & ~(1 << ckpt))
        if not self._rules.collection_keeps_records:
            bare = bare._replace(
                decisions=_set(state.decisions, ckpt, NONE), tombstones=state.tombstones & ~(1 << ckpt)
            )
        yield f"{which + 1} deletes the index of {name}", _do(bare, which, IDLE)

    _work: ClassVar[dict[str, Callable[["Checkpoints", State, int, Hand], Iterator[Step]]]] = {
        "read": _read,
        "settle": _settle,
        "spare": _spare,
        "delete": _delete,
    }

    # -- who refers to what

    def _own(self, ckpt: int) -> int:
        return OWNED[ckpt] if self._rules.own_keys else 0

    def _refers(self, ckpt: int) -> int:
        """X of C1, by way of the base; Y of its own."""
        if ckpt == C1:
            return X1 | Y1
        if ckpt == C2:
            return X1
        if ckpt == B:
            return X1 if self._rules.behind else 0
        if self._rules.behind:
            return 0
        return X1 | (YA if self._rules.own_keys else Y1)


def _do(state: State, which: int, hand: Hand) -> State:
    hands = state.hands
    return state._replace(hands=(hand, hands[1]) if which == 0 else (hands[0], hand))


def _set(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _newest(state: State) -> int:
    return max(ckpt for ckpt in range(4) if state.objects[ckpt] == COMMITTED)


def _has_records(state: State, ckpt: int) -> bool:
    if state.decisions[ckpt] or state.tombstones >> ckpt & 1:
        return True
    return (
        ckpt in ATTEMPTS and state.writers[ckpt] != UNTOLD and state.objects[ckpt] not in (COLLECTED, ABORTED)
    )


def _names(chunks: int) -> str:
    return ", ".join(name for bit, name in CHUNKS.items() if chunks & bit) or "nothing"
