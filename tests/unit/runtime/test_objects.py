"""Objects and kinds."""

import msgspec
import pytest

from runtime import objects
from runtime.cache.projection import Pod
from runtime.objects import LEASES, NODES, PODS, ObjectKey, Resource

WIRE = {
    "metadata": {
        "name": "a",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "7",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "1", "controller": None},
            {"apiVersion": "x/v1", "kind": "Boss", "name": "b", "uid": "2", "controller": True},
        ],
    }
}


@pytest.mark.parametrize("obj", [WIRE, msgspec.convert(WIRE, Pod)], ids=["json", "projection"])
def test_both_forms_of_an_object_answer_alike(obj):
    """S4."""
    assert objects.key_of(obj) == ObjectKey("ns", "a")
    assert objects.uid_of(obj) == "u"
    assert objects.resource_version_of(obj) == "7"
    assert objects.owner(obj)["name"] == "b"
    assert [reference["uid"] for reference in objects.owner_references(obj)] == ["1", "2"]


@pytest.mark.parametrize("obj", [{}, {"metadata": None}, Pod()], ids=["empty", "null", "projection"])
def test_an_object_without_metadata_has_empty_answers(obj):
    """PY9."""
    assert objects.key_of(obj) == ObjectKey("", "")
    assert objects.uid_of(obj) == objects.resource_version_of(obj) == ""
    assert objects.owner(obj) is None


def test_paths_follow_group_scope_and_subresource():
    """K6."""
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns") == "/api/v1/namespaces/ns/pods"
    assert PODS.path("ns", name="a", subresource="status") == "/api/v1/namespaces/ns/pods/a/status"
    assert NODES.path("ignored", name="n") == "/api/v1/nodes/n"
    assert LEASES.path("ns", name="l") == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
    assert str(LEASES) == "leases.coordination.k8s.io"
    assert Resource("x", "v1", "things", "Thing").api_version == "x/v1"


def test_an_object_of_a_namespaced_kind_needs_its_namespace():
    """K6."""
    with pytest.raises(ValueError, match="Pod 'a' lives in a namespace"):
        PODS.path(name="a")


def test_owner_reference_carries_kind_name_and_uid():
    """R1."""
    assert objects.owner_reference(PODS, WIRE) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "a",
        "uid": "u",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_thaw_copies_all_the_way_down():
    """S4."""
    copy = objects.thaw(WIRE)
    copy["metadata"]["ownerReferences"][0]["name"] = "changed"
    assert WIRE["metadata"]["ownerReferences"][0]["name"] == "o"


def test_keys_read_as_people_write_them():
    """S1."""
    assert str(ObjectKey("ns", "a")) == "ns/a"
    assert str(ObjectKey("", "node")) == "node"
