"""Reading one's own writes."""

import pytest

from runtime.cache import Barrier
from runtime.objects import ObjectKey
from runtime.testing.clock import SimClock


class Children:
    """An informer, as far as a barrier looks at it."""

    def __init__(self, seen="10"):
        self.seen = seen
        self.uids = {}

    def seen_version(self, namespace):
        return self.seen

    def has_uid(self, key, uid):
        return self.uids.get(key) == uid


def child(name="c", *, version="", uid="u", **metadata):
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version, **metadata}}


@pytest.fixture
def children():
    return Children()


@pytest.fixture
def clock():
    return SimClock()


@pytest.fixture
def barrier(children, clock):
    return Barrier(children, clock=clock)


def test_a_write_holds_its_parent_until_the_cache_has_come_so_far(barrier, children):
    """R2, RT25."""
    barrier.wrote("p", child(version="12"))
    barrier.wrote("p", child(version="11"))
    for seen, is_open in (("10", False), ("11", False), ("9", False), ("12", True)):
        children.seen = seen
        assert barrier.is_open("p") is is_open
    assert len(barrier) == 0


def test_no_time_limit_lets_a_slow_cache_through(barrier, children, clock):
    """R2, RT26: longer than the classic five minutes."""
    barrier.wrote("p", child(version="12"))
    clock.advance(3600)
    assert not barrier.is_open("p")
    children.seen = "100"
    assert barrier.is_open("p")


def test_a_cache_that_was_never_filled_holds_everything(barrier, children):
    """R2."""
    children.seen = ""
    barrier.wrote("p", child(version="12"))
    assert not barrier.is_open("p")


def test_other_parents_are_not_held(barrier):
    """R2."""
    barrier.wrote("p", child(version="12"))
    assert barrier.is_open("other")


def test_a_deletion_holds_until_the_uid_is_gone(barrier, children):
    """R2."""
    key = ObjectKey("ns", "c")
    children.uids[key] = "u"
    barrier.deleted("p", child())
    children.seen = "99"
    assert not barrier.is_open("p")
    children.uids[key] = "another"
    assert barrier.is_open("p")


def test_a_graceful_deletion_holds_until_the_mark_is_seen(barrier, children):
    """R2: the pod may take minutes to go, its parent need not wait for that."""
    children.uids[ObjectKey("ns", "c")] = "u"
    marked = child(version="15", deletionTimestamp="2026-01-01T00:00:00Z")
    barrier.deleted("p", child(version="9"), answer=marked)
    assert not barrier.is_open("p")
    children.seen = "15"
    assert barrier.is_open("p")


def test_an_answer_without_the_object_counts_as_gone_only_when_it_is(barrier, children):
    """R2."""
    children.uids[ObjectKey("ns", "c")] = "u"
    barrier.deleted("p", child(), answer={"kind": "Status", "details": {"uid": "u"}})
    assert not barrier.is_open("p")
    children.uids.clear()
    assert barrier.is_open("p")


def test_a_child_deleted_by_another_party_holds_nobody(barrier, children):
    """R3: seen past the write, the child is missing, not still to come."""
    barrier.wrote("p", child(version="12"))
    children.seen = "13"
    assert barrier.is_open("p")


def test_incomparable_versions_fall_back_to_uids_for_five_minutes(barrier, children, clock):
    """R2."""
    children.seen = "opaque-1"
    barrier.wrote("p", child(version="opaque-2"))
    assert not barrier.is_open("p")
    children.uids[ObjectKey("ns", "c")] = "u"
    assert barrier.is_open("p")
    barrier.wrote("p", child("lost", version="opaque-3", uid="v"))
    clock.advance(299)
    assert not barrier.is_open("p")
    clock.advance(2)
    assert barrier.is_open("p")


def test_forgotten_parents_leave_nothing_behind(barrier):
    """RT30."""
    barrier.wrote("p", child(version="12"))
    barrier.forget("p")
    barrier.forget("p")
    assert len(barrier) == 0
    assert barrier.is_open("p")
