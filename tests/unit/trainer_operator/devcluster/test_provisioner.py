"""Which claims get a volume, and which folders may be deleted."""

from pathlib import Path

import pytest

from trainer_operator.devcluster.provisioner import folder_to_delete, needs_volume, refusal, volume_for

ROOT = Path("/volumes")


def claim(status=None, **spec):
    return {
        "metadata": {"name": "c", "namespace": "ns", "uid": "u1"},
        "spec": {
            "storageClassName": "local-folder",
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        | spec,
        "status": status or {"phase": "Pending"},
    }


def released(**changes):
    volume = volume_for(claim(), ROOT)
    volume["status"] = {"phase": "Released"}
    for path, value in changes.items():
        section, field = path.split("__")
        volume[section][field] = value
    return volume


def test_only_pending_claims_of_our_class_get_a_volume():
    assert needs_volume(claim())
    assert not needs_volume(claim(storageClassName="other"))
    assert not needs_volume(claim(volumeName="pv"))
    assert not needs_volume(claim({"phase": "Bound"}))
    deleted = claim()
    deleted["metadata"]["deletionTimestamp"] = "2026-12-02T08:00:00Z"
    assert not needs_volume(deleted)


def test_volume_is_reserved_for_its_claim_and_made_twice_is_the_same():
    volume = volume_for(claim(), ROOT)
    assert volume == volume_for(claim(), ROOT)
    assert volume["spec"]["hostPath"]["path"] == "/volumes/pvc-u1"
    assert volume["spec"]["claimRef"]["uid"] == "u1"


@pytest.mark.parametrize("spec", [{"volumeMode": "Block"}, {"selector": {"matchLabels": {"a": "b"}}}])
def test_impossible_claim_is_refused(spec):
    assert "is not possible" in refusal(claim(**spec))
    assert refusal(claim()) == ""


def test_released_volume_of_ours_gives_its_folder():
    assert folder_to_delete(released(), ROOT) == Path("/volumes/pvc-u1")


@pytest.mark.parametrize(
    "changes",
    [
        {"status__phase": "Bound"},
        {"spec__persistentVolumeReclaimPolicy": "Retain"},
        {"spec__hostPath": {"path": "/etc"}},
        {"metadata__annotations": {}},
        {"metadata__name": "../etc"},
        {"metadata__name": "other"},
    ],
)
def test_nothing_else_is_ever_deleted(changes):
    assert folder_to_delete(released(**changes), ROOT) is None
