"""Roles for people: who may read and write our kinds, as admin, editor and viewer of each (RB3).

They aggregate into the cluster's own admin, edit and view roles and into Kubeflow's. Verbs are named one by one, never
`*` (RB1). The operator's own rights are written by hand in `deploy/base/rbac.yaml`.
"""

from typing import Any

from trainer_operator.api.crd import KINDS, Kind
from trainer_operator.api.meta import GROUP

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "patch", "update")
LEVELS = {
    "admin": (*READ, *WRITE, "deletecollection"),
    "edit": (*READ, *WRITE),
    "view": READ,
}
"""What each level may do; the names are those of the cluster roles that it is added to."""

_ROLE_NAMES = {"admin": "admin", "edit": "editor", "view": "viewer"}


def user_roles() -> list[dict[str, Any]]:
    """Return a ClusterRole for each kind and level."""
    return [_role(kind, level) for kind in KINDS for level in LEVELS if kind.has_status] + [
        _reader(kind) for kind in KINDS if not kind.has_status
    ]


def _reader(kind: Kind) -> dict[str, Any]:
    """Return the only role of a kind that the operator alone writes: it is in nobody's view of their own namespace."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{kind.name.lower()}-viewer"},
        "rules": [_rule(kind.plural, READ)],
    }


def _role(kind: Kind, level: str) -> dict[str, Any]:
    rules = [_rule(kind.plural, LEVELS[level]), _rule(f"{kind.plural}/status", ("get",))]
    if kind.scale is not None:
        rules.append(
            _rule(f"{kind.plural}/scale", ("get",) if level == "view" else ("get", "patch", "update"))
        )
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"{kind.name.lower()}-{_ROLE_NAMES[level]}",
            "labels": {
                f"rbac.authorization.k8s.io/aggregate-to-{level}": "true",
                f"rbac.authorization.kubeflow.org/aggregate-to-kubeflow-{level}": "true",
            },
        },
        "rules": rules,
    }


def _rule(resource: str, verbs: tuple[str, ...]) -> dict[str, Any]:
    return {"apiGroups": [GROUP], "resources": [resource], "verbs": sorted(verbs)}
