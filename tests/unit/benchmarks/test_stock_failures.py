"""Scenarios of failures tell a job that is whole again from one that is not, and never wait for ever."""

import dataclasses
import json

import pytest

from benchmarks.result import Scale
from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios.crashloop import CrashLoop
from benchmarks.stock.scenarios.failures import groups

POD_FAILED = groups(Scale.QUICK)[0].scenarios[0]


class StandIn:
    """A cluster and an arm in one: four pods run per job, and what fails is replaced or is not."""

    name = "stand-in"
    job_resource = "apis/example/v1/jobs"
    pod_label = "job"

    def __init__(self, folder, *, replaces):
        self.cluster = self
        self.audit_log = folder / "audit.log"
        self.audit_log.touch()
        self.replaces = replaces
        self.pods = {}
        self.now = 0

    def job(self, name, *, pods):
        return {"name": name, "pods": pods}

    async def request(self, verb, path, body=None, *, content_type=""):
        if path == self.job_resource:
            for number in range(body["pods"]):
                self.create(body["name"], number)
        elif verb == "PATCH":
            self.fail(path.split("/")[-2])
        return {"items": list(self.pods.values())}

    def create(self, job, number):
        name = f"{job}-{number}"
        self.pods[name] = {
            "metadata": {"name": name, "uid": f"{name}-{self.now}", "labels": {"job": job}},
            "spec": {"nodeName": "node", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        }

    def fail(self, name):
        self.log("patch", "admin", name)
        if self.replaces:
            job, _, number = name.rpartition("-")
            self.log("create", "bench:operator", name, what="pods", job=job)
            self.create(job, number)
            self.log("patch", "kwok", name)
        else:
            self.pods[name]["status"]["phase"] = "Failed"

    def log(self, verb, user, name, *, what="pods/status", job=""):
        self.now += 1
        resource, _, subresource = what.partition("/")
        at = f"2026-01-01T00:{self.now // 60:02}:{self.now % 60:02}.000000Z"
        event = {
            "kind": "Event",
            "stage": "ResponseComplete",
            "verb": verb,
            "user": {"username": user},
            "objectRef": {
                "resource": resource,
                "subresource": subresource,
                "namespace": "bench",
                "name": name,
            },
            "responseStatus": {"code": 200},
            "requestObject": {"metadata": {"labels": {"job": job}}},
            "requestReceivedTimestamp": at,
            "stageTimestamp": at,
        }
        with self.audit_log.open("a") as log:
            log.write(json.dumps(event) + "\n")


async def test_job_whose_pod_is_replaced_is_timed_by_the_audit_log(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await POD_FAILED.run(Room(room, room))
    assert outcome.figures == {"median": 2.0, "slowest": 2.0, "started": 1.0}


async def test_job_that_stays_broken_is_said_to_be_and_has_no_figure(tmp_path):
    room = StandIn(tmp_path, replaces=False)
    outcome = await dataclasses.replace(POD_FAILED, patience=0.2).run(Room(room, room))
    assert set(outcome.figures.values()) == {None}
    assert outcome.notes == {"median": "not whole 0 s after failure 1 of 2"}


async def test_crash_loop_counts_what_the_operator_started_and_asked_for(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await CrashLoop(duration=0.0).run(Room(room, room))
    assert outcome.figures == {"restarts": 1, "requests": 1}


@pytest.mark.parametrize("scale", Scale)
def test_plan_of_another_process_prints_the_same(scale):
    """An interrupted run is gone on with only by a plan that prints alike: no addresses."""
    assert " at 0x" not in repr(groups(scale))


def test_nobody_expects_bare_pods_to_be_replaced():
    assert all("raw" in group.skipped for group in groups(Scale.FULL))
