"""Collection: what only the victim needs goes, what others refer to stays until the last of them goes."""

import pytest

from memorystore import Died, MemoryStore
from trainer_operator.agent import collection, index, scrub, store
from trainer_operator.agent.backends import Home, NotFound
from trainer_operator.agent.records import Malformed

from .test_copying import FIRST, SECOND, THIRD, Trainer

FROZEN = {"frozen": b"f" * 90}


@pytest.fixture
def trainer(tmp_path):
    """Three checkpoints that share what the first one wrote."""
    trainer = Trainer(tmp_path)
    for ckpt, base in ((FIRST, None), (SECOND, FIRST), (THIRD, SECOND)):
        trainer.save(ckpt, content(ckpt), base=base)
    return trainer


def content(ckpt):
    return {**FROZEN, "head": ckpt.encode()}


def left(trainer):
    return {key.rpartition("/")[2] for key in trainer.memory.objects}


@pytest.mark.parametrize(
    "order", [(FIRST, SECOND, THIRD), (THIRD, SECOND, FIRST), (SECOND, FIRST, THIRD), (FIRST, THIRD, SECOND)]
)
def test_shared_chunks_go_with_the_last_that_refers_to_them(trainer, order):
    """GC4, GC5, IV3, IV8."""
    for number, victim in enumerate(order):
        collection.collect(trainer.at(victim))
        for survivor in order[number + 1 :]:
            assert trainer.read(survivor) == content(survivor)
            assert index.verify(trainer.at(survivor))[1] == []
        assert not set(trainer.chunks(victim)) - set(trainer.chunks(FIRST))
    assert left(trainer) == {"DECISION", "GC"}


def test_a_death_at_any_call_is_made_good_by_a_fresh_look(trainer):
    """GC6, CP6, CP7, CP8: in pairs with the collection of another that shares the chunk."""
    before = dict(trainer.memory.objects)
    trainer.memory.plan()
    collection.collect(trainer.at(FIRST))
    calls = trainer.memory.calls
    assert calls > 10
    for dies_after in (False, True):
        for at in range(calls):
            trainer.memory.objects = dict(before)
            trainer.memory.plan(die_at=at, dies_after=dies_after)
            with pytest.raises(Died):
                collection.collect(trainer.at(FIRST))
            trainer.memory.plan()
            assert trainer.read(SECOND) == content(SECOND)
            collection.collect(trainer.at(SECOND))
            assert trainer.read(THIRD) == content(THIRD)
            collection.collect(trainer.at(FIRST))
            collection.collect(trainer.at(THIRD))
            assert left(trainer) == {"DECISION", "GC"}


class WhileItLooks:
    """A store as a collector sees it that read the third before, and the second after, they changed."""

    def __init__(self, trainer):
        self._trainer, self._inner = trainer, trainer.memory
        self._early, self._late = (
            trainer.at(THIRD).record("DECISION"),
            trainer.at(SECOND).record("GC"),
        )

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get(self, key, *, limit):
        if key == self._early:
            self._early = ""
            raise NotFound("it is not decided yet")
        return self._inner.get(key, limit=limit)

    def get_range(self, key, *, start, length):
        if key == self._late:
            self._late = ""
            self._trainer.commit(THIRD)
            store.bury(self._trainer.at(SECOND))
        return self._inner.get_range(key, start=start, length=length)


def test_one_that_is_committed_during_the_look_is_not_missed(tmp_path):
    """GC4, GC5: its pin is dropped and its base marked right afterwards; a single look would count neither of them."""
    trainer = Trainer(tmp_path)
    trainer.save(FIRST, content(FIRST))
    trainer.save(SECOND, content(SECOND), base=FIRST)
    trainer.write(THIRD, content(THIRD), base=SECOND)
    collection.collect(store.CheckpointDir(Home(WhileItLooks(trainer), "t"), FIRST))
    assert store.committed(trainer.home) == [THIRD]
    assert trainer.read(THIRD) == content(THIRD)


class AfterItLooked:
    """A store as a collector sees it that counted the second, and finds it deleted when it reads its index."""

    def __init__(self, trainer):
        self._trainer, self._inner = trainer, trainer.memory
        self._index = trainer.at(SECOND).index(0, 0)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def get(self, key, *, limit):
        if key == self._index:
            self._index = ""
            self._trainer.commit(THIRD)
            collection.collect(self._trainer.at(SECOND))
        return self._inner.get(key, limit=limit)


def test_one_that_was_counted_and_is_deleted_before_its_index_is_read_is_no_loss(tmp_path):
    """GC4, GC5, IV3: the third was undecided during the look, and relied on the second being counted."""
    trainer = Trainer(tmp_path)
    trainer.save(FIRST, content(FIRST))
    trainer.save(SECOND, content(SECOND), base=FIRST)
    trainer.write(THIRD, content(THIRD), base=SECOND)
    collection.collect(store.CheckpointDir(Home(AfterItLooked(trainer), "t"), FIRST))
    assert store.committed(trainer.home) == [THIRD]
    assert trainer.read(THIRD) == content(THIRD)


def test_an_attempt_whose_base_is_collected_is_aborted_first(tmp_path):
    """GC3, IV3: its object was deleted, so nobody pins for it; a commit that is under way finds the abort."""
    trainer = Trainer(tmp_path)
    trainer.save(FIRST, content(FIRST))
    trainer.save(SECOND, content(SECOND), base=FIRST)
    store.write_intent(trainer.at(THIRD), {"base": SECOND})
    trainer.write(THIRD, content(THIRD), base=SECOND)
    collection.collect(trainer.at(SECOND))
    trainer.commit(THIRD)
    assert store.committed(trainer.home) == [FIRST]
    assert store.read_decision(trainer.at(THIRD)).reason == "BaseLost"


def test_what_a_damaged_index_may_refer_to_stays(trainer):
    """IV3, GC5: a repair from another copy needs it."""
    trainer.memory.objects[trainer.at(SECOND).index(0, 0)] = b"{}"
    collection.collect(trainer.at(FIRST))
    collection.collect(trainer.at(THIRD))
    assert list(trainer.chunks(FIRST).values()) == [FROZEN["frozen"] + FIRST.encode()]
    collection.collect(trainer.at(SECOND))
    assert left(trainer) == {"DECISION", "GC"}


def test_what_a_copy_refers_to_that_the_prober_is_about_to_complete_stays(tmp_path):
    """IV3, GC5, PB3: it has looked at its chunks, and has not written its index yet."""
    trainer = Trainer(tmp_path)
    for copy in (0, 1):
        trainer.write(FIRST, content(FIRST), copy=copy)
    trainer.commit(FIRST, copies=2)
    store.write_intent(trainer.at(SECOND), {"base": FIRST, "copies": 2})
    trainer.save(SECOND, content(SECOND), base=FIRST)
    prober = WhileItCompletes(trainer)
    where = store.CheckpointDir(Home(prober, "t"), SECOND)
    throttle = scrub.Throttle(1e9, clock=lambda: 0.0, pause=lambda _: None)
    assert scrub.Scrub(where, throttle=throttle).run().completed == 1
    assert prober.collected
    found = scrub.Scrub(trainer.at(SECOND), throttle=throttle).run()
    assert (found.bad, found.lacking, found.repaired) == ([], 0, 0)


class WhileItCompletes:
    """A store as a prober sees it that is held up before it writes an index, while a collection of the base runs."""

    def __init__(self, trainer):
        self._trainer, self._inner = trainer, trainer.memory
        self.collected = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create(self, key, data):
        if key == self._trainer.at(SECOND).index(0, 1):
            self.collected += 1
            collection.collect(self._trainer.at(FIRST))
        return self._inner.create(key, data)


def test_nothing_is_deleted_while_a_decision_cannot_be_read(trainer):
    """CK5: a newer version may have written it, and it might refer to anything."""
    trainer.memory.objects[trainer.at(THIRD).record("DECISION")] = b'{"v":9}'
    chunks = trainer.chunks(FIRST)
    with pytest.raises(Malformed):
        collection.collect(trainer.at(FIRST))
    assert trainer.chunks(FIRST) == chunks


def test_an_aborted_attempt_is_swept_and_its_base_stays(trainer):
    """CS4: an attempt deletes nothing but its own."""
    aborted = "000000000040-e1-00ab"
    trainer.write(aborted, content(aborted), base=THIRD)
    store.decide_abort(trainer.at(aborted), step=40, epoch=1, reason="Timeout", nonce="n")
    collection.collect(trainer.at(aborted))
    assert trainer.chunks(aborted) == {}
    assert trainer.read(THIRD) == content(THIRD)


def test_a_store_that_ids_nobody_knows_lie_in_is_collected_around_them(trainer):
    """GC7, FC04: unknown names are neither counted nor deleted."""
    foreign = {"t/ckpt/notes/c0/aa/x": b"mine", "t/ckpt/000000000050-e1-00ab/draft": b"mine"}
    trainer.memory.objects.update(foreign)
    for ckpt in (FIRST, SECOND, THIRD):
        collection.collect(trainer.at(ckpt))
    assert foreign.items() <= trainer.memory.objects.items()


def test_a_listing_in_small_pages_gives_the_same(tmp_path):
    """CP13, KT7: nothing depends on how much the store lists at a time."""
    trainer = Trainer(tmp_path)
    trainer.memory = MemoryStore(page=1)
    trainer.home = type(trainer.home)(trainer.memory, "t")
    for ckpt, base in ((FIRST, None), (SECOND, FIRST)):
        trainer.save(ckpt, content(ckpt), base=base)
    collection.collect(trainer.at(FIRST))
    assert trainer.read(SECOND) == content(SECOND)
    collection.collect(trainer.at(SECOND))
    assert left(trainer) == {"DECISION", "GC"}
