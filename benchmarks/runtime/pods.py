"""Pods as a busy cluster has them: 9 KiB of JSON, a third of it managed fields.

Ten are created in one second and start within the next few; names, uids, addresses and notes are each pod's own, so
that a client which keeps equal values once gains no more here than it would in a cluster.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["NAMESPACE", "PodTemplate"]

NAMESPACE = "bench"

_NAME, _UID, _VERSION, _NODE = "@name@", "@uid@", "@version@", "@node@"
_ADDRESS, _CREATED, _STARTED = "@address@", "@created@", "@started@"
_TIME = "2026-01-01T00:00:00Z"


class PodTemplate:
    """Makes the JSON of one pod after another without encoding anything twice."""

    def __init__(self) -> None:
        text = json.dumps(_pod(), separators=(",", ":"))
        head, _, rest = text.partition(f'"{_VERSION}"')
        self._head, self._tail = head, rest

    def body(self, number: int, *, version: int) -> bytes:
        """Return pod `number` at a version."""
        return (
            self._personal(self._head, number) + f'"{version}"'.encode() + self._personal(self._tail, number)
        )

    def parts(self, number: int) -> tuple[bytes, bytes]:
        """Return what comes before and after the version, for whoever writes the same pod many times."""
        return self._personal(self._head, number) + b'"', b'"' + self._personal(self._tail, number)

    def _personal(self, text: str, number: int) -> bytes:
        uid = f"{number:08x}-0000-4000-8000-{number:012x}"
        return (
            text.replace(_NAME, f"worker-{number:06d}")
            .replace(_UID, uid)
            .replace(_NODE, f"node-{number % 100:03d}")
            .replace(_ADDRESS, f"10.1.{number // 250 % 250}.{number % 250 + 1}")
            .replace(_CREATED, _time(number // 10))
            .replace(_STARTED, _time(number // 10 + 1 + number * 7 % 5))
            .encode()
        )


def _time(second: int) -> str:
    return f"2026-01-01T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"


def _pod() -> dict[str, Any]:
    labels = {f"example.com/label-{number}": f"value-{number}" for number in range(6)} | {"app": "training"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": _NAME,
            "namespace": NAMESPACE,
            "uid": _UID,
            "resourceVersion": _VERSION,
            "generation": 1,
            "creationTimestamp": _CREATED,
            "labels": labels,
            "annotations": {f"example.com/note-{number}": f"note {number} on {_NAME}" for number in range(4)},
            "ownerReferences": [
                {
                    "apiVersion": "example.com/v1",
                    "kind": "Training",
                    "name": "training",
                    "uid": "0a0a0a0a-0000-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [
                _managed("kube-controller-manager", labels, 16),
                _managed("kubelet", {}, 28),
            ],
        },
        "spec": _spec(),
        "status": _status(),
    }


def _managed(manager: str, labels: dict[str, str], fields: int) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {f"f:{name}": {} for name in labels}},
            "f:spec": {
                f'k:{{"name":"container-{number}"}}': {".": {}, "f:image": {}, "f:name": {}}
                for number in range(fields)
            },
        },
    }


def _spec() -> dict[str, Any]:
    return {
        "nodeName": _NODE,
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "containers": [_container(name) for name in ("main", "sidecar")],
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
        "volumes": [
            {"name": f"volume-{number}", "configMap": {"name": f"config-{number}", "defaultMode": 420}}
            for number in range(5)
        ],
    }


def _container(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example.com/team/training:v1.2.3",
        "command": ["python", "-m", "training", "--epochs", "100"],
        "env": [{"name": f"SETTING_{number}", "value": f"the value of {number}"} for number in range(14)],
        "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}},
        "volumeMounts": [
            {"name": f"volume-{number}", "mountPath": f"/mnt/volume-{number}", "readOnly": True}
            for number in range(5)
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "periodSeconds": 10,
        },
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def _status() -> dict[str, Any]:
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": since}
            for kind, since in (
                ("PodReadyToStartContainers", _STARTED),
                ("Initialized", _CREATED),
                ("Ready", _STARTED),
                ("ContainersReady", _STARTED),
                ("PodScheduled", _CREATED),
            )
        ],
        "hostIP": "10.0.0.1",
        "podIP": _ADDRESS,
        "podIPs": [{"ip": _ADDRESS}],
        "startTime": _CREATED,
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": _STARTED}},
                "lastState": {},
                "ready": True,
                "restartCount": 0,
                "image": "registry.example.com/team/training:v1.2.3",
                "imageID": "registry.example.com/team/training@sha256:" + "0" * 64,
                "containerID": "containerd://" + "0" * 64,
                "started": True,
            }
            for name in ("main", "sidecar")
        ],
    }
