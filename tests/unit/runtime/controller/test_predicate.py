"""Predicates: which updates are worth a reconcile."""

import msgspec
import pytest

from runtime.cache.projection import Pod
from runtime.controller.predicate import (
    all_of,
    annotations_changed,
    any_of,
    deletion_changed,
    finalizers_changed,
    generation_changed,
    labels_changed,
    negate,
    version_changed,
)

ALL = [
    annotations_changed,
    deletion_changed,
    finalizers_changed,
    generation_changed,
    labels_changed,
    version_changed,
]


def obj(**metadata):
    return {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "1", **metadata}}


def as_pod(value):
    return msgspec.convert(value, Pod)


@pytest.mark.parametrize("predicate", ALL)
def test_what_appears_and_what_goes_always_passes(predicate):
    """C5."""
    assert predicate(None, obj())
    assert predicate(obj(), None)


@pytest.mark.parametrize("predicate", ALL)
def test_an_object_told_twice_never_passes(predicate):
    """C5."""
    assert not predicate(obj(generation=1), obj(generation=1))


@pytest.mark.parametrize("convert", [dict, as_pod])
@pytest.mark.parametrize(
    ("predicate", "old", "new"),
    [
        (generation_changed, {"generation": 1}, {"generation": 2}),
        (labels_changed, {"labels": {"a": "1"}}, {"labels": {"a": "2"}}),
        (annotations_changed, {}, {"annotations": {"a": "2"}}),
        (finalizers_changed, {"finalizers": ["x"]}, {"finalizers": ["x", "y"]}),
        (deletion_changed, {}, {"deletionTimestamp": "2026-12-02T08:00:00Z"}),
        (version_changed, {}, {"resourceVersion": "2"}),
    ],
)
def test_each_predicate_sees_its_own_field_in_both_forms_of_an_object(predicate, old, new, convert):
    """C5."""
    assert predicate(convert(obj(**old)), convert(obj(**new)))


def test_a_status_write_does_not_raise_the_generation():
    """C5, RT20."""
    assert not generation_changed(
        obj(generation=3, resourceVersion="10"), obj(generation=3, resourceVersion="11")
    )


def test_kinds_without_a_generation_fall_back_to_the_version():
    """C5."""
    assert generation_changed(obj(resourceVersion="10"), obj(resourceVersion="11"))


@pytest.mark.parametrize("absent", [None, {}])
def test_absent_null_and_empty_are_the_same(absent):
    """C5, PY9."""
    assert not labels_changed(obj(), obj(labels=absent))
    assert not annotations_changed(obj(annotations=absent), obj())


def test_predicates_combine():
    """C5."""

    def yes(_old, _new):
        return True

    def no(_old, _new):
        return False

    assert any_of(no, yes)(None, obj())
    assert not any_of(no, no)(None, obj())
    assert all_of(yes, yes)(None, obj())
    assert not all_of(yes, no)(None, obj())
    assert negate(no)(None, obj())
    assert not negate(yes)(None, obj())
