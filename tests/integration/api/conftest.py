"""Our CRDs on the real API server, installed once per session."""

import time
from pathlib import Path

import pytest

from trainer_operator.devcluster.kubectl import Kubectl

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "crds"


@pytest.fixture(scope="session")
def installed(control_plane):
    """What two plain client-side applies of `crds/` printed, one after the other."""
    kubectl = Kubectl(control_plane.assets.path("kubectl"), control_plane.kubeconfig)
    outputs = (kubectl("apply", "-k", str(CRDS)), kubectl("apply", "-k", str(CRDS)))
    kubectl.wait_established()
    deadline = time.monotonic() + 30
    while not control_plane.admin.is_ok("/apis/trainer.operator.kubeflow.org/v1alpha1/trainers"):
        assert time.monotonic() < deadline, "the API server doesn't serve our kinds after 30 s"
        time.sleep(0.05)
    return outputs
