"""What is stored of an object."""

import gc

import msgspec
import orjson
import pytest

from runtime.cache import METADATA_ONLY, Node, Pod
from runtime.cache.transform import JsonCodec, StructCodec, Undecodable, codec_for
from runtime.objects import CONFIGMAPS, NODES, PODS, ObjectKey

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"a": "b"},
        "annotations": {LAST_APPLIED: "{}", "kept": "yes"},
        "managedFields": [{"manager": "kubelet"}],
        "ownerReferences": [
            {"apiVersion": "x/v1", "kind": "Boss", "name": "b", "uid": "o", "controller": True}
        ],
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "main"}], "restartPolicy": "Never"},
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "hostIP": "10.0.0.2",
        "conditions": [
            {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
        ],
        "containerStatuses": [
            {
                "name": "main",
                "ready": True,
                "restartCount": 2,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "signal": None}},
            }
        ],
    },
}


def nulled(obj):
    """Set every field of every section to null, as Go does with what is empty."""
    return {section: dict.fromkeys(obj[section]) for section in ("metadata", "spec", "status")}


def test_a_pod_is_read_with_all_that_we_use():
    """S2, G3."""
    pod = StructCodec(PODS, Pod).decode(orjson.dumps(POD))
    assert pod.key == ObjectKey("ns", "p")
    assert (pod.name, pod.namespace, pod.uid, pod.resource_version) == ("p", "ns", "u", "7")
    assert pod.labels == {"a": "b"}
    assert pod.annotations == {"kept": "yes"}
    assert (pod.phase, pod.node_name, pod.is_ready, pod.is_terminal, pod.is_deleting) == (
        "Running",
        "n1",
        True,
        False,
        False,
    )
    assert (pod.status.pod_ip, pod.status.host_ip) == ("10.0.0.1", "10.0.0.2")
    (container,) = pod.status.container_statuses
    assert (container.restart_count, container.last_state.terminated.exit_code) == (2, 137)
    assert container.state.running.started_at == "2026-01-01T00:00:00Z"


def test_every_field_of_a_pod_accepts_null():
    """PY9."""
    wire = nulled(POD)
    wire["metadata"]["name"] = "p"
    pod = StructCodec(PODS, Pod).decode(orjson.dumps(wire))
    assert pod.phase == "Pending"
    assert pod.node_name is None
    assert not pod.is_ready
    assert pod.labels == {}


def test_a_container_without_a_report_is_read():
    """PY9."""
    silent = {
        "name": None,
        "ready": None,
        "restartCount": None,
        "state": {"waiting": None},
        "lastState": None,
    }
    wire = {
        "metadata": {"name": "p"},
        "status": {"containerStatuses": [silent], "initContainerStatuses": None},
    }
    pod = StructCodec(PODS, Pod).decode(orjson.dumps(wire))
    assert pod.status.container_statuses[0].state.waiting is None


def test_every_field_of_a_node_accepts_null():
    """PY9."""
    wire = {
        "metadata": {"name": "n"},
        "spec": {"taints": None, "unschedulable": None},
        "status": {"conditions": None, "allocatable": None, "capacity": None, "addresses": None},
    }
    node = StructCodec(NODES, Node).decode(orjson.dumps(wire))
    assert node.key == ObjectKey("", "n")
    assert node.is_schedulable
    assert not node.is_ready


def test_cached_pods_cannot_be_changed_and_cost_the_collector_nothing():
    """S4, PY1."""
    pod = StructCodec(PODS, Pod).decode(orjson.dumps(POD))
    with pytest.raises(AttributeError):
        pod.metadata = None
    parts = (pod, pod.metadata, pod.spec, pod.status, pod.status.container_statuses[0])
    assert not any(gc.is_tracked(part) for part in parts)


@pytest.mark.parametrize("codec", [codec_for(PODS, None), codec_for(PODS, Pod)], ids=["json", "struct"])
def test_codecs_agree_on_identity_and_owners_and_are_idempotent(codec):
    """S2."""
    obj = codec.decode(orjson.dumps(POD))
    again = codec.decode(orjson.dumps(obj) if isinstance(obj, dict) else msgspec.json.encode(obj))
    assert again == obj
    assert codec.identity(obj) == (ObjectKey("ns", "p"), "u", "7")
    assert list(codec.owner_uids(obj)) == ["o"]


def test_json_objects_lose_what_only_servers_and_kubectl_read():
    """S2."""
    obj = JsonCodec(PODS).decode(orjson.dumps(POD))
    assert "managedFields" not in obj["metadata"]
    assert obj["metadata"]["annotations"] == {"kept": "yes"}


def test_items_of_a_list_get_their_kind_back():
    """W3."""
    obj = JsonCodec(CONFIGMAPS).decode(b'{"metadata":{"name":"a"}}')
    assert (obj["kind"], obj["apiVersion"]) == ("ConfigMap", "v1")


@pytest.mark.parametrize("codec", [codec_for(PODS, None), codec_for(PODS, Pod)], ids=["json", "struct"])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"metadata":null}',
        b'{"metadata":{"name":null}}',
        b'{"metadata":{"name":7}}',
        b'{"kind":"Table","metadata":{"name":"a"}}',
        b'{"metadata":{"name":"\xff"}}',
    ],
)
def test_what_is_no_such_object_is_refused(codec, raw):
    """W14, PY9."""
    with pytest.raises(Undecodable):
        codec.decode(raw)


def test_metadata_only_asks_the_server_for_no_more():
    """W17."""
    codec = codec_for(PODS, METADATA_ONLY)
    metadata = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    assert codec.accept_list.endswith("," + metadata.format("List"))
    assert codec.accept_watch.endswith("," + metadata.format(""))
    partial = codec.decode(b'{"kind":"PartialObjectMetadata","metadata":{"name":"a","labels":null}}')
    assert partial.name == "a"


@pytest.mark.parametrize("projection", [None, Pod, METADATA_ONLY])
def test_a_server_may_leave_managed_fields_out_and_need_not(projection):
    """W17: the first offer is the second one with KEP-5958's parameter, for servers from 1.37 on."""
    codec = codec_for(PODS, projection)
    for accept in (codec.accept_list, codec.accept_watch):
        sparing, plain = accept.split(",")
        assert sparing == f"{plain};drop=metadata.managedFields"
        assert plain.startswith("application/json")


def test_strings_that_many_json_objects_have_are_kept_once():
    """S2."""
    wire = orjson.dumps({"metadata": {"name": "a", "namespace": "a-namespace", "labels": {"app": "an-app"}}})
    first, second = (JsonCodec(CONFIGMAPS).decode(wire)["metadata"] for _ in range(2))
    assert first["namespace"] is second["namespace"]
    assert first["labels"]["app"] is second["labels"]["app"]
