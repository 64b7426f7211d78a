"""What nobody asks for any more: swept, purged when it is old enough, and never anything that somebody refers to."""

import pytest

from memorystore import Died
from trainer_operator.agent import census, collection, leftovers, store, storeops
from trainer_operator.agent.backends import open_home
from trainer_operator.agent.records import dump_record

from .test_copying import FIRST, SECOND, THIRD, Trainer

DAY = 24 * 3600
NOW = 100 * DAY
ATTEMPT = "000000000040-e1-00ab"
FROZEN = {"frozen": b"f" * 90}


@pytest.fixture
def trainer(tmp_path):
    return Trainer(tmp_path)


def content(ckpt):
    return {**FROZEN, "head": ckpt.encode()}


def clear(trainer, at):
    return leftovers.clear(trainer.home, census.take(trainer.home), at=at)


def collect(trainer, ckpt, at):
    return storeops.run(trainer.home, {"op": "collect", "ckpt": ckpt, "at": at})


def begin(trainer, ckpt=ATTEMPT, *, at, base=None):
    """Write all of an attempt, and decide nothing."""
    store.write_intent(trainer.at(ckpt), {"step": store.step_of(ckpt), "base": base or "", "at": at})
    trainer.write(ckpt, content(ckpt), base=base)


def left(trainer, ckpt):
    prefix = trainer.at(ckpt).prefix
    return {key[len(prefix) :] for key in trainer.memory.objects if key.startswith(prefix)}


RECORDS = {"DECISION", "GC"}

# -- attempts


def test_an_attempt_that_nobody_decided_for_a_day_is_aborted_and_swept(trainer):
    """PB5, CS4: its object is gone, or its store took no record; its base keeps all it has."""
    trainer.save(FIRST, content(FIRST))
    begin(trainer, at=NOW, base=FIRST)
    before = dict(trainer.memory.objects)
    assert clear(trainer, NOW + DAY).value() == {"swept": 0, "purged": 0, "unknown": []}
    assert trainer.memory.objects == before
    assert clear(trainer, NOW + DAY + 1).value() == {"swept": 1, "purged": 0, "unknown": []}
    assert left(trainer, ATTEMPT) == RECORDS
    assert store.read_decision(trainer.at(ATTEMPT)).reason == "Orphaned"
    assert trainer.read(FIRST) == content(FIRST)


def test_an_attempt_that_is_committed_meanwhile_stays(trainer):
    """DE1, PB5: the first decision holds, also against who wants to abort after a day."""
    begin(trainer, at=NOW)
    known = census.take(trainer.home)
    trainer.commit(ATTEMPT)
    assert leftovers.clear(trainer.home, known, at=NOW + 2 * DAY).swept == 0
    assert trainer.read(ATTEMPT) == content(ATTEMPT)


@pytest.mark.parametrize("intent", [None, {"v": 1, "step": 40}, {"v": 99, "at": 1}, {"v": 1, "at": "1"}])
def test_what_does_not_say_when_it_began_is_told_and_stays(trainer, intent):
    """GC7: it is not ours, of an older or a newer version."""
    trainer.write(ATTEMPT, content(ATTEMPT))
    if intent is not None:
        trainer.memory.objects[trainer.at(ATTEMPT).record("INTENT")] = dump_record(intent)
    before = dict(trainer.memory.objects)
    assert clear(trainer, NOW).unknown == [ATTEMPT]
    assert trainer.memory.objects == before


def test_a_target_that_was_missed_is_swept_with_a_later_collection(trainer):
    """CS2, CS4: a holder had saved before another one said that it was past; there is no object of that id."""
    begin(trainer, at=NOW)
    store.decide_abort(trainer.at(ATTEMPT), step=40, epoch=1, reason="TargetPassed", nonce="n", begun=NOW + 5)
    assert clear(trainer, NOW + DAY).swept == 0
    assert clear(trainer, NOW + DAY + 6).swept == 1
    assert left(trainer, ATTEMPT) == RECORDS


def test_what_a_late_writer_left_goes_before_the_records(trainer):
    """CS4, IV8: it does not hear of the abort, and goes on after the sweep."""
    begin(trainer, at=NOW)
    store.abandon(trainer.at(ATTEMPT), reason="Timeout", begun=NOW)
    collect(trainer, ATTEMPT, NOW)
    trainer.write(ATTEMPT, content(ATTEMPT))
    assert clear(trainer, NOW + 8 * DAY).value() == {"swept": 1, "purged": 0, "unknown": []}
    assert left(trainer, ATTEMPT) == RECORDS
    assert clear(trainer, NOW + 8 * DAY).purged == 1
    assert left(trainer, ATTEMPT) == set()


# -- records


def test_records_go_seven_days_after_the_collection_and_not_sooner(trainer):
    """DE4: a commit that is held up meets them, or comes from nobody."""
    for ckpt in (FIRST, SECOND):
        trainer.save(ckpt, {"own": ckpt.encode()})
    collect(trainer, FIRST, NOW)
    assert clear(trainer, NOW + 7 * DAY).purged == 0
    assert left(trainer, FIRST) == RECORDS
    assert collect(trainer, SECOND, NOW + 7 * DAY + 1) == {
        "deleted": 3,
        "swept": 0,
        "purged": 1,
        "unknown": [],
    }
    assert left(trainer, FIRST) == set()
    assert left(trainer, SECOND) == RECORDS


def test_the_records_of_an_owner_stay_for_seven_days_after_the_last_that_refers_to_it(trainer):
    """DE4, GC5: the data of the first goes with the third, a month later."""
    for ckpt, base in ((FIRST, None), (SECOND, FIRST), (THIRD, SECOND)):
        trainer.save(ckpt, content(ckpt), base=base)
    for ckpt in (FIRST, SECOND):
        collect(trainer, ckpt, NOW)
    assert clear(trainer, NOW + 30 * DAY).purged == 1
    assert left(trainer, SECOND) == set()
    assert trainer.read(THIRD) == content(THIRD)
    collect(trainer, THIRD, NOW + 30 * DAY)
    assert left(trainer, FIRST) == left(trainer, THIRD) == RECORDS
    assert clear(trainer, NOW + 37 * DAY).purged == 0
    assert clear(trainer, NOW + 38 * DAY).purged == 2
    assert trainer.memory.objects == {}


def test_a_tombstone_that_does_not_say_when_it_was_written_stays(trainer):
    """DE4: nobody knows who may still be held up."""
    trainer.save(FIRST, content(FIRST))
    collection.collect(trainer.at(FIRST))
    assert clear(trainer, NOW).purged == 0
    trainer.memory.objects[trainer.at(FIRST).record("GC")] = b"torn"
    assert clear(trainer, NOW).purged == 0
    assert left(trainer, FIRST) == RECORDS


@pytest.mark.parametrize("dies_after", [False, True])
def test_a_death_at_any_call_leaves_no_commit_without_its_tombstone(trainer, dies_after):
    """DE4, GC6: DECISION goes first; a repetition makes it good, and nobody who refers to anything is hurt."""
    for ckpt, base in ((FIRST, None), (SECOND, FIRST), (THIRD, SECOND)):
        trainer.save(ckpt, content(ckpt), base=base)
    begin(trainer, at=NOW, base=THIRD)
    for ckpt in (FIRST, SECOND):
        collection.collect(trainer.at(ckpt), at=NOW)
    before = dict(trainer.memory.objects)
    trainer.memory.plan()
    clear(trainer, NOW + 8 * DAY)
    calls, after = trainer.memory.calls, dict(trainer.memory.objects)
    assert left(trainer, SECOND) == set()
    assert calls > 20
    for at in range(calls):
        trainer.memory.objects = dict(before)
        trainer.memory.plan(die_at=at, dies_after=dies_after)
        with pytest.raises(Died):
            clear(trainer, NOW + 8 * DAY)
        trainer.memory.plan()
        assert store.committed(trainer.home) == [THIRD]
        assert trainer.read(THIRD) == content(THIRD)
        clear(trainer, NOW + 8 * DAY)
        assert trainer.memory.objects == after


def test_a_collection_reads_nothing_of_what_was_purged(trainer):
    """KT7: what it reads follows from the last days, not from all that ever was."""
    steps = [f"{step:012d}-e1-00ab" for step in range(100, 160)]
    for ckpt in steps:
        trainer.save(ckpt, {"own": ckpt.encode()})
    for ckpt in steps[:-2]:
        collection.collect(trainer.at(ckpt), at=NOW)
    assert clear(trainer, NOW + 8 * DAY).purged == 58
    trainer.memory.plan()
    collect(trainer, steps[-2], NOW + 8 * DAY)
    assert trainer.memory.calls < 30


def test_one_that_was_purged_is_collected_already(trainer):
    """GC6: a leader that was away for a week finds its mark, and orders again."""
    for ckpt in (FIRST, SECOND):
        trainer.save(ckpt, {"own": ckpt.encode()})
    collect(trainer, FIRST, NOW)
    trainer.memory.delete_many([trainer.at(FIRST).record("DECISION")])
    assert collect(trainer, FIRST, NOW)["deleted"] == 0
    collect(trainer, SECOND, NOW + 8 * DAY)
    assert left(trainer, FIRST) == set()
    assert collect(trainer, FIRST, NOW) == {"deleted": 0, "swept": 0, "purged": 0, "unknown": []}


def test_foreign_files_are_told_and_keep_their_folder(trainer):
    """GC7, FC04: nobody's draft is deleted with the records."""
    for ckpt in (FIRST, SECOND):
        trainer.save(ckpt, {"own": ckpt.encode()})
    trainer.memory.objects[trainer.at(FIRST).record("notes.txt")] = b"mine"
    collect(trainer, FIRST, NOW)
    found = collect(trainer, SECOND, NOW + 8 * DAY)
    assert (found["purged"], found["unknown"]) == (0, [f"ckpt/{FIRST}/notes.txt"])
    assert left(trainer, FIRST) == {*RECORDS, "notes.txt"}


def test_a_decision_of_a_newer_version_fails_no_sweep(trainer):
    """CK5, CS4: of an aborted attempt nothing is shared; the rest waits."""
    trainer.save(FIRST, content(FIRST))
    trainer.memory.objects[trainer.at(FIRST).record("DECISION")] = b'{"v":9}'
    begin(trainer, at=NOW)
    store.abandon(trainer.at(ATTEMPT), reason="Timeout")
    found = collect(trainer, ATTEMPT, NOW)
    assert found["deleted"] > 0
    assert found["uncleared"].startswith("Malformed: ")


def test_in_a_directory_the_folder_goes_too(tmp_path):
    """DE4, KT7: else each collection would look into it."""
    home = open_home(str(tmp_path / "ns" / "digits-01234567"))
    for ckpt in (FIRST, SECOND):
        where = store.CheckpointDir(home, ckpt)
        store.write_intent(where, {"step": store.step_of(ckpt), "at": NOW})
        where.store.create(where.chunk(0, "a" * 64), b"data")
        store.abandon(where, reason="Timeout", begun=NOW)
    storeops.run(home, {"op": "collect", "ckpt": FIRST, "at": NOW})
    storeops.run(home, {"op": "collect", "ckpt": SECOND, "at": NOW + 8 * DAY})
    assert store.ids(home) == [SECOND]
