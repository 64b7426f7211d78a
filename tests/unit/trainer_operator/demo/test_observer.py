"""Objects of the API server become records."""

from trainer_operator.demo.observer import (
    checkpoint_seen,
    event_seen,
    lease_seen,
    node_seen,
    pod_seen,
    status_seen,
)
from trainer_operator.demo.timeline import CheckpointSeen, LeaseSeen, NodeSeen, PodSeen, StatusSeen

LABELS = {
    "trainer-name": "digits",
    "trainer.operator.kubeflow.org/role": "worker",
    "trainer.operator.kubeflow.org/index": "2",
    "trainer.operator.kubeflow.org/attempt": "1",
}


def test_a_trainer_without_status_is_read():
    assert status_seen({"metadata": {"name": "digits"}}, at=1.0) == StatusSeen(1.0)


def test_a_trainers_status_is_read():
    status = {
        "phase": "Recovering",
        "globalStep": 80,
        "epochsCompleted": 3,
        "membership": {"epoch": 2, "psEpoch": 3, "world": 3},
        "failures": 2,
        "disruptions": 1,
        "restarts": 3,
        "rollbacks": 1,
        "lastRollback": {"from": 90, "to": 80, "reason": "ProcessExited", "at": "2026-12-02T09:00:00Z"},
        "recovery": {"members": ["ps-0"], "message": "it ended"},
        "pendingChange": {"reason": "Scale", "since": "2026-12-02T09:00:00Z"},
        "metrics": {"accuracy": 0.97},
        "readyWorkers": "2/3",
    }
    seen = status_seen({"metadata": {"name": "digits"}, "status": status}, at=1.0)
    assert (seen.phase, seen.step, seen.rollback, seen.recovering) == ("Recovering", 80, (90, 80), ("ps-0",))
    assert (seen.epoch, seen.server_epoch, seen.world, seen.restarts) == (2, 3, 3, 3)
    assert (seen.changing, seen.accuracy, seen.message) == (True, 0.97, "it ended")


def test_a_members_pod_is_read():
    pod = {
        "metadata": {
            "name": "digits-worker-2-a1",
            "labels": LABELS,
            "deletionTimestamp": "2026-12-02T09:00:00Z",
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    }
    assert pod_seen(pod, at=1.0, is_gone=False) == PodSeen(
        1.0, "digits-worker-2-a1", "worker-2", 1, "node-1", "Running", is_ending=True
    )
    assert pod_seen({"metadata": {"name": "x", "labels": LABELS}}, at=1.0, is_gone=True).is_gone


def test_a_pod_of_nobody_is_no_member():
    assert pod_seen({"metadata": {"name": "x"}}, at=1.0, is_gone=False) is None


def test_a_checkpoint_is_read():
    obj = {
        "metadata": {"name": "c1"},
        "spec": {"reason": "Interval"},
        "status": {"step": 7, "state": "Staging"},
    }
    assert checkpoint_seen(obj, at=1.0, is_gone=False) == CheckpointSeen(1.0, "c1", 7, "Staging", "Interval")
    obj["status"]["conditions"] = [{"type": "Aborted", "status": "True"}]
    assert checkpoint_seen(obj, at=1.0, is_gone=False).state == "Aborted"
    assert checkpoint_seen(obj, at=1.0, is_gone=True).state == "GarbageCollected"
    assert checkpoint_seen({"metadata": {"name": "c2"}}, at=1.0, is_gone=False).state == "Pending"


def test_events_of_other_kinds_are_left_out():
    event = {"type": "Warning", "reason": "ProcessExited", "message": "it ended"}
    about = {"kind": "Trainer", "name": "digits"}
    seen = event_seen({**event, "involvedObject": about}, at=1.0, is_gone=False)
    assert (seen.warning, seen.reason, seen.about) == (True, "ProcessExited", "Trainer/digits")
    assert event_seen({**event, "involvedObject": {"kind": "Pod"}}, at=1.0, is_gone=False) is None
    assert event_seen({**event, "involvedObject": about}, at=1.0, is_gone=True) is None


def test_a_lease_is_read():
    lease = {"spec": {"holderIdentity": "vm_1", "leaseTransitions": 3}}
    assert lease_seen(lease, at=1.0, is_gone=False) == LeaseSeen(1.0, "vm_1", 3)
    assert lease_seen({}, at=1.0, is_gone=False) == LeaseSeen(1.0, "", 0)
    assert lease_seen(lease, at=1.0, is_gone=True) is None


def test_a_node_is_ready_when_it_says_so_and_is_there():
    node = {"metadata": {"name": "node-0"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert node_seen(node, at=1.0, is_gone=False) == NodeSeen(1.0, "node-0", True)
    assert not node_seen(node, at=1.0, is_gone=True).is_ready
    node["status"]["conditions"][0]["status"] = "Unknown"
    assert not node_seen(node, at=1.0, is_gone=False).is_ready
