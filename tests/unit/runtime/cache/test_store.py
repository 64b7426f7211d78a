"""The store and its indexes."""

import pytest

from runtime.cache import NAMESPACE, OWNER_UID
from runtime.cache.store import Added, Deleted, Store, Updated
from runtime.cache.transform import codec_for
from runtime.objects import CONFIGMAPS, ObjectKey


def obj(name, *, version="1", uid=None, namespace="ns", owners=(), **labels):
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "labels": labels,
            "ownerReferences": [{"uid": owner} for owner in owners],
        }
    }


@pytest.fixture
def store():
    return Store(codec_for(CONFIGMAPS, None))


def test_put_tells_what_changed(store):
    """W15."""
    first, second = obj("a"), obj("a", version="2")
    assert store.put(first) == [Added(first)]
    assert store.put(second) == [Updated(first, second)]
    assert store.get(ObjectKey("ns", "a")) is second


def test_the_same_uid_and_version_keeps_the_stored_instance(store):
    """W15."""
    first = obj("a")
    store.put(first)
    assert store.put(obj("a")) == []
    assert store.get(ObjectKey("ns", "a")) is first


def test_without_versions_every_put_is_a_change(store):
    """W15."""
    store.put(obj("a", version=""))
    assert len(store.put(obj("a", version=""))) == 1


def test_another_uid_under_the_same_name_is_another_object(store):
    """W15, RT15."""
    old, new = obj("a", uid="1"), obj("a", uid="2", version="5")
    store.put(old)
    assert store.put(new) == [Deleted(old, final_state_unknown=True), Added(new)]


def test_a_deletion_of_another_object_of_that_name_changes_nothing(store):
    """W15."""
    store.put(obj("a", uid="2"))
    assert store.remove(obj("a", uid="1")) == []
    assert store.remove(obj("missing")) == []
    assert len(store) == 1


def test_remove_hands_on_the_last_state(store):
    """W15."""
    store.put(obj("a"))
    last = obj("a", version="9")
    assert store.remove(last) == [Deleted(last, final_state_unknown=False)]
    assert store.get(ObjectKey("ns", "a")) is None


def test_replace_is_one_step_with_tombstones(store):
    """W15."""
    gone, kept = obj("gone"), obj("kept")
    store.put(gone)
    store.put(kept)
    new = obj("new")
    assert store.replace([obj("kept"), new]) == [Deleted(gone, final_state_unknown=True), Added(new)]
    assert store.objects() == [kept, new]


def test_replace_of_a_namespace_leaves_the_others(store):
    """S8, W15."""
    elsewhere = obj("a", namespace="other")
    store.put(elsewhere)
    here = obj("a")
    store.put(here)
    assert store.replace([], namespace="ns") == [Deleted(here, final_state_unknown=True)]
    assert store.objects() == [elsewhere]


def test_namespace_and_owner_are_always_indexed(store):
    """S3."""
    child = obj("a", owners=("boss", "clerk"))
    store.put(child)
    store.put(obj("b", namespace="other"))
    assert store.by_index(OWNER_UID, "clerk") == [child]
    assert store.by_index(NAMESPACE, "ns") == store.objects("ns") == [child]
    assert store.by_index(OWNER_UID, "nobody") == []


def test_an_index_follows_changes_and_leaves_nothing_behind(store):
    """S3, RT30."""
    store.put(obj("a", owners=("x", "y")))
    store.put(obj("a", owners=("y", "z"), version="2"))
    assert [len(store.by_index(OWNER_UID, owner)) for owner in "xyz"] == [0, 1, 1]
    store.remove(obj("a"))
    assert store._indexes[OWNER_UID]._keys == {}
    assert store._indexes[OWNER_UID]._values == {}


def test_an_index_added_late_covers_what_is_stored(store):
    """S3."""
    store.put(obj("a", colour="red"))
    store.add_index("colour", lambda item: filter(None, [item["metadata"]["labels"].get("colour")]))
    store.put(obj("b", colour="red"))
    store.put(obj("c"))
    assert [item["metadata"]["name"] for item in store.by_index("colour", "red")] == ["a", "b"]


def test_index_names_are_unique_and_unknown_ones_are_errors(store):
    """S3."""
    with pytest.raises(ValueError, match="namespace"):
        store.add_index(NAMESPACE, lambda _: ())
    with pytest.raises(KeyError, match="colour"):
        store.by_index("colour", "red")
