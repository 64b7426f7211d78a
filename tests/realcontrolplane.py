"""The real control plane for tests of several kinds: one per session, a namespace per test.

Nothing is skipped: where the control plane's programs are missing, the tests fail with the sentence that says how to
get them.
"""

import asyncio
import itertools
import os
import time

import pytest

from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.kubectl import Kubectl

_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark what is in the folder of integration tests, and what elsewhere needs the control plane too."""
    for item in items:
        if "tests/integration/" in item.path.as_posix() or "control_plane" in getattr(
            item, "fixturenames", ()
        ):
            item.add_marker("integration")


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory):
    """etcd, API server, controller manager and scheduler, shared by the session.

    A test that stops a component of it must bring it back; one that needs other arguments starts its own.
    """
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"), grace=0)
    asyncio.run(plane.start())
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture
def kubeconfig(control_plane):
    """Path of the administrator's kubeconfig."""
    return control_plane.kubeconfig


@pytest.fixture
def kubectl(control_plane):
    """The real kubectl as administrator: `kubectl("get", "pods", "-n", namespace)` returns what it prints."""
    return Kubectl(control_plane.assets.path("kubectl"), control_plane.kubeconfig)


@pytest.fixture
def namespace(control_plane):
    """Name of a fresh namespace in which pods can be created; deleted at the end, without waiting."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = control_plane.admin.request("POST", "/api/v1/namespaces", body)
    assert answer.status == 201, answer.body
    deadline = time.monotonic() + 20
    while not control_plane.admin.is_ok(f"/api/v1/namespaces/{name}/serviceaccounts/default"):
        assert time.monotonic() < deadline, "kube-controller-manager made no service account within 20 s"
        time.sleep(0.02)
    yield name
    control_plane.admin.request("DELETE", f"/api/v1/namespaces/{name}")
