"""Good and bad objects of our kinds: one table, held against the models and against the real API server (CR3)."""

import copy
from dataclasses import dataclass
from typing import Any

API_VERSION = "trainer.operator.kubeflow.org/v1alpha1"
GPU_WORKER = {"requests": {"cpu": 20, "memory": "40Gi"}, "limits": {"nvidia.com/gpu": 8}}


def at(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy of the object with the value at a dotted path; None removes the field."""
    obj = copy.deepcopy(base)
    *parents, last = path.split(".")
    node = obj
    for name in parents:
        node = node.setdefault(name, {})
    if value is None:
        node.pop(last, None)
    else:
        node[last] = value
    return obj


TRAINER: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Trainer",
    "metadata": {"name": "mnist"},
    "spec": {"epochs": 3, "image": "trainer:1", "topology": {"workers": 2}},
}
PROFILE: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "TrainingProfile",
    "metadata": {"name": "cheap"},
    "spec": {},
}
CHECKPOINT: dict[str, Any] = {
    "apiVersion": API_VERSION,
    "kind": "Checkpoint",
    "metadata": {"name": "mnist-now"},
    "spec": {"trainerRef": {"name": "mnist", "uid": "u-1"}, "step": 100, "id": "000000000100-e3-0a1b"},
}


@dataclass(frozen=True)
class Good:
    """An object that is taken."""

    name: str
    obj: dict[str, Any]


@dataclass(frozen=True)
class Bad:
    """An object that is refused: where, what is shown of the value, and what is said to be allowed."""

    name: str
    obj: dict[str, Any]
    path: str
    shown: str
    allowed: str
    server_path: str | None = None
    """Where the API server points to when it can't name the field."""


@dataclass(frozen=True)
class Change:
    """A change of one object; refused when `path` is given."""

    name: str
    old: dict[str, Any]
    new: dict[str, Any]
    path: str = ""
    allowed: str = ""


def trainer(path: str, value: Any, *more: Any) -> dict[str, Any]:
    """Return the base Trainer with values at paths."""
    obj = at(TRAINER, path, value)
    for another, its_value in zip(more[::2], more[1::2], strict=True):
        obj = at(obj, another, its_value)
    return obj


def env(*variables: dict[str, Any]) -> dict[str, Any]:
    """Return a Trainer with these environment variables."""
    return trainer("spec.env", list(variables))


def pod(field: str, value: Any, *more: Any) -> dict[str, Any]:
    """Return a Trainer with a field of podSpec set."""
    pairs = [f"spec.topology.podSpec.{item}" if i % 2 == 0 else item for i, item in enumerate(more)]
    return trainer(f"spec.topology.podSpec.{field}", value, *pairs)


def mounted(path: str) -> dict[str, Any]:
    """Return a profile that mounts its Secret at a path."""
    return at(PROFILE, "spec.runtimeConfig", {"secret": "vault", "mountPath": path})


EVERYTHING = trainer(
    "spec",
    {
        "epochs": 10,
        "image": "registry.example/train@sha256:" + "0" * 64,
        "command": ["python3", "train.py"],
        "args": ["--batch=64"],
        "env": [
            {"name": "SEED", "value": "7"},
            {
                "name": "TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}},
            },
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        ],
        "workingDir": "/code",
        "imagePullPolicy": "IfNotPresent",
        "imagePullSecrets": [{"name": "pull"}],
        "resources": GPU_WORKER,
        "topology": {
            "workers": 4,
            "parameterServers": 2,
            "masters": 1,
            "replicationFactor": 3,
            "roles": {
                "ps": {
                    "resources": {"requests": {"cpu": "500m"}},
                    "image": "ps:1",
                    "command": ["python3"],
                    "args": ["ps.py"],
                    "env": [{"name": "ROLE", "value": "ps"}],
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [
                                    {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                                ]
                            }
                        },
                        "podAntiAffinity": {
                            "preferredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "weight": 50,
                                    "podAffinityTerm": {
                                        "labelSelector": {"matchLabels": {"app": "x"}},
                                        "topologyKey": "kubernetes.io/hostname",
                                    },
                                }
                            ]
                        },
                    },
                }
            },
            "podSpec": {
                "ports": 2048,
                "labels": {"team": "vision"},
                "annotations": {"example.com/note": "hello"},
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
                    {"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}},
                    {
                        "name": "facts",
                        "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "x"}}]},
                    },
                    {"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}]}},
                ],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "scratch", "mountPath": "/tmp"},
                ],
                "serviceAccountName": "default",
                "priorityClassName": "training",
                "shmSize": "8Gi",
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1000,
                    "capabilities": {"drop": ["ALL"]},
                },
                "terminationGracePeriodSeconds": 60,
            },
            "storage": {"size": "100Gi", "storageClassName": "fast", "recovery": "Reattach"},
        },
        "elastic": {"minWorkers": 2, "maxWorkers": 8},
        "checkpoint": {
            "bucket": "s3://training/runs",
            "prefix": "a/b",
            "intervalMinutes": 0.05,
            "maxRetention": 1,
            "stagingTimeoutSeconds": 60,
            "retainOnDelete": False,
            "verifyAtRest": False,
            "credentialsSecret": "s3",
        },
        "profile": "cheap",
        "retryPolicy": {
            "backoffLimit": 0,
            "restartPolicy": "ExitCode",
            "backoff": {"baseSeconds": 1, "capSeconds": 10, "resetAfterSeconds": 60},
            "maxDisruptions": 3,
        },
        "failureRules": [
            {"role": "worker", "exitCodes": [42], "action": "FailTrainer"},
            {"reason": "Evicted", "messagePattern": "CUDA.*", "action": "Ignore"},
        ],
        "weights": {
            "huggingFace": {
                "repo": "org/model",
                "revision": "v1",
                "files": [{"path": "model.safetensors", "sha256": "a" * 64}],
                "mountPath": "/weights",
                "credentialsSecret": "hub",
            }
        },
        "scheduling": {
            "gang": False,
            "schedulerName": "volcano",
            "queue": "research",
            "topologyPolicy": {"required": "rack", "preferred": "nvlink"},
        },
        "suspend": True,
        "managedBy": "kueue.x-k8s.io/multikueue",
        "ttlSecondsAfterFinished": 0,
        "activeDeadlineSeconds": 3600,
        "pendingTimeoutSeconds": 60,
        "cleanPodPolicy": "All",
        "successPolicy": "Chief",
        "notebook": {"image": "jupyter:1", "kernelName": "python3", "idleTimeoutSeconds": 60},
        "notifications": {"routes": [{"name": "oncall", "severity": "Critical", "service": "pager"}]},
    },
)

# "-worker-1-a9999" takes 15 of 63 characters with two workers, one more with eleven.
NAME_AT_LIMIT = "m" * 48

GOOD = (
    Good("the least Trainer", trainer("spec.topology", None)),
    Good("every field", EVERYTHING),
    Good("name at the limit", trainer("metadata.name", NAME_AT_LIMIT)),
    Good(
        "name at the limit with servers",
        trainer("metadata.name", NAME_AT_LIMIT, "spec.topology.parameterServers", 100),
    ),
    Good("ten workers at the limit", trainer("metadata.name", NAME_AT_LIMIT, "spec.topology.workers", 10)),
    Good("most workers", trainer("spec.topology.workers", 10_000)),
    Good("only elastic maximum", trainer("spec.elastic", {"maxWorkers": 2})),
    Good("empty elastic", trainer("spec.elastic", {})),
    Good("claim", trainer("spec.checkpoint", {"bucket": "pvc-backups"})),
    Good("claim with dots", trainer("spec.checkpoint", {"bucket": "pvc.backups.1"})),
    Good("s3", trainer("spec.checkpoint", {"bucket": "s3://my-bucket"})),
    Good("directory", trainer("spec.checkpoint", {"bucket": "file:///srv/checkpoints"})),
    Good("empty retry policy", trainer("spec.retryPolicy", {"backoff": {}})),
    Good("reference only by prefix", env({"name": "MY_TRAINER_X", "value": ""})),
    Good("managed by us", trainer("spec.managedBy", "trainer.operator.kubeflow.org/trainer-controller")),
    Good("empty profile", PROFILE),
    Good("etc/secrets", mounted("/etc/secrets")),
    Good("profile at its name limit", at(PROFILE, "metadata.name", "p" * 253)),
    Good("checkpoint", CHECKPOINT),
    Good("checkpoint on demand", at(CHECKPOINT, "spec", {"trainerRef": {"name": "mnist"}})),
)


def state(name: str | None) -> dict[str, Any]:
    """Return the checkpoint in a state."""
    return at(CHECKPOINT, "status.state", name)


CHANGES = (
    Change("more workers", TRAINER, trainer("spec.topology.workers", 3)),
    Change(
        "managedBy",
        trainer("spec.managedBy", "kueue.x-k8s.io/multikueue"),
        trainer("spec.managedBy", "example.com/other"),
        "spec.managedBy",
        "can't be changed",
    ),
    Change(
        "managedBy added",
        TRAINER,
        trainer("spec.managedBy", "example.com/x"),
        "spec.managedBy",
        "can't be changed",
    ),
    Change(
        "managedBy removed",
        trainer("spec.managedBy", "example.com/x"),
        TRAINER,
        "spec.managedBy",
        "can't be changed",
    ),
    Change("hold", CHECKPOINT, at(CHECKPOINT, "spec.hold", True)),
    Change(
        "operator fills in",
        at(CHECKPOINT, "spec", {"trainerRef": {"name": "mnist"}}),
        CHECKPOINT,
    ),
    Change(
        "another Trainer",
        CHECKPOINT,
        at(CHECKPOINT, "spec.trainerRef.name", "other"),
        "spec.trainerRef",
        "can't be changed",
    ),
    Change("another step", CHECKPOINT, at(CHECKPOINT, "spec.step", 101), "spec.step", "can't be changed"),
    Change("id removed", CHECKPOINT, at(CHECKPOINT, "spec.id", None), "spec.id", "can't be changed"),
)

STATES = (None, "Pending", "Staging", "Committed", "GarbageCollected")
STATE_CHANGES = tuple(
    Change(
        f"{old} to {new}",
        state(old),
        state(new),
        "" if i <= j else "status.state",
        "" if i <= j else "only goes forward",
    )
    for i, old in enumerate(STATES)
    for j, new in enumerate(STATES)
)
