"""What a user can do about a condition, in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BY_REASON: Mapping[tuple[str, str], str] = {
    ("CheckpointHealthy", "NotConfigured"): "give spec.checkpoint, or a restart begins at step 0",
    ("CheckpointHealthy", "NoneYet"): "wait for the first one; until then a restart begins at step 0",
    (
        "CheckpointHealthy",
        "AttemptsFail",
    ): "see the Events of the Checkpoints, and whether the bucket can be written",
    (
        "CheckpointHealthy",
        "CredentialsMissing",
    ): "name a Secret with the keys in spec.checkpoint.credentialsSecret",
    (
        "CheckpointHealthy",
        "NoConditionalWrites",
    ): "use a store that honours If-None-Match, a claim or file:///",
    (
        "CheckpointHealthy",
        "StoreChanged",
    ): "mount the volume or name the bucket that held the earlier checkpoints",
    (
        "CheckpointHealthy",
        "NoRights",
    ): "check the keys in the Secret, or the volume's mode and the pod's user",
    (
        "CheckpointsDeleted",
        "StoreFails",
    ): "mend the store, or set spec.checkpoint.retainOnDelete to true, which keeps them and lets {name} go",
    (
        "CheckpointsDeleted",
        "Deleting",
    ): "nothing; setting spec.checkpoint.retainOnDelete to true keeps them and lets {name} go",
    ("CheckpointsDeleted", "MembersEnd"): "nothing: it goes on once they have ended",
    (
        "CheckpointHealthy",
        "LayoutChanged",
    ): "save what was saved before, or have the training code call job.register(state) if it is meant",
    (
        "CheckpointHealthy",
        "CodeWithoutSDK",
    ): "nothing, if the code saves by itself; else have it call trainer_sdk's init, restore and save",
    ("CheckpointHealthy", "Full"): "free space in the store, or raise its quota",
    (
        "Succeeded",
        "BackoffLimitExceeded",
    ): "read `kubectl trainer logs`, mend the training, and create it anew",
    ("Succeeded", "DeadlineExceeded"): "raise spec.activeDeadlineSeconds and create it anew",
    ("Ready", "ProfileNotFound"): "create the TrainingProfile that spec.profile names",
    ("Ready", "CommandNotKnown"): "give spec.command",
    (
        "Scheduled",
        "Unschedulable",
    ): "add nodes or lower what is asked for; spec.pendingTimeoutSeconds later all its nodes are given back",
    (
        "Scheduled",
        "SchedulingGated",
    ): "see who set the gate, a queue for example; it places pods when it removes it",
    ("Scheduled", "GangTimeout"): "add nodes, or lower topology.workers or what each member asks for",
    (
        "Scheduled",
        "TopologyLevelUnknown",
    ): "name another level in spec.scheduling.topologyPolicy, or have the nodes labelled",
    ("Scheduled", "TopologyConflict"): "make the role's podAffinity or topologyPolicy a preference",
    ("Scheduled", "PodGroupWaits"): "see the queue of the scheduler that spec.scheduling.schedulerName names",
    (
        "Scheduled",
        "PodGroupsUnavailable",
    ): "install the scheduler's PodGroups, or set spec.scheduling.gang to false",
    ("NotebookReady", "VariableRefused"): "rename the variable, or remove spec.notebook",
    (
        "NotebookReady",
        "Refused",
    ): "see the quota and the pods of the namespace; it is tried again within 5 min",
    (
        "NotebookReady",
        "ImageUnavailable",
    ): "correct spec.notebook.image, or the Secrets in spec.imagePullSecrets",
    ("NotebookReady", "GatewayFails"): "name an image with jupyter-kernel-gateway in spec.notebook.image",
    ("NotebookReady", "TokenMissing"): "`kubectl trainer notebook {name}` makes the Secret",
    ("FailureRulesValid", "BadPattern"): "`kubectl edit trainer {name}` and correct the pattern",
    ("Ready", "Suspended"): "`kubectl trainer resume {name}` goes on",
    ("Ready", "Failed"): "read `kubectl trainer logs {name}`, mend what failed, and create it anew",
    ("Ready", "Pending"): "see `kubectl trainer tree {name}` for what each member waits for",
    ("Ready", "Recovering"): "nothing: the operator is at it; `kubectl trainer tree {name} -w` shows how far",
}
_BY_TYPE: Mapping[tuple[str, str], str] = {
    (
        "Degraded",
        "True",
    ): "nothing, if it ends soon; else see `kubectl trainer tree {name}` for who is missing",
    (
        "WeightsVerified",
        "False",
    ): "mend the Secret or spec.weights, which new pods take; another repo or revision needs a suspend and a resume",
}
_BY_PHASE_REASON: Mapping[str, str] = {
    "BackoffLimitExceeded": "read `kubectl trainer logs {name}`; retryPolicy.backoffLimit allows more failures",
    "MaxDisruptionsExceeded": "see why nodes and pods go; retryPolicy.maxDisruptions allows more",
    "DeadlineExceeded": "spec.activeDeadlineSeconds allows more time",
    "CannotExecute": "spec.command could not be started: see its path and the image",
    "FailureRule": "one of spec.failureRules ended it",
}


def advice(condition: Mapping[str, Any], name: str, *, reason: str = "") -> str:
    """Return what to do about a condition; empty where there is nothing to do. `reason` is why the Trainer ended."""
    kind, status = str(condition.get("type")), str(condition.get("status"))
    if kind == "Ready" and condition.get("reason") == "Failed" and reason in _BY_PHASE_REASON:
        return _BY_PHASE_REASON[reason].format(name=name)
    if status == "True" and kind in {"Ready", "Succeeded", "CheckpointHealthy"}:
        return ""
    found = _BY_TYPE.get((kind, status)) or _BY_REASON.get((kind, str(condition.get("reason"))), "")
    return found.format(name=name)
