"""Volumes of a pod."""

import pytest

from trainer_operator.devcluster.node.environment import Facts, Source, Unresolved
from trainer_operator.devcluster.node.volumes import (
    Claim,
    EmptyFolder,
    File,
    HostFolder,
    Mount,
    Projected,
    SourceFiles,
    TokenFile,
    attachable_name,
    claim_folder,
    files_of,
    mounts_of,
    sources_of_volumes,
    tokens_of,
    volumes_of,
)

FACTS = Facts("ip", "host")


def read(*volumes):
    return volumes_of({"spec": {"volumes": list(volumes)}})


def files(volume, contents=None, tokens=None):
    pod = {"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {}}
    return files_of(
        read({"name": "v", **volume})["v"], pod, facts=FACTS, contents=contents or {}, tokens=tokens or {}
    )


def test_every_kind_is_read():
    volumes = read(
        {"name": "e", "emptyDir": {}},
        {"name": "h", "hostPath": {"path": "/x", "type": "Directory"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim", "readOnly": True}},
        {"name": "s", "secret": {"secretName": "sec", "defaultMode": 0o400}},
        {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "a"}}]}},
    )
    assert volumes["e"] == EmptyFolder()
    assert volumes["h"] == HostFolder("/x", "Directory")
    assert volumes["c"] == Claim("claim", read_only=True)
    assert volumes["s"] == Projected((SourceFiles(Source("Secret", "sec")),), 0o400)
    assert sources_of_volumes(volumes) == {Source("Secret", "sec")}
    assert tokens_of(volumes) == {TokenFile("t", "a")}


@pytest.mark.parametrize(
    ("volume", "sentence"),
    [
        ({"name": "v", "nfs": {}}, 'volume "v" is of kind nfs'),
        ({"name": "v", "projected": {"sources": [{"clusterTrustBundle": {}}]}}, "clusterTrustBundle"),
    ],
)
def test_unknown_kind_is_refused_by_name(volume, sentence):
    with pytest.raises(Unresolved, match=sentence):
        read(volume)


def test_files_carry_their_modes_and_later_sources_win():
    sources = [
        {"configMap": {"name": "m"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "a", "mode": 0o600}]}},
        {"downwardAPI": {"items": [{"path": "d/labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"serviceAccountToken": {"path": "t"}},
    ]
    contents = {Source("ConfigMap", "m"): {"a": b"map", "b": b"B"}, Source("Secret", "s"): {"k": b"secret"}}
    assert files({"projected": {"sources": sources}}, contents, {TokenFile("t"): "jwt"}) == {
        "a": File(b"secret", 0o600),
        "b": File(b"B", 0o644),
        "d/labels": File(b'a="1"', 0o644),
        "t": File(b"jwt", 0o644),
    }


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "."])
def test_file_outside_its_volume_is_refused(path):
    items = [{"key": "k", "path": path}]
    contents = {Source("ConfigMap", "m"): {"k": b""}}
    with pytest.raises(Unresolved, match="leads out of its volume"):
        files({"configMap": {"name": "m", "items": items}}, contents)


def test_missing_source_or_key_is_named_unless_optional():
    missing = {Source("ConfigMap", "m"): None}
    with pytest.raises(Unresolved, match='configmap "m" not found'):
        files({"configMap": {"name": "m"}}, missing)
    assert files({"configMap": {"name": "m", "optional": True}}, missing) == {}
    items = [{"key": "k", "path": "p"}]
    with pytest.raises(Unresolved, match="non-existent key: k"):
        files({"configMap": {"name": "m", "items": items}}, {Source("ConfigMap", "m"): {}})


def test_mounts_name_their_volume_and_sub_path():
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/a", "readOnly": True},
            {"name": "v", "mountPath": "/b", "subPathExpr": "x/$(POD)"},
        ]
    }
    assert mounts_of(container, {"POD": "p"}, {"v": "/host"}) == [
        Mount("/host", "/a", read_only=True),
        Mount("/host", "/b", sub_path="x/p"),
    ]


@pytest.mark.parametrize(
    ("mount", "sentence"),
    [
        ({"name": "w", "mountPath": "/a"}, 'volume "w" not found in pod'),
        ({"name": "v", "mountPath": "/a", "subPath": "../x"}, "leads out of its volume"),
    ],
)
def test_bad_mount_is_refused(mount, sentence):
    with pytest.raises(Unresolved, match=sentence):
        mounts_of({"volumeMounts": [mount]}, {}, {"v": "/host"})


def test_claim_gives_its_folder_once_it_is_bound():
    claim = {"metadata": {"name": "c"}, "status": {"phase": "Bound"}}
    assert claim_folder(claim, {"spec": {"hostPath": {"path": "/x"}}}) == "/x"
    assert claim_folder(claim, {"spec": {"local": {"path": "/y"}}}) == "/y"
    with pytest.raises(Unresolved, match="no folder of this machine"):
        claim_folder(claim, {"spec": {"csi": {}}})
    with pytest.raises(Unresolved, match='"c" is not bound yet'):
        claim_folder(claim | {"status": {"phase": "Pending"}}, None)


def test_volume_of_a_storage_driver_names_its_folder_and_has_to_be_attached():
    claim = {"metadata": {"name": "c"}, "status": {"phase": "Bound"}}
    source = {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"trainer-operator.dev/folder": "/z"}}
    assert claim_folder(claim, {"spec": {"csi": source}}) == "/z"
    assert attachable_name({"spec": {"csi": source}}) == "kubernetes.io/csi/d^h"
    assert attachable_name({"spec": {"hostPath": {"path": "/x"}}}) == ""
