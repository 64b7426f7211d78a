"""Sources and mappings: from a changed object to keys."""

import dataclasses
import inspect
import typing

import pytest

from runtime.controller.mapping import own_key, owner_of
from runtime.controller.predicate import generation_changed
from runtime.controller.reconciler import Reconciler, Request
from runtime.controller.source import BACKGROUND_PRIORITY, URGENT_PRIORITY, ChannelSource, InformerSource
from runtime.objects import ObjectKey, Resource

PARENTS = Resource("example.com", "v2", "parents", "Parent")
CLUSTER_PARENTS = Resource("example.com", "v2", "parents", "Parent", namespaced=False)


def obj(name="a", owner=None, generation=1):
    metadata = {"name": name, "namespace": "ns", "generation": generation}
    if owner is not None:
        metadata["ownerReferences"] = [owner]
    return {"metadata": metadata}


def reference(**changes):
    return {"apiVersion": "example.com/v1", "kind": "Parent", "name": "p", "controller": True, **changes}


class Sink:
    def __init__(self):
        self.calls = []

    def __call__(self, key, *, after=0.0, priority=0, reason):
        self.calls.append((key.name, after, priority, reason))


def source(sink, mapping=own_key, predicate=None):
    return InformerSource("Pod", sink, mapping=mapping, predicate=predicate)


def test_initial_adds_and_resyncs_go_to_the_background():
    """Q4."""
    sink = Sink()
    handler = source(sink)
    same = obj()
    handler.on_add(obj(), initial=True)
    handler.on_add(obj(), initial=False)
    handler.on_update(same, same)
    handler.on_update(obj(), obj())
    assert [priority for _, _, priority, _ in sink.calls] == [
        BACKGROUND_PRIORITY,
        0,
        BACKGROUND_PRIORITY,
        0,
        0,
    ]
    assert sink.calls[0][3] == "Pod added"


def test_what_nobody_has_looked_at_yet_is_no_background_though_it_was_there_first():
    """Q4: news goes first, also when it waited for the process to start."""
    sink = Sink()
    handler = InformerSource(
        "Pod", sink, mapping=own_key, newcomer=lambda obj: obj["metadata"]["name"] == "new"
    )
    handler.on_add(obj("old"), initial=True)
    handler.on_add(obj("new"), initial=True)
    assert [(name, priority) for name, _, priority, _ in sink.calls] == [
        ("old", BACKGROUND_PRIORITY),
        ("new", 0),
    ]


def test_a_resync_passes_every_predicate():
    """S6, C5: it asks for a look without a change."""
    sink = Sink()
    handler = source(sink, predicate=generation_changed)
    same = obj()
    handler.on_update(same, same)
    assert len(sink.calls) == 1
    handler.on_update(obj(), obj())
    assert len(sink.calls) == 1


def test_an_update_maps_the_old_and_the_new_owner():
    """C6."""
    sink = Sink()
    handler = source(sink, mapping=owner_of(PARENTS))
    handler.on_update(obj(owner=reference()), obj(owner=reference(name="q")))
    assert [name for name, *_ in sink.calls] == ["p", "q"]


def test_a_tombstone_is_mapped_and_passes_every_predicate():
    """C6, W15, TR26: the last state may be old, so a predicate cannot judge it."""
    sink = Sink()
    handler = source(sink, mapping=owner_of(PARENTS), predicate=lambda old, new: False)
    handler.on_delete(obj(owner=reference()), final_state_unknown=False)
    assert sink.calls == []
    handler.on_delete(obj(owner=reference()), final_state_unknown=True)
    assert [name for name, *_ in sink.calls] == ["p"]


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (reference(), [ObjectKey("ns", "p")]),
        (reference(apiVersion="example.com/v1alpha1"), [ObjectKey("ns", "p")]),
        (reference(apiVersion="other.com/v1"), []),
        (reference(apiVersion="v1"), []),
        (reference(apiVersion=""), []),
        (reference(kind="Other"), []),
        (reference(controller=False), []),
        (reference(name=""), []),
        (reference(name=None, apiVersion=None), []),
        (None, []),
    ],
)
def test_the_owner_is_matched_by_group_and_kind_and_not_by_version(owner, expected):
    """C6."""
    assert list(owner_of(PARENTS)(obj(owner=owner))) == expected


def test_an_owner_without_namespace_has_none_in_its_key():
    """C6."""
    assert list(owner_of(CLUSTER_PARENTS)(obj(owner=reference()))) == [ObjectKey("", "p")]


def test_a_channel_notifies_every_attached_controller():
    """C4: the notice carries a key and nothing else."""
    one, other = Sink(), Sink()
    channel = ChannelSource("placement")
    channel.notify(ObjectKey("ns", "early"))
    channel.attach(one)
    channel.attach(other)
    channel.notify(ObjectKey("ns", "a"), after=3, priority=7)
    assert one.calls == other.calls == [("a", 3, 7, "notified by placement")]


def test_a_reconciler_is_told_a_key_and_nothing_of_what_happened():
    """C4."""
    assert [field.name for field in dataclasses.fields(Request)] == ["key"]
    assert list(inspect.signature(Reconciler.reconcile).parameters) == ["self", "request"]
    assert typing.get_type_hints(Reconciler.reconcile)["request"] is Request
    by_add, by_update, by_delete = Sink(), Sink(), Sink()
    source(by_add).on_add(obj(), initial=False)
    source(by_update).on_update(obj(), obj(generation=2))
    source(by_delete).on_delete(obj(), final_state_unknown=False)
    keys = [{call[:3] for call in sink.calls} for sink in (by_add, by_update, by_delete)]
    assert keys == [{("a", 0.0, 0)}] * 3


def test_changes_that_can_wait_are_looked_at_together_later():
    """C5, Q2: all but initial objects, resyncs and unknown ends, whose time is the queue's affair."""
    sink = Sink()
    handler = InformerSource(
        "Pod", sink, mapping=own_key, patience=lambda old, new: 0.0 if new is None else 0.1
    )
    same = obj()
    handler.on_add(obj(), initial=True)
    handler.on_add(obj(), initial=False)
    handler.on_update(same, same)
    handler.on_update(obj(), obj())
    handler.on_delete(obj(), final_state_unknown=False)
    handler.on_delete(obj(), final_state_unknown=True)
    assert [after for _, after, _, _ in sink.calls] == [0.0, 0.1, 0.0, 0.1, 0.1, 0.0, 0.0]


def test_what_cannot_wait_goes_before_what_is_merely_new():
    """Q4."""
    sink = Sink()
    handler = InformerSource(
        "Pod", sink, mapping=own_key, patience=lambda old, new: None if new is None else 0.0
    )
    handler.on_add(obj(), initial=False)
    handler.on_delete(obj(), final_state_unknown=False)
    assert [(after, priority) for _, after, priority, _ in sink.calls] == [(0.0, 0), (0.0, URGENT_PRIORITY)]
