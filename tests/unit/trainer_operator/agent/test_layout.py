"""Two layouts compared both ways, at a save, at the commit and at a restore; the first tensor that differs is named."""

import json

import numpy as np
import pytest

from memorystore import MemoryStore
from trainer_operator.agent import copying, index, packed, store
from trainer_operator.agent.backends import Home, HomeOpener
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.layout import LayoutChanged, difference, digest, layout_in, layout_of_state
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.saver import SaveOrder, Saver
from trainer_operator.agent.sdk.trainer_sdk import Job, RestoreFailed
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.state import State

CKPT, NEXT = "000000000040-e2-00ab", "000000000050-e2-00ab"
WEIGHTS, BIAS = np.ones((2, 3), "<f4"), np.zeros(3, "<f8")
STATE = {"bias": BIAS, "weights": WEIGHTS, "random": b"seed"}
CHANGES = {
    "added": ({**STATE, "extra": BIAS}, "tensor extra is <f8 of shape [3], expected absent"),
    "removed": ({"bias": BIAS, "random": b"seed"}, "tensor weights is absent, expected <f4 of shape [2, 3]"),
    "reshaped": ({**STATE, "weights": WEIGHTS.T}, "tensor weights is <f4 of shape [3, 2], expected <f4 of"),
    "retyped": ({**STATE, "bias": np.zeros(3, "<f4")}, "tensor bias is <f4 of shape [3], expected <f8 of"),
    "renamed": (
        {"b": BIAS, "weights": WEIGHTS, "random": b""},
        "tensor b is <f8 of shape [3], expected absent",
    ),
}
every_change = pytest.mark.parametrize(("changed", "sentence"), CHANGES.values(), ids=CHANGES)


@every_change
def test_each_difference_is_named_by_its_first_tensor(changed, sentence):
    """FC06: added, removed, reshaped, retyped."""
    found, expected = layout_of_state(changed), layout_of_state(STATE)
    assert difference(found, expected).startswith(sentence)
    assert difference(expected, found)
    assert digest(found) != digest(expected)


def test_the_order_of_tensors_and_the_length_of_bytes_are_no_difference():
    """FC06: pickled objects have another length each time."""
    other = {"random": b"a longer one", "weights": WEIGHTS + 1, "bias": BIAS}
    assert difference(layout_of_state(other), layout_of_state(STATE)) == ""
    assert digest(layout_of_state(other)) == digest(layout_of_state(STATE))
    assert difference(layout_of_state(STATE), None) == ""


# -- at a save and at a restore


class Pod:
    """An agent's conversation with a process, and the store that it saves to."""

    def __init__(self, folder):
        settings = read_settings(
            {
                "TRAINER_NAME": "t",
                "TRAINER_NAMESPACE": "ns",
                "TRAINER_UID": "uid",
                "TRAINER_ROLE": "worker",
                "TRAINER_POD_UID": "pod",
            },
            folder=str(folder / "agent"),
        )
        self.address = str(folder / "store" / "ns" / "t-01234567")
        self.home = HomeOpener(self.address, "")
        self.state = State(lambda: 0.0)
        self.saver = Saver(settings, self.state, open_home=self.home, log=lambda _line: None)
        self.conversation = Conversation(
            settings, self.state, saver=self.saver, socket_path=str(folder / "s")
        )
        self.environment = {
            "TRAINER_AGENT_SOCK": str(folder / "s"),
            "TRAINER_SPOOL_DIR": settings.spool_folder,
            "TRAINER_STORE": self.address,
        }
        self.jobs = []

    def process(self, **environment):
        self.jobs.append(Job({**self.environment, **environment}))
        return self.jobs[-1]

    def save(self, job, ckpt, state):
        """Ask the process for a checkpoint, have it save this state, and return what becomes of the copy."""
        step = store.step_of(ckpt)
        self.conversation.ask_checkpoint(SaveOrder(ckpt, step, 0, (0,), 2), pause=False, directive=ckpt)
        with job._told:
            assert job._told.wait_for(lambda: job._order is not None, 60)
        assert job.should_checkpoint(step)
        job.save(step, state)
        for _ in range(6000):
            acks = [ack for ack in self.state.view().acks if ack.ckpt == ckpt]
            if acks:
                return acks[0]
            with job._told:
                job._told.wait(0.01)
        raise AssertionError("no copy, good or bad, was reported")

    def commit(self, ckpt):
        where = store.CheckpointDir(self.home(), ckpt)
        step = store.step_of(ckpt)
        return store.decide_commit(
            where, shards=1, copies=1, step=step, epoch=2, reason="Interval", nonce="n"
        )

    def close(self):
        for job in self.jobs:
            if job._agent is not None:
                job._agent.shutdown(2)
        self.conversation.server.close()
        self.saver.wait_idle(60)


@pytest.fixture
def pod(tmp_path):
    pod = Pod(tmp_path)
    yield pod
    pod.close()


@every_change
def test_a_state_of_another_layout_than_was_saved_first_is_not_saved(pod, changed, sentence):
    """QR4, FC06: the attempt fails by name, training and the next checkpoint go on."""
    job = pod.process()
    assert pod.save(job, CKPT, STATE).ok
    refused = pod.save(job, NEXT, changed)
    assert not refused.ok
    assert refused.error.startswith("LayoutChanged: " + sentence)
    assert refused.error.endswith("call job.register(state) first")
    job.register(changed)
    assert pod.save(job, "000000000060-e2-00ab", changed).ok


@every_change
def test_a_checkpoint_of_another_layout_than_is_registered_is_not_restored(pod, changed, sentence):
    """RS5, FC06: the training code hears it before it has a single value."""
    assert pod.save(pod.process(), CKPT, changed).ok
    pod.commit(CKPT)
    job = pod.process(TRAINER_RESTORE_CKPT=CKPT, TRAINER_RESTORE_STEP="40")
    job.register(STATE)
    with pytest.raises(RestoreFailed) as refused:
        job.restore()
    assert str(refused.value).startswith(f"checkpoint {CKPT} is of another layout: {sentence}")
    assert all(result.ok for result in pod.state.view().results)  # the checkpoint is not at fault


def test_what_was_restored_is_what_counts_until_something_is_registered(pod):
    """QR4, FC06: a tensor that the new code forgot is noticed at its first save."""
    assert pod.save(pod.process(), CKPT, STATE).ok
    pod.commit(CKPT)
    job = pod.process(TRAINER_RESTORE_CKPT=CKPT, TRAINER_RESTORE_STEP="40")
    assert sorted(job.restore().state) == sorted(STATE)
    assert "tensor weights is absent" in pod.save(job, NEXT, {"bias": BIAS, "random": b""}).error


@pytest.mark.parametrize("servers", [1, 3])
def test_shards_of_another_number_of_servers_are_not_restored(pod, tmp_path, servers):
    """RS5: they are not cut anew; a shard that nobody reads must not go unnoticed."""
    where = store.CheckpointDir(pod.home(), CKPT)
    for shard in (0, 1):
        write_copy(where, tmp_path, STATE, shard=shard)
    commit(where, shards=2)
    members = [{"role": "ps", "index": n, "rank": n, "address": "a", "port": 1} for n in range(servers)]
    job = pod.process(
        TRAINER_ROLE="ps",
        TRAINER_RESTORE_CKPT=CKPT,
        TRAINER_RESTORE_STEP="40",
        TRAINER_MEMBERS=json.dumps(members),
    )
    with pytest.raises(RestoreFailed, match=f"has 2 shards, one of each server; there are {servers} now"):
        job.restore()
    assert all(result.ok for result in pod.state.view().results)


# -- at the commit


def write_copy(where, folder, state, *, shard=0, copy=0, epoch=2):
    path = str(folder / "spool")
    sources = [
        packed.Source(name, dtype, shape, memoryview(b"x" * int(np.prod(shape) * np.dtype(dtype).itemsize)))
        for name, (dtype, shape) in layout_of_state(state).items()
    ]
    packed.write(path, sources, step=40, ps_epoch=0, meta={})
    found = copying.write_copy(where, packed.read_header(path), shard=shard, copy=copy, epoch=epoch)
    store.write_ack(where, shard, copy, ack=found.ack("pod", "node", step=40, epoch=2))
    return found


def commit(where, *, shards=1, copies=1):
    return store.decide_commit(
        where, shards=shards, copies=copies, step=40, epoch=2, reason="Interval", nonce="n"
    )


@every_change
def test_copies_of_another_layout_are_not_committed(tmp_path, changed, sentence):
    """QR4, FC06: compared both ways, whichever copy has more."""
    where = store.CheckpointDir(Home(MemoryStore(), "t"), CKPT)
    for copy, state in enumerate((STATE, changed)):
        write_copy(where, tmp_path, state, copy=copy)
    with pytest.raises(LayoutChanged) as refused:
        commit(where, copies=2)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("shard 0: copy 1 is not the same state as copy 0: tensor ")
    assert store.read_decision(where) is None


def test_an_index_of_another_epoch_than_its_ack_does_not_count(tmp_path):
    """QR4: what the ack says is not enough."""
    where = store.CheckpointDir(Home(MemoryStore(), "t"), CKPT)
    write_copy(where, tmp_path, STATE, copy=0, epoch=3)
    with pytest.raises(store.QuorumNotReached):
        commit(where)


def test_indexes_that_name_no_layout_are_committed_as_before(tmp_path):
    """Version 2: an agent of the release before may write the other copy."""
    memory = MemoryStore()
    where = store.CheckpointDir(Home(memory, "t"), CKPT)
    for copy in (0, 1):
        write_copy(where, tmp_path, STATE, copy=copy)
    old = memory.objects[where.index(0, 1)]
    header = {**json.loads(old.partition(b"\n")[0]), "v": 2}
    del header["layout"]
    again = json.dumps(header).encode() + b"\n" + old.partition(b"\n")[2]
    memory.objects[where.index(0, 1)] = again
    ack = json.loads(memory.objects[where.ack(0, 1)])
    ack["idx_sha256"] = index.hashlib.sha256(again).hexdigest()
    memory.objects[where.ack(0, 1)] = json.dumps(ack).encode()
    assert sorted(commit(where, copies=2).shards[0]) == [0, 1]


@pytest.mark.parametrize(
    "line", [b'{"name": "w", "dtype": "<f4"}', b"{", b'{"name": 1, "dtype": 1, "shape": 1}']
)
def test_an_index_that_cannot_be_read_has_no_layout(line):
    """CK5."""
    with pytest.raises(Malformed, match="cannot be read"):
        layout_in(b'{"v": 3}\n' + line + b"\n")
