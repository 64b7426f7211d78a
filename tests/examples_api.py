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
        "workingDir": "/work",
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

AT_LEAST_1 = "greater than or equal to 1"
BUCKET_ALLOWED = "s3://bucket or s3://bucket/prefix, or file:///absolute/path"
PATH_ALLOWED = "give an absolute, normalised path"
RESERVED = "are the operator's"

BAD = (
    Bad("no workers", trainer("spec.topology.workers", 0), "spec.topology.workers", "0", AT_LEAST_1),
    Bad("negative workers", trainer("spec.topology.workers", -1), "spec.topology.workers", "-1", AT_LEAST_1),
    Bad(
        "too many workers",
        trainer("spec.topology.workers", 2**31 - 1),
        "spec.topology.workers",
        str(2**31 - 1),
        "less than or equal to 10000",
    ),
    Bad("negative epochs", trainer("spec.epochs", -1), "spec.epochs", "-1", AT_LEAST_1),
    Bad("no epochs", trainer("spec.epochs", None), "spec.epochs", "", "equired"),
    Bad("epochs as text", trainer("spec.epochs", "ten"), "spec.epochs", "string", "integer"),
    Bad("no image", trainer("spec.image", None), "spec.image", "", "equired"),
    Bad(
        "two masters",
        trainer("spec.topology.masters", 2),
        "spec.topology.masters",
        "2",
        "less than or equal to 1",
    ),
    Bad(
        "negative servers",
        trainer("spec.topology.parameterServers", -1),
        "spec.topology.parameterServers",
        "-1",
        "greater than or equal to 0",
    ),
    Bad(
        "six copies",
        trainer("spec.topology.replicationFactor", 6),
        "spec.topology.replicationFactor",
        "6",
        "less than or equal to 5",
    ),
    Bad(
        "no copies",
        trainer("spec.topology.replicationFactor", 0),
        "spec.topology.replicationFactor",
        "0",
        AT_LEAST_1,
    ),
    Bad(
        "name one over the limit",
        trainer("metadata.name", NAME_AT_LIMIT + "m"),
        "metadata.name",
        NAME_AT_LIMIT + "m",
        "must fit 63 characters",
        server_path="Trainer",
    ),
    Bad(
        "name too long for the eleventh worker",
        trainer("metadata.name", NAME_AT_LIMIT, "spec.topology.workers", 11),
        "metadata.name",
        NAME_AT_LIMIT,
        "must fit 63 characters",
        server_path="Trainer",
    ),
    Bad(
        "name too long for the elastic maximum",
        trainer("metadata.name", NAME_AT_LIMIT, "spec.elastic", {"maxWorkers": 101}),
        "metadata.name",
        NAME_AT_LIMIT,
        "must fit 63 characters",
        server_path="Trainer",
    ),
    Bad(
        "name of eighty characters",
        trainer("metadata.name", "m" * 80),
        "metadata.name",
        "m" * 80,
        "must fit 63 characters",
        server_path="Trainer",
    ),
    Bad(
        "name with dots",
        trainer("metadata.name", "llama.7b"),
        "metadata.name",
        "llama.7b",
        "no dots",
        server_path="Trainer",
    ),
    Bad(
        "elastic upside down",
        trainer("spec.elastic", {"minWorkers": 3, "maxWorkers": 2}),
        "spec.elastic.minWorkers",
        "3",
        "must not be more than maxWorkers",
    ),
    Bad(
        "elastic minimum of none",
        trainer("spec.elastic", {"minWorkers": 0}),
        "spec.elastic.minWorkers",
        "0",
        AT_LEAST_1,
    ),
    Bad(
        "more workers than the elastic maximum",
        trainer("spec.elastic", {"maxWorkers": 4}, "spec.topology.workers", 5),
        "spec.topology.workers",
        "5",
        "must not be more than elastic.maxWorkers",
    ),
    Bad(
        "fewer workers than the elastic minimum",
        trainer("spec.elastic", {"minWorkers": 4, "maxWorkers": 5}),
        "spec.topology.workers",
        "2",
        "must not be less than elastic.minWorkers",
    ),
    *(
        Bad(
            f"bucket {bucket!r}",
            trainer("spec.checkpoint", {"bucket": bucket}),
            "spec.checkpoint.bucket",
            bucket,
            BUCKET_ALLOWED,
        )
        for bucket in (
            "Upper",
            "my bucket",
            "other/claim",
            "http://x/y",
            "s3:/bucket",
            "s3://",
            "s3://UPPER",
            "s3://bucket//double",
            "s3://bucket/../other",
            "file://relative",
            "file:///",
            "file:///srv/../etc",
            "c" * 254,
        )
    ),
    Bad("no bucket", trainer("spec.checkpoint", {}), "spec.checkpoint.bucket", "", "equired"),
    Bad(
        "no interval",
        trainer("spec.checkpoint", {"bucket": "b", "intervalMinutes": 0}),
        "spec.checkpoint.intervalMinutes",
        "0",
        "at least 0.05",
    ),
    Bad(
        "prefix that climbs",
        trainer("spec.checkpoint", {"bucket": "b", "prefix": "a/../../b"}),
        "spec.checkpoint.prefix",
        "a/../../b",
        "relative path without ..",
    ),
    Bad(
        "nothing retained",
        trainer("spec.checkpoint", {"bucket": "b", "maxRetention": 0}),
        "spec.checkpoint.maxRetention",
        "0",
        AT_LEAST_1,
    ),
    Bad(
        "reserved variable",
        env({"name": "SEED", "value": "7"}, {"name": "TRAINER_UID", "value": "x"}),
        "spec.env[1].name",
        "TRAINER_UID",
        "are set by the operator",
    ),
    Bad(
        "reserved variable of a role",
        trainer("spec.topology.roles.ps", {"env": [{"name": "TRAINER_ROLE", "value": "x"}]}),
        "spec.topology.roles.ps.env[0].name",
        "TRAINER_ROLE",
        "are set by the operator",
    ),
    Bad(
        "reserved variable of a profile",
        at(PROFILE, "spec.envVars", [{"name": "TRAINER_NAME", "value": "x"}]),
        "spec.envVars[0].name",
        "TRAINER_NAME",
        "are set by the operator",
    ),
    Bad(
        "value twice",
        env({"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}),
        "spec.env[0].valueFrom",
        "",
        "value or valueFrom, not both",
    ),
    Bad(
        "no source",
        env({"name": "A", "valueFrom": {}}),
        "spec.env[0].valueFrom",
        "",
        "exactly one of fieldRef",
    ),
    Bad("variable with =", env({"name": "A=B", "value": "x"}), "spec.env[0].name", "A=B", "match"),
    Bad(
        "half a device",
        trainer("spec.resources", {"limits": {"nvidia.com/gpu": "500m"}}),
        "spec.resources.limits",
        "",
        "counted in whole numbers",
    ),
    Bad(
        "not a quantity",
        trainer("spec.resources", {"limits": {"memory": "40 GB"}}),
        "spec.resources.limits.memory",
        "40 GB",
        "",
    ),
    Bad(
        "reserved label",
        pod("labels", {"trainer-name": "other"}),
        "spec.topology.podSpec.labels",
        "",
        RESERVED,
    ),
    Bad(
        "reserved annotation",
        pod("annotations", {"trainer.operator.kubeflow.org/epoch": "9"}),
        "spec.topology.podSpec.annotations",
        "",
        RESERVED,
    ),
    Bad(
        "system priority",
        pod("priorityClassName", "system-node-critical"),
        "spec.topology.podSpec.priorityClassName",
        "system-node-critical",
        "are the cluster's own",
    ),
    Bad(
        "shared memory without end",
        pod("shmSize", "2Ti"),
        "spec.topology.podSpec.shmSize",
        "2Ti",
        "at most 1Ti",
    ),
    Bad(
        "root",
        pod("securityContext", {"runAsUser": 0}),
        "spec.topology.podSpec.securityContext.runAsUser",
        "0",
        AT_LEAST_1,
    ),
    Bad(
        "may be root",
        pod("securityContext", {"runAsNonRoot": False}),
        "spec.topology.podSpec.securityContext.runAsNonRoot",
        "alse",
        "rue",
    ),
    Bad(
        "escalation",
        pod("securityContext", {"allowPrivilegeEscalation": True}),
        "spec.topology.podSpec.securityContext.allowPrivilegeEscalation",
        "rue",
        "alse",
    ),
    Bad(
        "volume without a source",
        pod("volumes", [{"name": "v"}]),
        "spec.topology.podSpec.volumes[0]",
        "",
        "exactly one of configMap",
    ),
    Bad(
        "volume with two sources",
        pod("volumes", [{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]),
        "spec.topology.podSpec.volumes[0]",
        "",
        "exactly one of configMap",
    ),
    Bad(
        "volume of ours",
        pod("volumes", [{"name": "trainer-agent", "emptyDir": {}}]),
        "spec.topology.podSpec.volumes[0].name",
        "trainer-agent",
        RESERVED,
    ),
    Bad(
        "mount of no volume",
        pod("volumeMounts", [{"name": "v", "mountPath": "/data"}]),
        "spec.topology.podSpec.volumeMounts",
        "",
        "names one of podSpec.volumes",
    ),
    *(
        Bad(f"mount at {path}", mounted(path), "spec.runtimeConfig.mountPath", path, PATH_ALLOWED)
        for path in (
            "//",
            "/etc",
            "relative/path",
            "/data/",
            "/data/../etc",
            "/proc/self",
            "/dev/shm",
            "/sys",
            "/trainer/agent",
            "/var/run/secrets/kubernetes.io",
            "/etc/ld.so.preload",
            "/etc/passwd",
            "/etc/ssl/certs",
            "/etc/resolv.conf",
        )
    ),
    Bad(
        "control-plane nodes",
        at(
            PROFILE,
            "spec.tolerations",
            [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        ),
        "spec.tolerations[0].key",
        "node-role.kubernetes.io/control-plane",
        "never runs on control-plane nodes",
    ),
    Bad(
        "every taint",
        at(PROFILE, "spec.tolerations", [{"operator": "Exists"}]),
        "spec.tolerations[0].key",
        "",
        "equired",
    ),
    Bad(
        "secret of another namespace",
        at(PROFILE, "spec.runtimeConfig", {"secret": "kube-system/token", "mountPath": "/x"}),
        "spec.runtimeConfig.secret",
        "kube-system/token",
        "match",
    ),
    Bad(
        "unknown restart policy",
        at(PROFILE, "spec.retryPolicy", {"restartPolicy": "Sometimes"}),
        "spec.retryPolicy.restartPolicy",
        "Sometimes",
        "OnFailure",
    ),
    Bad(
        "negative backoff limit",
        trainer("spec.retryPolicy", {"backoffLimit": -1}),
        "spec.retryPolicy.backoffLimit",
        "-1",
        "greater than or equal to 0",
    ),
    Bad(
        "backoff upside down",
        trainer("spec.retryPolicy", {"backoff": {"baseSeconds": 9, "capSeconds": 5}}),
        "spec.retryPolicy.backoff.baseSeconds",
        "9",
        "must not be more than capSeconds",
    ),
    Bad(
        "failure rule without criteria",
        trainer("spec.failureRules", [{"action": "Ignore"}]),
        "spec.failureRules[0]",
        "",
        "at least one of role",
    ),
    Bad(
        "profile of another namespace",
        trainer("spec.profile", "other/cheap"),
        "spec.profile",
        "other/cheap",
        "match",
    ),
    Bad(
        "checkpoint of no Trainer",
        at(CHECKPOINT, "spec.trainerRef", None),
        "spec.trainerRef",
        "",
        "equired",
    ),
    Bad("checkpoint id", at(CHECKPOINT, "spec.id", "../x"), "spec.id", "../x", "match"),
)

PYTHON_ONLY_BAD = (
    Bad(
        "pattern that is none",
        trainer("spec.failureRules", [{"messagePattern": "(", "action": "Ignore"}]),
        "spec.failureRules[0].messagePattern",
        "(",
        "regular expression",
    ),
)
"""What the schema language can't express; only the webhook and the reconciler refuse it."""


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
