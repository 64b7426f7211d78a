"""The base installation on the real API server: it applies twice, and rights are what the files say."""

import json
from pathlib import Path

import pytest

import examples_api as examples

ROOT = Path(__file__).parents[3]
ACCOUNT = "system:serviceaccount:trainer-operator:trainer-operator"

pytestmark = pytest.mark.usefixtures("installed")


@pytest.fixture(scope="module")
def base(control_plane):
    """What two applies of `deploy/base` printed."""
    from trainer_operator.devcluster.kubectl import Kubectl

    kubectl = Kubectl(control_plane.assets.path("kubectl"), control_plane.kubeconfig)
    outputs = tuple(kubectl("apply", "-k", str(ROOT / "deploy" / "base")) for _ in range(2))
    yield outputs
    kubectl("delete", "namespace", "trainer-operator", "--wait=false")


def test_second_apply_of_the_base_changes_nothing(base):
    """KZ5, TR43."""
    lines = base[1].splitlines()
    assert len(lines) == 28
    assert [line for line in lines if not line.endswith(" unchanged")] == []


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize(
    ("verb", "resource", "where", "allowed"),
    [
        ("create", "pods", "default", "yes"),
        ("update", "trainers.trainer.operator.kubeflow.org/status", "default", "yes"),
        ("update", "trainers.trainer.operator.kubeflow.org/finalizers", "default", "yes"),
        ("create", "checkpoints.trainer.operator.kubeflow.org", "default", "yes"),
        ("create", "tokenreviews.authentication.k8s.io", "default", "yes"),
        ("update", "leases.coordination.k8s.io", "trainer-operator", "yes"),
        ("update", "leases.coordination.k8s.io", "default", "no"),
        ("get", "secrets", "default", "no"),
        ("get", "secrets", "trainer-operator", "no"),
        ("create", "pods/exec", "default", "no"),
        ("create", "clusterrolebindings.rbac.authorization.k8s.io", "default", "no"),
        ("create", "trainers.trainer.operator.kubeflow.org", "default", "no"),
    ],
)
def test_operator_may_do_its_work_and_nothing_else(verb, resource, where, allowed, kubectl):
    """RB1, EC3, ATK6."""
    name, _, subresource = resource.partition("/")
    options = [f"--subresource={subresource}"] if subresource else []
    answer = kubectl.run("auth", "can-i", verb, name, *options, "-n", where, "--as", ACCOUNT)
    assert answer.stdout.strip() == allowed, answer.stderr


@pytest.mark.usefixtures("base")
def test_editor_of_a_namespace_writes_trainers_and_viewer_reads_them(kubectl, namespace):
    """RB3: through aggregation into the cluster's own roles."""
    for role in ("edit", "view"):
        kubectl("create", "rolebinding", role, "-n", namespace, f"--clusterrole={role}", f"--user={role}")
    manifest = json.dumps(examples.TRAINER)
    kubectl("wait", "--for=jsonpath={.rules[0]}", "clusterrole/edit", "--timeout=30s")
    eventually_allowed(kubectl, "create", "trainers.trainer.operator.kubeflow.org", namespace, "edit")
    kubectl("create", "-n", namespace, "--as", "edit", "-f", "-", stdin=manifest)
    kubectl("scale", "trn/mnist", "-n", namespace, "--replicas=3", "--as", "edit")
    eventually_allowed(kubectl, "get", "trainers.trainer.operator.kubeflow.org", namespace, "view")
    assert "mnist" in kubectl("get", "trn", "-n", namespace, "--as", "view")
    refused = kubectl.run("scale", "trn/mnist", "-n", namespace, "--replicas=2", "--as", "view")
    assert "forbidden" in refused.stderr.lower()


def eventually_allowed(kubectl, verb, resource, namespace, user):
    """Wait until the controller manager has aggregated the role."""
    for _ in range(100):
        if (
            kubectl.run("auth", "can-i", verb, resource, "-n", namespace, "--as", user).stdout.strip()
            == "yes"
        ):
            return
    pytest.fail(f"{user} may still not {verb} {resource}")
