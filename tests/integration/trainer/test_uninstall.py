"""Uninstall and reinstall on the real API server, while Trainers train (TR42, TR43, AU3)."""

import json
import signal

from integration.trainer.conftest import BASE

ENDS = ["python3", "-c", "pass"]
FAILS = ["python3", "-c", "raise SystemExit(3)"]


def profile(job):
    kind = {"apiVersion": "trainer.operator.kubeflow.org/v1alpha1", "kind": "TrainingProfile"}
    metadata = {"name": "shared", "namespace": job.namespace}
    job.world.apply({**kind, "metadata": metadata, "spec": {"envVars": [{"name": "A", "value": "b"}]}})


def audit_trail(world):
    return world.get("auditlogs", "-n", "kubeflow-audit")["items"]


def stop_operators(world):
    for operator in world.operators:
        operator.kill(signal.SIGTERM)


def test_an_operator_can_be_taken_away_and_brought_back_with_and_without_its_kinds(job, until):
    """TR42, TR43, AG8: without the operator training goes on; without the kinds nothing hangs and nothing is left."""
    world = job.world
    profile(job)
    digits = job.digits(epochs=2000, profile="shared")
    digits.wait_step(20)
    workers = digits.processes("worker")
    job.make("fails", command=FAILS, retryPolicy={"backoffLimit": 0}).wait_phase("Failed", 90)
    records = until(lambda: audit_trail(world), 30, "a record of the failure")

    again = world.kubectl("apply", "-k", str(BASE)).splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []

    stop_operators(world)
    try:
        world.kubectl("delete", "-k", str(BASE), "-l", "app.kubernetes.io/component!=crds", "--timeout=90s")
        kinds = world.get("trainers,trainingprofiles,checkpoints", "-n", digits.namespace)["items"]
        assert {each["kind"] for each in kinds} >= {"Trainer", "TrainingProfile"}
        assert [
            each["metadata"].get("finalizers") for each in kinds if "finalizers" in each["metadata"]
        ] == []
        assert audit_trail(world) == records
    finally:
        world.install()
        world.start_operators()
    status = digits.wait_trains_on()
    assert digits.processes("worker") == workers
    assert (status["restarts"], status["failures"], status["disruptions"]) == (0, 0, 0)

    stop_operators(world)
    try:
        world.kubectl("delete", "-k", str(BASE), "--timeout=90s")
    finally:
        world.install()
        world.start_operators()
    until(lambda: not digits.pods(), 90, "the pods of the Trainer that is gone")
    profile(job)
    fresh = job.make("fresh", command=ENDS, profile="shared")
    fresh.wait_phase("Succeeded", 90)
    assert json.dumps(fresh.status()["profileSnapshot"]).count("shared") == 1
