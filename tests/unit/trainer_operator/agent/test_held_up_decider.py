"""A decider that is held up between two calls, as long as it takes, while others decide, sweep and lose."""

import pytest

from memorystore import MemoryStore
from storecontract import patient
from trainer_operator.agent import collection, copying, index, inventory, packed, store
from trainer_operator.agent.backends import Home, Unreachable

CKPT = "000000000040-e2-00ab"
AGAIN = "000000000040-e2-00cd"
NEXT = "000000000041-e2-00ef"
SHARDS, COPIES, ACKED = 2, 3, 2
TENSORS = {"w": b"0123456789" * 5, "b": b"bias"}


class HeldUpStore(MemoryStore):
    """Before the n-th call from now on, something else happens; that makes calls of its own."""

    def __init__(self):
        super().__init__()
        self._left, self._meanwhile = -1, None

    def hold_up(self, at, meanwhile):
        self._left, self._meanwhile = at, meanwhile

    def _call(self):
        with self._lock:  # readers are threads
            self._left -= 1
            meanwhile = self._meanwhile if self._left == -1 else None
        if meanwhile is not None:
            meanwhile()
        return super()._call()


class Ground:
    """Two shards with two durable copies of three each, and whoever decides about them."""

    def __init__(self, folder):
        self.memory = HeldUpStore()
        self.home = Home(patient(self.memory), "t")
        self.where = store.CheckpointDir(self.home, CKPT)
        self.folder = folder
        store.identify(self.home)
        self.save(self.where)

    def save(self, where):
        sources = [packed.Source(name, "|u1", (len(d),), memoryview(d)) for name, d in TENSORS.items()]
        path = str(self.folder / where.ckpt)
        packed.write(path, sources, step=store.step_of(where.ckpt), ps_epoch=0, meta={})
        step = store.step_of(where.ckpt)
        store.write_intent(where, {"step": step})
        for shard in range(SHARDS):
            for copy in range(ACKED):
                read = packed.read_header(path)
                done = copying.write_copy(where, read, shard=shard, copy=copy, epoch=2)
                store.write_ack(where, shard, copy, ack=done.ack("pod", "node", step=step, epoch=2))

    def commit(self, where=None):
        chosen = where or self.where
        wanted = {"shards": SHARDS, "copies": COPIES, "step": store.step_of(chosen.ckpt), "epoch": 2}
        return store.decide_commit(chosen, **wanted, reason="Interval", nonce="one")

    def abort(self):
        """What another leader does: it sweeps only what is not committed."""
        decision = store.decide_abort(self.where, step=40, epoch=2, reason="Timeout", nonce="two")
        if not decision.committed:
            collection.collect(self.where)
        return decision

    def calls_of(self, operation):
        before = self.memory.calls
        operation()
        return self.memory.calls - before

    def restored(self, where=None):
        return [
            {name: bytes(data) for name, data in index.read_shard(where or self.where, shard)[1].items()}
            for shard in range(SHARDS)
        ]

    def data(self):
        return [key for key in self.memory.objects if f"/{CKPT}/c" in key]


def test_a_commit_that_is_held_up_at_any_call_follows_an_abort_that_came_first(tmp_path):
    """CP15, FC12, DE1, DE2, DE4, IV2: between quorum and DECISION, too; what is committed is whole, else swept."""
    ground = Ground(tmp_path)
    calls = ground.calls_of(ground.commit)
    assert calls > SHARDS * ACKED
    outcomes = []
    for held_at in range(calls):
        ground, told = Ground(tmp_path), []
        ground.memory.hold_up(held_at, lambda ground=ground, told=told: told.append(ground.abort()))
        try:
            told.append(ground.commit())
        except store.QuorumNotReached:  # it was swept while it was counted: the leader asks again
            told.append(ground.commit())
        assert told == [store.read_decision(ground.where)] * 2, held_at
        outcomes.append(told[0].outcome)
        if told[0].committed:
            assert ground.restored() == [TENSORS] * SHARDS
        else:
            assert ground.data() == []
            assert store.committed(ground.home) == []
    assert set(outcomes) == {"commit", "abort"}
    assert outcomes == sorted(outcomes), "once DECISION was there, nobody aborts any more"


def test_an_abort_that_is_held_up_at_any_call_follows_a_commit_that_came_first(tmp_path):
    """CP15, DE1, DE2, IV2: nothing of a committed one is swept."""
    ground = Ground(tmp_path)
    calls = ground.calls_of(ground.abort)
    outcomes = []
    for held_at in range(calls):
        ground, told = Ground(tmp_path), []
        ground.memory.hold_up(held_at, lambda ground=ground, told=told: told.append(ground.commit()))
        told.append(ground.abort())
        assert told == [store.read_decision(ground.where)] * 2, held_at
        outcomes.append(told[0].outcome)
        assert not told[0].committed or ground.restored() == [TENSORS] * SHARDS
    assert set(outcomes) == {"commit", "abort"}


def test_a_commit_that_is_tried_again_counts_again(tmp_path):
    """DE3, QR2, CP14: what was counted before the store failed proves nothing."""
    ground = Ground(tmp_path)
    ground.commit()
    before_decision = ground.memory.calls

    ground = Ground(tmp_path)
    first_call = ground.memory.calls

    def loses_a_copy_and_fails():
        ground.memory.objects.pop(ground.where.index(1, 0))
        raise Unreachable("cut off")

    patience = ground.home
    ground.where = store.CheckpointDir(Home(ground.memory, "t"), CKPT)  # one try, as seen from the agent
    ground.memory.hold_up(before_decision - first_call - 2, loses_a_copy_and_fails)
    with pytest.raises(Unreachable):
        ground.commit()
    ground.where = store.CheckpointDir(patience, CKPT)
    with pytest.raises(store.QuorumNotReached) as refused:
        ground.commit()
    assert refused.value.acks == {"0": 2, "1": 1}
    assert store.read_decision(ground.where) is None


def test_the_step_of_an_aborted_attempt_is_saved_at_once_under_another_id(tmp_path):
    """FC03, CK2, RS1: nothing remembers the failed one as the latest."""
    ground = Ground(tmp_path)
    ground.abort()
    again = store.CheckpointDir(ground.home, AGAIN)
    ground.save(again)
    assert ground.commit(again).committed
    assert store.committed(ground.home) == store.committed(ground.home, step=40) == [AGAIN]
    assert ground.restored(again) == [TENSORS] * SHARDS


def test_a_newer_one_that_has_all_data_and_no_decision_is_not_there(tmp_path):
    """FC02, CK1, RS1, RS6: the newest folder by its step is not the newest checkpoint."""
    ground = Ground(tmp_path)
    ground.commit()
    newer = store.CheckpointDir(ground.home, NEXT)
    ground.save(newer)
    assert store.ids(ground.home)[-1] == NEXT
    assert store.committed(ground.home) == [CKPT]
    assert [entry["id"] for entry in inventory.inventory(ground.home, after="")["found"]] == [CKPT]
    with pytest.raises(index.NotRestorable):
        index.check_restorable(newer, 0)
