"""A writer whose contents come back, beside collectors of what it leaves behind, round after round: no chunk is lost.

The store's part is the real code, and a collection runs in a thread of its own while the next checkpoint is written.
A round takes nine hours of the records' time, so that after nineteen of them their records are purged.
ROUNDS sets how many; `make checkpoint-soak` takes 10,000.
"""

import os
import random
import threading
from dataclasses import replace

import pytest

from memorystore import MemoryStore
from trainer_operator.agent import collection, copying, index, packed, store, storeops
from trainer_operator.agent.backends import Home
from trainer_operator.api.status import TrainerStatus
from trainer_operator.checkpoint.pins import choose_base, is_pinned, still_pinned
from trainer_operator.checkpoint.retention import Kept, to_retire

ROUNDS = int(os.environ.get("ROUNDS", "300"))
RETENTION = 2
ROUND_SECONDS = 9 * 3600
FORGOTTEN = 60
"""Rounds after which an object goes whose records are purged."""


class Soak:
    """One Trainer's objects and its part of a store."""

    def __init__(self, folder, *, seed):
        self.memory = MemoryStore()
        self.home = Home(self.memory, "t")
        self.spool = str(folder / "spool")
        self.random = random.Random(seed)
        self.objects: dict[str, Kept] = {}
        self.contents: dict[str, dict[str, bytes]] = {}
        self.now = 0
        self.committed = self.reused = self.collected = 0

    def at(self, kept):
        return store.CheckpointDir(self.home, kept.id)

    def round(self, number):
        """Write one checkpoint while what is marked is collected; every seventh is given up."""
        self.now = number * ROUND_SECONDS
        kept = self.stage(number)
        victims = [c for c in self.objects.values() if c.marked and c.state == "Committed"]
        failures: list[BaseException] = []
        collectors = [threading.Thread(target=self.collect, args=(c, failures)) for c in victims]
        for collector in collectors:
            collector.start()
        self.write(kept)
        self.decide(kept, aborts=number % 7 == 0)
        for name in to_retire(self.objects.values(), RETENTION):
            self.objects[name] = replace(self.objects[name], marked=True)
        for collector in collectors:
            collector.join()
        assert not failures
        for victim in victims:
            self.objects[victim.name] = replace(self.objects[victim.name], state="GarbageCollected")
        self.collected += len(victims)
        self.forget(number)

    def stage(self, number):
        name, step = f"c{number}", number * 10
        kept = Kept(name, step, number, "Staging", "Unknown", id=f"{step:012d}-e1-00ab", shards=1)
        base = choose_base(self.objects.values(), name=name, shards=1, store_id="")
        if base is not None:
            self.objects[base.name] = replace(base, pins=(*base.pins, name))
            kept = replace(kept, base=base.id)
        self.objects[name] = kept
        letter = b"ab"[number % 2 : number % 2 + 1]  # two contents by turns, so that what goes comes back
        self.contents[kept.id] = {
            "frozen": b"f" * 8,
            "alternating": letter * 8,
            "new": b"%08d" % number,
            "drawn": self.random.choice((b"x", b"y")) * 8,
        }
        return kept

    def write(self, kept):
        where, content = self.at(kept), self.contents[kept.id]
        before = self.contents[kept.base] if kept.base else {}
        sources = []
        for name, data in content.items():
            unchanged = name == "frozen" and before.get(name) == data
            sources.append(
                packed.Source(name, "|u1", (len(data),), memoryview(b"" if unchanged else data), unchanged)
            )
        packed.write(self.spool, sources, step=kept.step, ps_epoch=0, meta={})
        store.write_intent(where, {"step": kept.step, "base": kept.base, "at": self.now})
        base = where.sibling(kept.base) if kept.base else None
        done = copying.write_copy(where, packed.read_header(self.spool), shard=0, copy=0, epoch=1, base=base)
        store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=kept.step, epoch=1))
        self.reused += done.reused > 0

    def decide(self, kept, *, aborts):
        assert not kept.base or is_pinned(self.objects.values(), base=kept.base, holder=kept.name)
        where, about = self.at(kept), {"step": kept.step, "epoch": 1, "reason": "r", "nonce": kept.id}
        if aborts:
            store.decide_abort(where, begun=self.now, **about)
            self.order(kept)
            self.objects[kept.name] = replace(kept, state="GarbageCollected")
        else:
            assert store.decide_commit(where, shards=1, copies=1, **about).committed
            self.objects[kept.name] = replace(kept, state="Committed", health="Healthy")
            self.committed += 1
        for name, each in self.objects.items():
            self.objects[name] = replace(
                each, pins=tuple(still_pinned(each.pins, self.objects.values(), TrainerStatus()))
            )

    def collect(self, kept, failures):
        try:
            self.order(kept)
        except BaseException as error:  # the round fails with it
            failures.append(error)

    def order(self, kept):
        """Have it collected as an agent does, which purges what is old as well (DE4)."""
        found = storeops.run(self.home, {"op": "collect", "ckpt": kept.id, "at": self.now})
        assert "uncleared" not in found

    def forget(self, number):
        for kept in list(self.objects.values()):
            is_old = kept.state == "GarbageCollected" and kept.sequence < number - FORGOTTEN
            if is_old and not any(key.startswith(self.at(kept).prefix) for key in self.memory.objects):
                del self.objects[kept.name], self.contents[kept.id]

    def check(self):
        """Every checkpoint that exists is whole; return their ids."""
        alive = store.committed(self.home)
        kept = {c.id for c in self.objects.values() if c.state == "Committed" and not c.marked}
        assert kept <= set(alive)
        for ckpt in alive:
            found = index.read_shard(store.CheckpointDir(self.home, ckpt), 0)[1]
            assert {name: bytes(data) for name, data in found.items()} == self.contents[ckpt]
        return alive


@pytest.mark.timeout(7200)
def test_no_chunk_is_lost_to_collectors_while_contents_come_back(tmp_path):
    """KT8, FC07, FC08: two contents by turns, under keys that name who wrote them."""
    soak = Soak(tmp_path, seed=8)
    for number in range(1, ROUNDS + 1):
        soak.round(number)
        assert soak.check()
    assert soak.committed == ROUNDS - ROUNDS // 7
    assert soak.reused > ROUNDS // 2
    assert soak.collected >= soak.committed - RETENTION - 2
    assert len(soak.memory.objects) < 250, "what nobody refers to is gone"
    print(f"\n{ROUNDS} rounds: {soak.committed} committed, {soak.collected} collected, 0 chunks lost")


def test_a_chunk_stays_for_one_that_was_marked_and_has_no_tombstone_yet(tmp_path):
    """FC11, GC4: the operator died in between, and the one that it shares the chunk with is retired."""
    soak = Soak(tmp_path, seed=11)
    for number in (1, 2, 3):
        kept = soak.stage(number)
        soak.write(kept)
        soak.decide(kept, aborts=False)
    marked, owner = soak.objects["c2"], soak.objects["c1"]
    soak.objects["c2"] = replace(marked, marked=True)  # and then the operator died
    soak.objects["c1"] = replace(owner, marked=True)
    before = dict(soak.memory.objects)
    soak.memory.plan()
    collection.collect(soak.at(owner))
    calls = soak.memory.calls
    assert soak.check() == [soak.objects["c3"].id, marked.id]
    for at in range(calls):
        soak.memory.objects = dict(before)
        soak.memory.plan(die_at=at)
        failures: list[BaseException] = []
        soak.collect(owner, failures)
        soak.memory.plan()
        assert failures
        assert marked.id in soak.check(), "a rebuild from the store finds it whole"
        collection.collect(soak.at(owner))
        assert marked.id in soak.check()
