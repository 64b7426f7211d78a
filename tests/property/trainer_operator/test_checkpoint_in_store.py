"""Commit, abort and collection on a store whose calls fail in every way, with a death at any of them (IV, CP).

What always holds is checked by the store itself, after every single change of it: not between operations only.
"""

import hashlib
import tempfile
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memorystore import HONEST, LIES, Died, Fault, MemoryStore
from storecontract import patient
from trainer_operator.agent import collection, copying, index, packed, store
from trainer_operator.agent.backends import Home, StoreError

CKPT = "000000000040-e2-00ab"
TENSORS = {"w": b"0123456789" * 5, "b": b"bias"}
COPIES = 3
KEYS = f"t/ckpt/{CKPT}/"


class Ground:
    """A store that is watched, and the operations of the processes that use it."""

    def __init__(self, folder):
        self.memory = MemoryStore(watch=self._changed)
        self.where = store.CheckpointDir(Home(patient(self.memory), "t"), CKPT)
        self.told = set()
        self.decision = None
        self.lies = False
        self.source = packed_file(folder)

    def write(self, copy):
        """What a holder does: identity, INTENT, chunks, index, ack."""
        store.identify(self.where.home)
        store.write_intent(self.where, {"step": 40})
        done = copying.write_copy(self.where, self.source, shard=0, copy=copy, epoch=2)
        store.write_ack(self.where, 0, copy, ack=done.ack("pod", "node", step=40, epoch=2))

    def commit(self, leader):
        arguments = {"shards": 1, "copies": COPIES, "step": 40, "epoch": 2, "reason": "Interval"}
        self.told.add(store.decide_commit(self.where, **arguments, nonce=f"{leader}-commit").digest)

    def abort(self, leader):
        self.told.add(
            store.decide_abort(self.where, step=40, epoch=2, reason="Timeout", nonce=f"{leader}-abort").digest
        )

    def collect(self):
        collection.collect(self.where)

    def run(self, operation, *arguments, faults=(), die_at=None, dies_after=False):
        """Run one operation as a process of its own; true when it came to its end."""
        self.memory.plan(faults=faults, die_at=die_at, dies_after=dies_after)
        try:
            operation(*arguments)
        except (Died, StoreError):
            return False
        finally:
            self.memory.plan()
        return True

    def state(self):
        """Return the decision in the store, if any, and whether it is being collected."""
        raw = self.memory.objects.get(KEYS + "DECISION")
        return (None if raw is None else store._parse_decision(raw)), KEYS + "GC" in self.memory.objects

    def _changed(self, memory, key):
        if self.lies:
            return
        decision, collected = self.state()
        if decision is not None:
            assert self.decision in (None, decision), "IV2: a decision changed"
            if self.decision is None and decision.committed:
                durable = [copy for copy in range(COPIES) if self._acked(copy) and not self._missing(copy)]
                assert len(durable) >= store.majority(COPIES), "IV1: committed without a majority"
            self.decision = decision
        if collected:
            assert decision is not None, "GC4: a tombstone without a decision"
            return
        if "/acks/" in key and key in memory.objects:
            assert not self._missing(int(key[-1])), "IV11: an ack before its chunks and index"
        if decision is not None and decision.committed:
            for copies in decision.shards.values():
                for copy in copies:
                    assert not self._missing(copy), "IV3: a committed copy lacks something"

    def _acked(self, copy):
        return self.where.ack(0, copy) in self.memory.objects

    def _missing(self, copy):
        """Return what a copy lacks, hashes included."""
        raw = self.memory.objects.get(self.where.index(0, copy))
        if raw is None:
            return ["index"]
        chunks = [chunk for tensor in index.parse(raw).tensors for chunk in tensor.chunks]
        found = {c.sha256: self.memory.objects.get(self.where.chunk(copy, c.sha256), b"") for c in chunks}
        return [sha256 for sha256, data in found.items() if hashlib.sha256(data).hexdigest() != sha256]

    def settle(self):
        """Let everything arrive, then have both leaders ask; they get one answer (IV7)."""
        self.memory.arrive()
        for leader in (1, 2):
            assert self.run(self.abort, leader)
        assert len(self.told) == 1, "IV2: both outcomes were told"
        decision, _ = self.state()
        assert self.told == {decision.digest}

    def restored(self):
        """Return what a restore gets."""
        return {name: bytes(data) for name, data in index.read_shard(self.where, 0)[1].items()}


def packed_file(folder):
    sources = [packed.Source(name, "|u1", (len(data),), memoryview(data)) for name, data in TENSORS.items()]
    path = str(folder) + "/source"
    packed.write(path, sources, step=40, ps_epoch=0, meta={})
    return packed.read_header(path)


def whole_life(ground):
    """Two copies, a commit, a collection: each step by a process of its own."""
    return [(ground.write, 0), (ground.write, 1), (ground.commit, 1), (ground.collect,)]


def length(operation, tmp_path, before):
    """Count the store calls of an operation after the ones before it."""
    ground = Ground(tmp_path)
    for number in range(before):
        assert ground.run(*whole_life(ground)[number])
    ground.memory.plan()
    step = whole_life(ground)[operation]
    step[0](*step[1:])
    return ground.memory.calls


@pytest.mark.parametrize("dies_after", [False, True])
@pytest.mark.parametrize("operation", range(4))
def test_a_death_at_every_store_call_and_again_while_it_is_repeated(operation, dies_after, tmp_path):
    """CP1, CP9, CP10, CP11, CP8, in pairs; IV1, IV3, IV7, IV11."""
    calls = length(operation, tmp_path, operation)
    assert calls > 3
    for first, second in product(range(calls), range(0, calls, 2)):
        ground = Ground(tmp_path)
        for number in range(operation):
            assert ground.run(*whole_life(ground)[number])
        step = whole_life(ground)[operation]
        assert not ground.run(*step, die_at=first, dies_after=dies_after)
        ground.run(*step, die_at=second, dies_after=dies_after)
        for later in whole_life(ground)[operation:]:
            assert ground.run(*later), (first, second)
        assert len(ground.told) == 1
        left = sorted(key for key in ground.memory.objects if key != "STORE")
        assert left == [KEYS + "DECISION", KEYS + "GC"]


class Processes(RuleBasedStateMachine):
    """Holders, two leaders and a collector, in any order, each dying anywhere, on a network that fails."""

    plans = st.fixed_dictionaries(
        {
            "faults": st.lists(st.sampled_from((None, None, *HONEST)), max_size=12),
            "die_at": st.none() | st.integers(0, 25),
            "dies_after": st.booleans(),
        }
    )

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.ground = Ground(self.folder.name)
        self.returned = set()

    @rule(copy=st.integers(0, COPIES - 1), plan=plans)
    def write(self, copy, plan):
        self.ground.run(self.ground.write, copy, **plan)

    @rule(leader=st.integers(1, 2), plan=plans)
    def commit(self, leader, plan):
        self.ground.run(self.ground.commit, leader, **plan)

    @rule(leader=st.integers(1, 2), plan=plans)
    def abort(self, leader, plan):
        self.ground.run(self.ground.abort, leader, **plan)

    @rule()
    def arrive(self):
        self.ground.memory.arrive()

    @precondition(lambda self: self.ground.state()[0] is not None)
    @rule(plan=plans)
    def collect(self, plan):
        self.ground.run(self.ground.collect, **plan)

    @invariant()
    def one_outcome_is_told(self):
        if not hasattr(self, "ground"):
            return
        assert len(self.ground.told) <= 1, "IV2"
        decision, collected = self.ground.state()
        if decision is not None and decision.committed and not collected:
            assert self.ground.restored() == TENSORS, "IV3, IV4"

    def teardown(self):
        if hasattr(self, "ground"):
            self.ground.settle()
            assert self.ground.run(self.ground.collect)
            assert store.committed(self.ground.where.home) == []
            self.folder.cleanup()


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(
    max_examples=50, stateful_step_count=30
)  # each step is dozens of store calls


@given(
    faults=st.lists(st.sampled_from((None, *Fault)), max_size=30),
    copies=st.lists(st.integers(0, COPIES - 1), min_size=2, max_size=4),
)
def test_a_store_that_lies_never_gives_other_content_than_was_saved(faults, copies, tmp_path_factory):
    """CP12, CP13, RS2, PB1: lost, torn and flipped writes make a copy bad, never a restore wrong."""
    ground = Ground(tmp_path_factory.getbasetemp())
    ground.lies = bool(LIES & set(faults))
    per_copy = -(-len(faults) // len(copies)) if faults else 0
    for number, copy in enumerate(copies):
        ground.run(ground.write, copy, faults=faults[number * per_copy : (number + 1) * per_copy])
    if not ground.run(ground.commit, 1):
        return
    decision, _ = ground.state()
    assert decision.committed
    try:
        assert ground.restored() == TENSORS
    except index.NotRestorable:
        assert ground.lies
        assert index.verify(ground.where)[1], "a scrub finds what a restore found"
