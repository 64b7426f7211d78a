"""What a process need not hand over again, and what gets past that."""

import gc
import os

import numpy as np
import pytest

from trainer_operator.agent import arrays, copying, index, packed, store
from trainer_operator.agent.backends import HomeOpener
from trainer_operator.agent.fingerprints import AUDIT_EVERY, Memory, fingerprint


def frozen(*values, dtype="<f4"):
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


class Process:
    """A training process and its agent, without the socket between them."""

    def __init__(self, folder):
        self.path = str(folder / "spool")
        self.memory = Memory()
        self.home = HomeOpener(str(folder / "ns" / "digits-01234567"), "")()
        self.base = ""
        self.step = 0

    def hand_over(self, state, *, base=None, part="0/0"):
        """Pack the state as `save` does; return the id and the packed file."""
        self.step += 10
        ckpt = f"{self.step:012d}-e1-00ab"
        base = self.base if base is None else base
        sources = self.memory.sources(state, ckpt=ckpt, part=part, base=base, whole=arrays.source)
        packed.write(self.path, sources, step=self.step, ps_epoch=0, meta={})
        return ckpt, packed.read_header(self.path)

    def save(self, state):
        """Save and commit; return what was written."""
        ckpt, source = self.hand_over(state)
        where = store.CheckpointDir(self.home, ckpt)
        base = where.sibling(self.base) if self.base else None
        done = copying.write_copy(where, source, shard=0, copy=0, epoch=1, base=base)
        self.memory.distrust(done.differing)
        store.write_ack(where, 0, 0, ack=done.ack("pod", "node", step=self.step, epoch=1))
        store.decide_commit(where, shards=1, copies=1, step=self.step, epoch=1, reason="Interval", nonce="n")
        self.base = ckpt
        return done

    def restored(self):
        found, data = index.read_shard(store.CheckpointDir(self.home, self.base), 0)
        return {
            t.name: np.frombuffer(data[t.name], dtype=t.dtype).reshape(t.shape).tolist()
            for t in found.tensors
        }


@pytest.fixture
def process(tmp_path):
    return Process(tmp_path)


def given(source):
    """Return the names of the tensors whose content is in the file."""
    return [tensor.name for tensor in source.tensors if tensor.length]


def test_with_nine_tenths_frozen_a_tenth_is_handed_over_and_written(process, tmp_path):
    """KT2, IV9, FZ1: index and records included."""
    state = {f"frozen{n}": frozen(*range(n, n + 25_000)) for n in range(9)}
    state["head"] = -np.arange(25_000, dtype="<f4")
    process.save(state)
    full, handed = size_of(tmp_path / "ns"), os.path.getsize(process.path)
    state["head"] = state["head"] - 0.5
    done = process.save(state)
    assert done.reused / done.bytes == pytest.approx(0.9)
    assert (size_of(tmp_path / "ns") - full) / full <= 0.12
    assert os.path.getsize(process.path) / handed <= 0.12
    assert process.restored() == {name: value.tolist() for name, value in state.items()}


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_an_array_that_may_be_written_to_is_handed_over_and_not_written_again(process):
    """FZ1: numpy counts no writes, so such an array is compared by its hash."""
    state = {"w": np.arange(100, dtype="<f4")}
    process.save(state)
    ckpt, source = process.hand_over(state)
    assert given(source) == ["w"]
    done = copying.write_copy(
        store.CheckpointDir(process.home, ckpt),
        source,
        shard=0,
        copy=0,
        epoch=1,
        base=store.CheckpointDir(process.home, process.base),
    )
    assert done.reused == done.bytes == 400


def test_memory_that_was_freed_and_given_out_again_is_no_fingerprint(process):
    """FZ1: the same address, shape and type, but another array."""
    state = {"w": frozen(1, 2, 3)}
    process.save(state)
    again = fingerprint(state["w"])
    assert again.lives()
    del state["w"]
    gc.collect()
    assert not again.lives()
    assert given(process.hand_over({"w": frozen(1, 2, 3)})[1]) == ["w"]


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3),
        np.zeros((2, 3))[:, 1],
        np.broadcast_to(np.zeros(1), (3,)),
        np.frombuffer(bytearray(8)),
        np.zeros(0),
        b"bytes",
        np.array([object()]),
    ],
    ids=["writable", "a view", "broadcast", "over a bytearray", "empty", "no array", "of objects"],
)
def test_what_somebody_may_write_to_has_no_fingerprint(value):
    """FZ1: a read-only view of a writable array included."""
    assert fingerprint(value) is None


def test_what_another_part_or_another_checkpoint_has_is_handed_over(process):
    """FZ4: a rank that saves another shard now compares with nothing."""
    state = {"w": frozen(1, 2, 3)}
    process.save(state)
    assert given(process.hand_over(state)[1]) == []
    assert given(process.hand_over(state, part="1/0")[1]) == ["w"]
    assert given(process.hand_over(state, base="000000000005-e1-00ab")[1]) == ["w"]
    assert given(process.hand_over(state, base="")[1]) == ["w"]


def test_a_write_past_the_flag_is_seen_at_once_or_by_the_audit_which_ends_the_trust(process):
    """FZ2: the sample sees a change of many elements; of one in between, the tenth checkpoint."""
    array = frozen(*range(1000))
    state = {"w": array, "other": frozen(7)}
    process.save(state)
    array.setflags(write=True)
    array[1] = -1
    array.setflags(write=False)
    found = [process.save(state).differing for _ in range(AUDIT_EVERY - 1)]
    assert found == [()] * (AUDIT_EVERY - 2) + [("w",)]
    assert process.restored()["w"][1] == -1
    assert given(process.hand_over(state)[1]) == ["w"]
    array = frozen(*range(1000))
    state = {"v": array}
    process.save(state)
    array.setflags(write=True)
    array += 1
    array.setflags(write=False)
    assert given(process.hand_over(state)[1]) == ["v"]
