"""A Trainer in trouble, as the API server and the operator would tell of it."""

from datetime import UTC, datetime

NOW = datetime(2026, 1, 1, 12, 10, tzinfo=UTC)
GROUP = "trainer.operator.kubeflow.org"


def trainer(
    name="digits", *, namespace="team-a", phase="Recovering", created="2026-01-01T12:00:00Z", **status
):
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Trainer",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": "u-1",
            "creationTimestamp": created,
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"value":"hunter2"}'},
        },
        "spec": {
            "epochs": 50,
            "image": "registry.example/digits:1",
            "command": ["python3", "/digits/train.py"],
            "env": [{"name": "API_TOKEN", "value": "hunter2"}, {"name": "LEVEL", "value": "info"}],
            "topology": {"workers": 3, "parameterServers": 1},
            "checkpoint": {"bucket": "digits-checkpoints", "intervalMinutes": 15, "maxRetention": 3},
        },
        "status": {
            "phase": phase,
            "globalStep": 1090,
            "epochsCompleted": 30,
            "readyWorkers": "2/3",
            "readyServers": "1/1",
            "failures": 1,
            "disruptions": 1,
            "restarts": 2,
            "nodes": 2,
            "startTime": "2026-01-01T12:01:00Z",
            "lastCheckpoint": {"name": "digits-000000001068-e2-ab12", "step": 1068},
            "lastRollback": {"from": 1101, "to": 1068, "reason": "PodDeleted", "at": "2026-01-01T12:08:00Z"},
            "metrics": {"accuracy": 0.9512},
            "membership": {"epoch": 3, "phase": "Preparing", "psEpoch": 1, "psPhase": "Serving"},
            "members": [
                {"role": "worker", "index": 1, "attempt": 1, "disruptions": 1, "lastReason": "PodDeleted"},
                {"role": "worker", "index": 2, "failures": 1, "lastReason": "ProcessExited"},
            ],
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "Recovering",
                    "message": "waits for worker-1",
                    "lastTransitionTime": "2026-01-01T12:08:00Z",
                },
                {
                    "type": "CheckpointHealthy",
                    "status": "True",
                    "reason": "Committed",
                    "lastTransitionTime": "2026-01-01T12:02:00Z",
                },
                {
                    "type": "Degraded",
                    "status": "True",
                    "reason": "MembersMissing",
                    "message": "1 of 4 members are not there",
                    "lastTransitionTime": "2026-01-01T12:08:00Z",
                },
            ],
            **status,
        },
    }


def pod(
    role,
    index,
    attempt=0,
    *,
    phase="Running",
    ready=True,
    node="node-1",
    created="2026-01-01T12:01:00Z",
    **status,
):
    name = f"digits-{role}-{index}" + (f"-a{attempt}" if attempt else "")
    conditions = [{"type": "Ready", "status": "True" if ready and phase == "Running" else "False"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "labels": {
                "trainer-name": "digits",
                f"{GROUP}/role": role,
                f"{GROUP}/index": str(index),
                f"{GROUP}/attempt": str(attempt),
            },
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase, "conditions": conditions, **status},
    }


def failed(code, reason="Error"):
    return {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "reason": reason}}}]}


def pods():
    return [
        pod("worker", 0),
        pod("worker", 1, phase="Failed", node="node-2", **failed(137, "OOMKilled")),
        pod(
            "worker",
            1,
            1,
            phase="Pending",
            node="",
            created="2026-01-01T12:08:10Z",
            conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
        ),
        pod("worker", 2, node="node-2"),
        pod("ps", 0),
    ]


def operators_tree():
    def member(name, state, **more):
        return {"member": name, "state": state, "cause": "", "attempt": 0, **more}

    running = {"step": 1090, "stepAgeSeconds": 0.4, "stepsPerSecond": 7.54}
    return {
        "trainer": "team-a/digits",
        "uid": "u-1",
        "phase": "Recovering",
        "epoch": 3,
        "membershipPhase": "Preparing",
        "psEpoch": 1,
        "globalStep": 1090,
        "epochsCompleted": 30,
        "epochs": 50,
        "roles": [
            {
                "role": "worker",
                "desired": 3,
                "ready": 1,
                "worst": "Crashed",
                "counts": {"Ready": 1, "Pending": 1, "Crashed": 1},
                "members": [
                    member("worker-0", "Ready", pod="digits-worker-0", **running),
                    member("worker-1", "Pending", attempt=1),
                    member(
                        "worker-2",
                        "Crashed",
                        cause="ProcessExited",
                        pod="digits-worker-2",
                        step=1088,
                        stepAgeSeconds=14.2,
                        stepsPerSecond=7.5,
                    ),
                ],
            },
            {
                "role": "ps",
                "desired": 1,
                "ready": 1,
                "worst": "Ready",
                "counts": {"Ready": 1},
                "members": [member("ps-0", "Ready", pod="digits-ps-0", step=1090, stepAgeSeconds=0.3)],
            },
        ],
    }


def event(kind, name, reason, message, *, at="12:05:00", count=1, type="Normal", uid="", **more):
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}.{at}", "uid": f"{name}{reason}{at}", "resourceVersion": "1"},
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "reason": reason,
        "message": message,
        "type": type,
        "count": count,
        "lastTimestamp": f"2026-01-01T{at}Z",
        **more,
    }


def checkpoint(step, state="Committed", *, name="digits"):
    return {
        "metadata": {"name": f"{name}-{step:012d}-e2-ab12", "creationTimestamp": "2026-01-01T12:04:00Z"},
        "spec": {"trainerRef": {"name": name}, "reason": "Interval"},
        "status": {"state": state, "step": step, "size": "1.5 MiB", "health": "Healthy"},
    }
