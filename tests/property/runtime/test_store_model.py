"""The store against a dictionary (S1, S3, W15)."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.cache import NAMESPACE, OWNER_UID
from runtime.cache.store import Added, Deleted, Store, Updated
from runtime.cache.transform import codec_for
from runtime.objects import CONFIGMAPS, key_of, uid_of

OBJECTS = st.builds(
    lambda name, namespace, uid, version, owners: {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": str(version),
            "ownerReferences": [{"uid": owner} for owner in owners],
        }
    },
    st.sampled_from("abc"),
    st.sampled_from(["one", "two"]),
    st.sampled_from(["u1", "u2"]),
    st.integers(1, 4),
    st.sets(st.sampled_from(["x", "y"])),
)
STEPS = st.one_of(
    st.tuples(st.just("put"), OBJECTS),
    st.tuples(st.just("remove"), OBJECTS),
    st.tuples(st.just("replace"), st.lists(OBJECTS, max_size=4)),
    st.tuples(st.just("replace one"), st.lists(OBJECTS, max_size=4)),
)


@given(st.lists(STEPS, max_size=30))
def test_changes_add_up_to_the_content_and_indexes_tell_the_truth(steps):
    """S1, S3, W15."""
    store = Store(codec_for(CONFIGMAPS, None))
    mirror = {}
    for action, argument in steps:
        match action:
            case "put":
                deltas = store.put(argument)
            case "remove":
                deltas = store.remove(argument)
            case "replace":
                deltas = store.replace(argument)
                assert set(mirror_keys(store)) == {key_of(obj) for obj in argument}
            case "replace one":
                inside = [obj for obj in argument if key_of(obj).namespace == "one"]
                before = [obj for obj in store.objects() if key_of(obj).namespace == "two"]
                deltas = store.replace(inside, namespace="one")
                assert [obj for obj in store.objects() if key_of(obj).namespace == "two"] == before
        for delta in deltas:
            match delta:
                case Added(obj):
                    assert key_of(obj) not in mirror
                    mirror[key_of(obj)] = obj
                case Updated(old, new):
                    assert mirror[key_of(old)] is old
                    assert uid_of(old) == uid_of(new)
                    mirror[key_of(new)] = new
                case Deleted(obj, _):
                    del mirror[key_of(obj)]
        assert {key_of(obj): obj for obj in store.objects()} == mirror
        for namespace in ("one", "two"):
            expected = [obj for obj in mirror.values() if key_of(obj).namespace == namespace]
            assert ids(store.by_index(NAMESPACE, namespace)) == ids(expected)
        for owner in ("x", "y"):
            expected = [
                obj for obj in mirror.values() if {"uid": owner} in obj["metadata"]["ownerReferences"]
            ]
            assert ids(store.by_index(OWNER_UID, owner)) == ids(expected)


def mirror_keys(store):
    return [key_of(obj) for obj in store.objects()]


def ids(objects):
    return sorted(map(id, objects))
