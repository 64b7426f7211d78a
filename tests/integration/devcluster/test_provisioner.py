"""Claims get folders, and give them back."""

import subprocess
import sys

import pytest

from integration.devcluster.nodeprocess import NodeProcess, Pods, ended_of, until


@pytest.fixture
def root(control_plane, tmp_path):
    """The folder of a running provisioner."""
    folder = tmp_path / "volumes"
    argv = [sys.executable, "-m", "trainer_operator.devcluster.provisioner"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*argv, f"--kubeconfig={control_plane.kubeconfig}", f"--state-dir={folder}"],
            stdout=log,
            stderr=log,
        )
    until(
        lambda: control_plane.admin.is_ok("/apis/storage.k8s.io/v1/storageclasses/local-folder"), "no class"
    )
    yield folder
    process.terminate()
    assert process.wait(timeout=15) == 0


def claim(control_plane, namespace, name, **spec):
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}} | spec,
    }
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    answer = control_plane.admin.request("POST", path, body)
    assert answer.status == 201, answer.body
    return f"{path}/{name}"


def test_two_pods_share_a_claim_and_its_folder_goes_with_it(control_plane, namespace, root, tmp_path):
    path = claim(control_plane, namespace, "shared")
    node = NodeProcess(control_plane, "volume-node", tmp_path).start()
    try:
        pods = Pods(node, namespace)
        mounted = {"volumeMounts": [{"name": "v", "mountPath": "/trainer/checkpoints"}]}
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]
        write = ["sh", "-c", "echo kept > /trainer/checkpoints/file"]
        pods.create("writer", write, container=mounted, volumes=volumes).finish("writer")
        read = ["sh", "-c", "cat /trainer/checkpoints/file > /dev/termination-log"]
        pod = pods.create("reader", read, container=mounted, volumes=volumes).finish("reader")
        assert ended_of(pod)["message"] == "kept\n"
        for name in ("writer", "reader"):
            pods.delete(name)
            pods.gone(name)
    finally:
        node.stop()
    bound = control_plane.admin.request("GET", path).json()["spec"]["volumeName"]
    assert (root / bound / "file").read_text() == "kept\n"
    control_plane.admin.request("DELETE", path)
    until(lambda: not control_plane.admin.is_ok(f"/api/v1/persistentvolumes/{bound}"), "the volume stays")
    assert not (root / bound).exists()


def test_claim_that_cannot_be_served_is_told_why(control_plane, kubectl, namespace, root):
    claim(control_plane, namespace, "block", volumeMode="Block")
    until(
        lambda: "volumeMode Block is not possible" in kubectl("get", "events", "-n", namespace),
        "no event about the claim",
    )
