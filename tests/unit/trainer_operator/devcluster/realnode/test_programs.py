"""Which programs are built, from which pinned modules."""

from pathlib import Path

from trainer_operator.devcluster.build import targets
from trainer_operator.devcluster.realnode.programs import (
    CONTAINERD_PROGRAMS,
    CONTAINERD_VERSION,
    containerd_targets,
)

TOOLS = Path(__file__).resolve().parents[5] / "tools"


def test_containerd_is_of_the_version_that_is_pinned():
    assert (
        f"github.com/containerd/containerd/v2 {CONTAINERD_VERSION}"
        in (TOOLS / "containerd" / "go.mod").read_text()
    )
    assert [target.program for target in containerd_targets()] == list(CONTAINERD_PROGRAMS)
    assert {(target.module, target.version) for target in containerd_targets()} == {
        ("containerd", CONTAINERD_VERSION)
    }


def test_kubelet_is_built_with_the_control_plane():
    (kubelet,) = targets(["kubelet"])
    assert (kubelet.module, kubelet.package) == ("controlplane", "k8s.io/kubernetes/cmd/kubelet")
