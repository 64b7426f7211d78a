"""Rights: the operator has what its allow-list says and no more; people get our kinds by level."""

from pathlib import Path

import pytest
import yaml

from trainer_operator.api.roles import user_roles
from trainer_operator.audit.writer import ANCHORS, NAMESPACE
from trainer_operator.trainer.levels import CONFIG_MAP

ROOT = Path(__file__).parents[4]
COMPONENT = ROOT / "deploy" / "components" / "node-recovery"
OURS = "trainer.operator.kubeflow.org"
READ = {"get", "list", "watch"}

ALLOWED = {
    "ClusterRole": {
        (OURS, "trainers"): READ | {"update", "patch", "delete"},
        (OURS, "trainers/status"): {"get", "update", "patch"},
        (OURS, "trainers/finalizers"): {"update"},
        (OURS, "checkpoints"): READ | {"create", "update", "patch", "delete"},
        (OURS, "checkpoints/status"): {"get", "update", "patch"},
        (OURS, "checkpoints/finalizers"): {"update"},
        (OURS, "trainingprofiles"): READ,
        ("", "pods"): READ | {"create", "patch", "delete"},
        ("", "services"): READ | {"create", "patch", "delete"},
        ("", "persistentvolumeclaims"): READ | {"create", "delete"},
        ("", "nodes"): READ,
        ("scheduling.volcano.sh", "podgroups"): READ | {"create", "patch", "delete"},
        ("scheduling.x-k8s.io", "podgroups"): READ | {"create", "patch", "delete"},
        ("", "events"): {"create", "patch"},
        ("authentication.k8s.io", "tokenreviews"): {"create"},
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"},
    },
    "Role": {
        ("coordination.k8s.io", "leases"): READ | {"create", "update", "patch"},
        ("", "pods"): {"get", "patch"},
        ("", "configmaps"): {"get"},
    },
}


def documents():
    return list(yaml.safe_load_all((ROOT / "deploy" / "base" / "rbac.yaml").read_text()))


def rights_of(role):
    """Return the verbs of each resource."""
    rights = {}
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_operator_has_exactly_the_rights_of_the_allow_list(kind):
    """RB1, ATK6: a right is added here and there, or not at all."""
    (role,) = (
        each for each in documents() if each["kind"] == kind and "node" not in each["metadata"]["name"]
    )
    assert rights_of(role) == ALLOWED[kind]


def test_no_role_has_wildcards_or_rights_that_lead_further():
    """RB1, EC3: no `*`, bind, escalate, impersonate, exec, Secrets."""
    for role in [*documents(), *user_roles()]:
        for rule in role.get("rules", ()):
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not words & {"*", "secrets", "pods/exec", "bind", "escalate", "impersonate"}, role[
                "metadata"
            ]


def test_the_only_config_map_that_is_read_is_named():
    """TP6, RB1: others of the namespace may hold what is none of its business."""
    (rule,) = (
        rule
        for document in documents()
        for rule in document.get("rules", ())
        if "configmaps" in rule["resources"]
    )
    assert rule["resourceNames"] == [CONFIG_MAP]


def test_bindings_name_the_operators_own_account():
    """RB1."""
    subject = {"kind": "ServiceAccount", "name": "trainer-operator", "namespace": "trainer-operator"}
    bindings = [document for document in documents() if document["kind"].endswith("Binding")]
    assert [binding["subjects"] for binding in bindings] == [[subject]] * 3


def test_leases_of_nodes_are_read_in_their_namespace_only():
    """DT3, RB1."""
    (role,) = (
        each for each in documents() if each["metadata"]["name"].endswith("-node-leases") and "rules" in each
    )
    assert (role["kind"], role["metadata"]["namespace"]) == ("Role", "kube-node-lease")
    assert rights_of(role) == {("coordination.k8s.io", "leases"): READ}


def test_rights_over_nodes_and_attachments_come_with_the_component_only():
    """RB4: opt-in, and no more than the three acts need."""
    (role, binding) = yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text())
    assert rights_of(role) == {
        ("", "nodes"): {"patch"},
        ("storage.k8s.io", "volumeattachments"): READ | {"delete"},
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == "trainer-operator-node-recovery"
    assert yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())["kind"] == "Component"


def test_the_audit_trail_has_one_writer_and_is_in_nobodys_view():
    """RB3, AU3, AU7: it holds what happened in all namespaces, so who may read it is said by a binding."""
    roles = user_roles()
    reader = next(role for role in roles if role["metadata"]["name"] == "auditlog-viewer")
    assert reader["metadata"] == {"name": "auditlog-viewer"}
    assert rights_of(reader) == {(OURS, "auditlogs"): READ}
    assert not any((OURS, "auditlogs") in rights_of(role) for role in roles if role is not reader)
    audit = list(yaml.safe_load_all((ROOT / "deploy" / "base" / "audit.yaml").read_text()))
    (role,) = (each for each in audit if each["kind"] == "Role")
    assert role["metadata"]["namespace"] == NAMESPACE
    assert rights_of(role) == {
        (OURS, "auditlogs"): {"get", "list", "create", "delete"},
        ("", "configmaps"): {"get", "patch"},
    }
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [[ANCHORS]]


def test_people_get_our_kinds_by_level():
    """RB3: both families of labels; viewers change nothing."""
    roles = {role["metadata"]["name"]: role for role in user_roles()}
    del roles["auditlog-viewer"]
    assert len(roles) == 9
    for name, role in roles.items():
        level = {"admin": "admin", "editor": "edit", "viewer": "view"}[name.rpartition("-")[2]]
        assert role["metadata"]["labels"] == {
            f"rbac.authorization.k8s.io/aggregate-to-{level}": "true",
            f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{level}": "true",
        }
        verbs = set().union(*rights_of(role).values())
        assert (verbs <= READ) == (level == "view")
    assert rights_of(roles["trainer-editor"])[(OURS, "trainers/scale")] == {"get", "patch", "update"}
    assert rights_of(roles["trainer-viewer"])[(OURS, "trainers/scale")] == {"get"}
    assert not any(
        "status" in resource and "update" in verbs
        for role in roles.values()
        for (_, resource), verbs in rights_of(role).items()
    )
