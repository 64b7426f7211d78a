"""What a new checkpoint builds on, and how long its base waits for it."""

from dataclasses import replace

import pytest

from trainer_operator.api.names import restore_pin, restoring_epoch
from trainer_operator.api.status import MembershipPhase, MembershipStatus, Phase, TrainerStatus
from trainer_operator.checkpoint.pins import choose_base, is_pinned, still_pinned
from trainer_operator.checkpoint.retention import Kept, to_retire

NEWEST = Kept("c2", 20, 2, "Committed", "Healthy", id="id-2", shards=1, store_id="s")
OLDER = Kept("c1", 10, 1, "Committed", "Healthy", id="id-1", shards=1, store_id="s")
MINE = Kept("c3", 0, 3, "Pending", "Unknown")
TRAINER = TrainerStatus()


def at(epoch, phase, *, membership=MembershipPhase.ACTIVE, ps_epoch=0):
    """A Trainer in this epoch."""
    status = MembershipStatus(epoch=epoch, ps_epoch=ps_epoch, phase=membership)
    return TrainerStatus(phase=phase, membership=status)


def chosen(*siblings, shards=1, store_id="s"):
    found = choose_base([*siblings, MINE], name="c3", shards=shards, store_id=store_id)
    return found.name if found is not None else None


def test_the_newest_committed_one_is_the_base():
    """CS1."""
    assert chosen(OLDER, NEWEST) == "c2"
    assert chosen() is None


@pytest.mark.parametrize(
    "changes",
    [{"health": "Corrupt"}, {"health": "Degraded"}, {"shards": 2}, {"store_id": "other"}, {"id": ""}],
)
def test_a_newest_one_that_does_not_fit_means_a_full_write(changes):
    """FZ4, CK7: an older one would not be what the processes compare with."""
    assert chosen(OLDER, replace(NEWEST, **changes)) is None


def test_a_marked_one_is_never_a_base():
    """GC2: a pin needs Committed and unmarked."""
    assert chosen(OLDER, replace(NEWEST, marked=True)) == "c1"


@pytest.mark.parametrize(("aborted", "base"), [("CopiesFailed", None), ("StagingTimeout", "c2")])
def test_after_copies_failed_on_a_base_everything_is_written_once(aborted, base):
    """FZ4: what cannot be read of the base would fail the next attempt as well."""
    failed = Kept("c2b", 30, 25, "GarbageCollected", "Unknown", base="id-2", aborted=aborted)
    assert chosen(NEWEST, failed) == base
    assert chosen(NEWEST, failed, replace(NEWEST, name="c2c", sequence=27)) == "c2c"


@pytest.mark.parametrize(
    ("state", "stays"),
    [("Pending", True), ("Staging", True), ("Committed", False), ("GarbageCollected", False)],
)
def test_a_pin_stays_until_its_holder_shows_an_outcome(state, stays):
    """GC3."""
    holder = replace(MINE, state=state)
    assert still_pinned(["c3"], [NEWEST, holder], TRAINER) == (["c3"] if stays else [])


def test_a_pin_of_an_object_that_is_gone_is_dropped():
    """GC3, IV8: nobody commits it any more."""
    assert still_pinned(["gone", "c3"], [NEWEST, MINE], TRAINER) == ["c3"]


def test_a_base_that_waits_for_another_or_is_marked_does_not_count():
    """CS3."""
    pinned = replace(NEWEST, pins=("c3",))
    assert is_pinned([pinned], base="id-2", holder="c3")
    assert not is_pinned([pinned], base="id-1", holder="c3")
    assert not is_pinned([pinned], base="id-2", holder="c4")
    assert not is_pinned([replace(pinned, marked=True)], base="id-2", holder="c3")


def test_retention_leaves_a_pinned_one_and_does_not_count_a_marked_one():
    """GC1, GC2."""
    three = [replace(OLDER, name=f"c{step}", step=step, sequence=step) for step in (10, 20, 30)]
    assert to_retire(three, 2) == {"c10"}
    assert to_retire([replace(three[0], pins=("c3",)), *three[1:]], 2) == set()
    assert to_retire([*three[:2], replace(three[2], marked=True)], 2) == set()


@pytest.mark.parametrize(
    ("trainer", "stays"),
    [
        (at(4, Phase.RUNNING), True),
        (at(5, Phase.RECOVERING, membership=MembershipPhase.PREPARING), True),
        (at(5, Phase.SUSPENDED, membership=MembershipPhase.PREPARING), True),
        (at(5, Phase.RECOVERING), True),
        (at(5, Phase.RUNNING), False),
        (at(6, Phase.RECOVERING, membership=MembershipPhase.PREPARING), False),
        (at(5, Phase.FAILED), False),
    ],
    ids=["an older Trainer", "preparing", "resumed", "reading", "all train", "next epoch", "ended"],
)
def test_a_restore_keeps_its_pin_until_all_members_of_the_epoch_train(trainer, stays):
    """RS4, GC3: what is not known yet keeps it, too."""
    assert still_pinned(["restore/5"], [], trainer) == (["restore/5"] if stays else [])


@pytest.mark.parametrize(
    ("pin", "stays"),
    [("restore/5.2", False), ("restore/5.3", True), ("restore/5.4", True), ("restore/4.9", False)],
)
def test_with_servers_the_pin_stays_as_long_as_a_worker_may_be_started_with_it(pin, stays):
    """RS4: it comes back within the epoch, after the others train."""
    trainer = at(5, Phase.RUNNING, ps_epoch=3)
    assert still_pinned([pin], [], trainer) == ([pin] if stays else [])


@pytest.mark.parametrize(
    ("pin", "epoch"),
    [
        (restore_pin(5), (5, 0)),
        (restore_pin(5, 3), (5, 3)),
        ("restore/", None),
        ("restore/x", None),
        ("t-c00001", None),
    ],
    ids=str,
)
def test_the_pin_of_a_restore_names_its_epoch(pin, epoch):
    """RS4: and no Checkpoint's name can look like one."""
    assert restoring_epoch(pin) == epoch
