"""Attempts that reuse what their bases hold, and collectors, each dying at any store call: nothing shared is lost.

The store's part is the real one: writer, decision, collection. The objects' part is the project's pure one: which base
is chosen, how long it is pinned, what retention takes. Two attempts and two collections may be under way at a time, and
time passes: attempts that nobody decides are aborted and swept, and old records are purged.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from memorystore import Died, Fault, MemoryStore
from storecontract import patient
from trainer_operator.agent import census, copying, index, leftovers, packed, store, storeops
from trainer_operator.agent.backends import Home, StoreError
from trainer_operator.api.status import TrainerStatus
from trainer_operator.checkpoint.pins import choose_base, is_pinned, still_pinned
from trainer_operator.checkpoint.retention import Kept, to_retire

RETENTION = 1
HOUR = 3600
FAULTS = st.lists(
    st.sampled_from((None, None, None, Fault.LOST_ANSWER, Fault.TWICE, Fault.CONFLICT, Fault.ERROR)),
    max_size=8,
)
PLANS = st.fixed_dictionaries(
    {"faults": FAULTS, "die_at": st.none() | st.none() | st.integers(0, 30), "dies_after": st.booleans()}
)
CONTENT = st.fixed_dictionaries(
    {name: st.sampled_from((b"a", b"b")).map(lambda letter: letter * 8) for name in "xyz"}
)


class SharedChunks(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.memory = MemoryStore(page=3)
        self.home = Home(patient(self.memory), "t")
        self.objects: dict[str, Kept] = {}
        self.contents: dict[str, dict[str, bytes]] = {}
        self.number = 0
        self.now = 100 * 24 * HOUR
        self.begun: dict[str, int] = {}

    def run(self, operation, plan):
        """Run an operation as a process of its own; what it returns, None when it died or was refused."""
        self.memory.plan(**plan)
        try:
            return operation()
        except (Died, StoreError):
            return None
        finally:
            self.memory.plan()

    def where(self, kept):
        return store.CheckpointDir(self.home, kept.id)

    def named(self, state):
        return [c for c in self.objects.values() if c.state == state]

    @property
    def staging(self):
        return self.named("Staging")

    @precondition(lambda self: len(self.staging) < 2)
    @rule(content=CONTENT)
    def begin_attempt(self, content):
        """CS1: choose, pin, then stage."""
        self.number += 1
        name, step = f"c{self.number}", self.number * 10
        mine = Kept(name, step, self.number, "Staging", "Unknown", id=f"{step:012d}-e1-00ab", shards=1)
        base = choose_base(self.objects.values(), name=name, shards=1, store_id="")
        if base is not None:
            self.objects[base.name] = replace(base, pins=(*base.pins, name))
            mine = replace(mine, base=base.id)
        self.objects[name], self.contents[name], self.begun[name] = mine, content, self.now

    @precondition(lambda self: len(self.staging) < 2)
    @rule(content=CONTENT)
    def save(self, content):
        """One whole life without a fault, so that long lines of bases come about."""
        self.begin_attempt(content)
        mine = self.objects[f"c{self.number}"]
        self._write(mine)
        about = {"step": mine.step, "epoch": 1, "reason": "r", "nonce": "commit"}
        store.decide_commit(self.where(mine), shards=1, copies=1, **about)
        self.objects[mine.name] = replace(mine, state="Committed", health="Healthy")
        self.free_and_mark()

    @precondition(lambda self: self.staging)
    @rule(data=st.data(), plan=PLANS)
    def write(self, data, plan):
        kept = data.draw(st.sampled_from(self.staging))
        self.run(lambda: self._write(kept), plan)

    def _write(self, kept):
        where, base = self.where(kept), None
        content = self.contents[kept.name]
        unchanged = set()
        if kept.base:
            base = where.sibling(kept.base)
            before = next(self.contents[c.name] for c in self.objects.values() if c.id == kept.base)
            unchanged = {name for name in "xy" if before[name] == content[name]}
        sources = [
            packed.Source(
                name,
                "|u1",
                (len(value),),
                memoryview(b"" if name in unchanged else value),
                name in unchanged,
            )
            for name, value in content.items()
        ]
        path = str(Path(self.folder.name) / "spool")
        packed.write(path, sources, step=kept.step, ps_epoch=0, meta={})
        intent = {"step": kept.step, "base": kept.base, "at": self.begun[kept.name]}
        store.write_intent(where, intent)
        source, below = packed.read_header(path), copying.PACKED_BELOW * (kept.sequence % 3 > 0)
        done = copying.write_copy(where, source, shard=0, copy=0, epoch=1, base=base, packed_below=below)
        store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=kept.step, epoch=1))

    @precondition(lambda self: self.staging)
    @rule(data=st.data(), commits=st.booleans(), plan=PLANS)
    def decide(self, data, commits, plan):
        """CS3, CS4: the object follows what is read back; until then another leader may try the other way."""
        kept = data.draw(st.sampled_from(self.staging))
        if kept.base:
            assert is_pinned(self.objects.values(), base=kept.base, holder=kept.name), "GC3"
        where, about = self.where(kept), {"step": kept.step, "epoch": 1, "reason": "r"}
        decided = self.run(
            lambda: (
                store.decide_commit(where, shards=1, copies=1, nonce="commit", **about)
                if commits
                else store.decide_abort(where, nonce="abort", begun=self.begun[kept.name], **about)
            ),
            plan,
        )
        if decided is not None:
            state = "Committed" if decided.committed else "GarbageCollected"
            health = "Healthy" if decided.committed else "Unknown"
            self.objects[kept.name] = replace(self.objects[kept.name], state=state, health=health)

    @rule()
    def free_and_mark(self):
        """GC2, GC3: one compare-and-swap of one object at a time."""
        for kept in list(self.objects.values()):
            pins = tuple(still_pinned(kept.pins, self.objects.values(), TrainerStatus()))
            self.objects[kept.name] = replace(kept, pins=pins)
        for name in to_retire(self.objects.values(), RETENTION):
            self.objects[name] = replace(self.objects[name], marked=True)

    @rule(hours=st.sampled_from((1, 11, 25, 4 * 24, 8 * 24)))
    def time_passes(self, hours):
        """No leader leaves an attempt undecided for a week: that is what the age of records relies on (DE4)."""
        oldest = min((self.begun[c.name] for c in self.staging), default=self.now)
        self.now = max(self.now, min(self.now + hours * HOUR, oldest + 7 * 24 * HOUR))

    @precondition(lambda self: any(c.marked for c in self.named("Committed")))
    @rule(data=st.data(), plan=PLANS)
    def collect(self, data, plan):
        kept = data.draw(st.sampled_from([c for c in self.named("Committed") if c.marked]))
        if self.run(lambda: self._collect(kept), plan) is not None:
            self.objects[kept.name] = replace(kept, state="GarbageCollected")

    @precondition(lambda self: self.named("GarbageCollected"))
    @rule(data=st.data(), plan=PLANS)
    def collect_again(self, data, plan):
        """CS4, GC6: the sweep of an aborted attempt, or a leader that did not hear of the end, however late."""
        kept = data.draw(st.sampled_from(self.named("GarbageCollected")))
        self.run(lambda: self._collect(kept), plan)

    def _collect(self, kept):
        """As agents do, who then clear what is old."""
        args = {"op": "collect", "ckpt": kept.id, "at": self.now}
        found = storeops.run(self.home, args)
        assert "unknown" not in found or not found["unknown"], "GC7: all of it is ours"
        return found

    @invariant()
    def every_living_checkpoint_is_whole(self):
        """IV3, IV12: in the objects' view and in the store's."""
        if not hasattr(self, "objects"):
            return
        by_id = {c.id: c for c in self.objects.values()}
        alive = set(store.committed(self.home))
        assert {c.id for c in self.named("Committed") if not c.marked} <= alive
        for ckpt in alive:
            data = index.read_shard(store.CheckpointDir(self.home, ckpt), 0)[1]
            assert {name: bytes(value) for name, value in data.items()} == self.contents[by_id[ckpt].name]

    def teardown(self):
        if not hasattr(self, "objects"):
            return
        nothing = {"faults": (), "die_at": None, "dies_after": False}
        for kept in self.staging:
            where = self.where(kept)
            decided = store.decide_abort(where, step=kept.step, epoch=1, reason="r", nonce="abort")
            state = "Committed" if decided.committed else "GarbageCollected"
            self.objects[kept.name] = replace(kept, state=state)
        for kept in self.objects.values():
            assert not still_pinned(kept.pins, self.objects.values(), TrainerStatus()), "IV8"
            assert self.run(lambda kept=kept: self._collect(kept), nothing) is not None
        left = {key.rpartition("/")[2] for key in self.memory.objects}
        assert left <= {"DECISION", "GC"}, "IV8: what nobody refers to is gone"
        leftovers.clear(self.home, census.take(self.home), at=self.now + 8 * 24 * HOUR)
        assert not self.memory.objects, "DE4: and then its records"
        self.folder.cleanup()


TestSharedChunks = SharedChunks.TestCase
TestSharedChunks.settings = settings(max_examples=40, stateful_step_count=30)
