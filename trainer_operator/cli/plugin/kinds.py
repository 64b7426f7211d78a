"""Kinds and labels of the API, as far as the plugin meets them.

A copy of what `trainer_operator.api` says: loading its models takes longer than everything else a command does, and
would be felt at each press of the tab key. A test keeps both equal.
"""

from runtime.objects import Resource

GROUP = "trainer.operator.kubeflow.org"
TRAINERS = Resource(GROUP, "v1alpha1", "trainers", "Trainer")
CHECKPOINTS = Resource(GROUP, "v1alpha1", "checkpoints", "Checkpoint")
AUDIT_LOGS = Resource(GROUP, "v1alpha1", "auditlogs", "AuditLog")
AUDIT_NAMESPACE = "kubeflow-audit"
AUDIT_ANCHORS = "trainer-audit-anchors"

TRAINER_LABEL = "trainer-name"
ROLE_LABEL = f"{GROUP}/role"
INDEX_LABEL = f"{GROUP}/index"
ATTEMPT_LABEL = f"{GROUP}/attempt"
NOTEBOOK_ROLE = "notebook"
IMPORT_ANNOTATION = f"{GROUP}/import"
IMPORT_FAILED = "failed: "
VERIFY_ANNOTATION = f"{GROUP}/verify"
RESTORE_ANNOTATION = f"{GROUP}/restore-from"


def trainer_selector(trainer: str) -> str:
    """Select every pod of the Trainer."""
    return f"{TRAINER_LABEL}={trainer}"
