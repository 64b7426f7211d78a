"""The saver: every copy ends in one ack, and a bad one says in words that the operator knows what is wrong."""

import os
import threading

import pytest

from trainer_operator.agent import packed, store
from trainer_operator.agent.backends import Full, HomeOpener, NoConditionalWrites, NoRights, open_home
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.saver import NICENESS, SaveOrder, Saver
from trainer_operator.agent.settings import read_settings
from trainer_operator.agent.state import State

CKPT = "000000000040-e2-00ab"
ENVIRONMENT = {
    "TRAINER_NAME": "digits",
    "TRAINER_NAMESPACE": "default",
    "TRAINER_UID": "uid",
    "TRAINER_ROLE": "worker",
    "TRAINER_POD_UID": "pod",
}


class Case:
    """A saver, with what it was asked for and what it reported."""

    def __init__(self, folder, open_home=None):
        self.folder = folder
        self.home = HomeOpener(str(folder / "ns" / "digits-01234567"), "")
        self.state = State(lambda: 0.0)
        self.log = []
        settings = read_settings(ENVIRONMENT, folder=str(folder))
        self.saver = Saver(settings, self.state, open_home=open_home or self.home, log=self.log.append)

    def save(self, *, step=40, copies=(0, 1), **order):
        data = b"0123456789"
        path = str(self.folder / "spool")
        source = packed.Source("w", "|u1", (len(data),), memoryview(data))
        packed.write(path, [source], step=40, ps_epoch=0, meta={})
        self.saver.enqueue(SaveOrder(CKPT, step, 0, copies, 2, **order), path)
        assert self.saver.wait_idle(60)
        assert not os.path.exists(path)
        return self.state.view().acks

    @property
    def where(self):
        return store.CheckpointDir(self.home(), CKPT)


def test_an_order_leaves_intent_copies_and_acks_in_the_store(tmp_path):
    """CS2, QR3, IV11."""
    case = Case(tmp_path)
    acks = case.save(intent={"step": 40, "world": 2})
    assert [(ack.copy, ack.ok, ack.bytes) for ack in acks] == [(0, True, 10), (1, True, 10)]
    assert sorted(store.read_acks(case.where)[0]) == [0, 1]
    intent = case.where.store.get(case.where.record("INTENT"), limit=1000)
    assert b'"world":2' in intent
    assert store.store_id(case.home())


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_written_to_another_store_than_the_one_that_is_expected(tmp_path, there):
    """CK7: StoreChanged, and nothing lost."""
    case = Case(tmp_path)
    if there:
        store.identify(case.home())
    before = sorted(tmp_path.rglob("*"))
    acks = case.save(store_id="f" * 32)
    assert [ack.ok for ack in acks] == [False, False]
    assert all(ack.error.startswith("StoreChanged: ") for ack in acks)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("error", [Full("no room"), NoRights("refused"), NoConditionalWrites("ignored")])
def test_what_is_wrong_with_the_store_is_told_by_name(tmp_path, error):
    """PB4."""

    def fail():
        raise error

    acks = Case(tmp_path, fail).save()
    assert {ack.error for ack in acks} == {error.told}


def test_a_store_that_is_a_file_is_one_sentence(tmp_path):
    """Bad input: a file lies where the directory should be."""
    (tmp_path / "ns").write_text("")
    (ack,) = Case(tmp_path).save(copies=(0,))
    assert not ack.ok
    assert "\n" not in ack.error


def test_data_of_another_step_is_refused(tmp_path):
    """QR4."""
    (ack,) = Case(tmp_path).save(step=41, copies=(0,))
    assert "saved step 40 instead of 41" in ack.error


def test_a_home_that_cannot_be_opened_fails_the_copies(tmp_path):
    """TN3: the Secret is not there yet."""

    def missing():
        return open_home("s3://bucket/ns/digits-01234567", credentials=str(tmp_path / "nothing"))

    (ack,) = Case(tmp_path, missing).save(copies=(0,))
    assert ack.error.startswith(
        "NoRights: the Secret of checkpoint.credentialsSecret has no AWS_ACCESS_KEY_ID"
    )


def test_a_handed_over_file_needs_no_hash_but_its_whole_length(tmp_path):
    """FZ3: training waits while it is written; a file that lost its end is refused all the same."""
    path = str(tmp_path / "spool")
    source = packed.Source("w", "|u1", (1000,), memoryview(b"w" * 1000))
    packed.write(path, [source], step=40, ps_epoch=0, meta={}, hashed=False)
    found = packed.read_header(path)
    packed.verify(found)
    assert bytes(packed.read_tensor(found, found.tensors[0])) == b"w" * 1000
    assert os.path.getsize(path) == found.data_start + 1000
    os.truncate(path, os.path.getsize(path) - 1)
    with pytest.raises(Malformed, match="is torn"):
        packed.read_header(path)


def test_copies_are_written_behind_training_and_the_rest_of_the_agent_is_not(tmp_path):
    """FZ3, DT3: heartbeats are not late because of a save; threads that the saver starts step back as it does."""
    seen = []

    def open_home():
        thread = threading.Thread(target=lambda: seen.append(os.getpriority(os.PRIO_PROCESS, 0)))
        thread.start()
        thread.join(60)
        seen.append(os.getpriority(os.PRIO_PROCESS, 0))
        raise NoRights("refused")

    before = os.getpriority(os.PRIO_PROCESS, 0)
    Case(tmp_path, open_home).save()
    assert seen == [min(19, before + NICENESS)] * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
