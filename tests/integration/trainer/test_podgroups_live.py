"""PodGroups on a real API server, beside a double of Volcano's kind; scheduler-plugins' is not installed."""

import json

import pytest

from integration.trainer import podgroupdouble

SLEEP = ["python3", "-c", "import time; time.sleep(3600)"]


@pytest.fixture
def volcano(world, until):
    """Install the double; it stays, since the operators watch it from then on."""
    world.apply(podgroupdouble.CRD)
    kinds = f"/apis/{podgroupdouble.GROUP}/v1beta1/podgroups"
    until(lambda: world.api.request("GET", kinds).status == 200, 60, "the kind is served")


def make(job, name, scheduler):
    return job.make(
        name,
        command=SLEEP,
        topology={"workers": 2, "podSpec": {"terminationGracePeriodSeconds": 1}},
        scheduling={"schedulerName": scheduler, "queue": "research"},
    )


def group_of(trainer):
    kinds = f"/apis/{podgroupdouble.GROUP}/v1beta1/namespaces/{trainer.namespace}/podgroups"
    return next(iter(trainer.world.read(kinds)["items"]), None)


def enter_queue(trainer):
    phase = json.dumps({"status": {"phase": "Inqueue"}})
    group = f"podgroups.{podgroupdouble.GROUP}/{trainer.name}"
    trainer.world.kubectl("patch", group, "-n", trainer.namespace, "--type=merge", "-p", phase)


def place(trainer):
    """Bind its pods that have no node yet, as a scheduler does; return how many run."""
    node = trainer.world.read("/api/v1/nodes")["items"][0]["metadata"]["name"]
    pods = trainer.pods()
    for name, pod in pods.items():
        if not pod["spec"].get("nodeName"):
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            path = f"/api/v1/namespaces/{trainer.namespace}/pods/{name}/binding"
            assert trainer.world.api.request("POST", path, binding).status == 201
    return sum(pod["status"].get("phase") == "Running" for pod in pods.values())


def scheduled(trainer):
    rows = trainer.status().get("conditions") or ()
    return next(((each["reason"], each["message"]) for each in rows if each["type"] == "Scheduled"), ("", ""))


@pytest.mark.usefixtures("volcano")
def test_one_group_stands_for_a_trainer_until_it_rests(job, until):
    """TR37, TR38, TR39: under the shipped role; the group is watched, kept, given back, and made again."""
    gang = make(job, "gang", "volcano")
    group = until(lambda: group_of(gang), 60, "the PodGroup", tell=gang.status)
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (2, "research")
    until(lambda: scheduled(gang)[0] == "PodGroupWaits", 60, "the condition", tell=gang.status)
    assert gang.pods() == {}
    enter_queue(gang)
    until(lambda: len(gang.pods()) == 2, 60, "the pods", tell=gang.status)
    names = {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in gang.pods().values()}
    assert names == {"gang"}
    until(lambda: place(gang) == 2, 60, "both run", tell=gang.status)
    gang.world.kubectl("delete", "pod", "gang-worker-1", "-n", gang.namespace, "--wait=false")
    until(lambda: "gang-worker-1-a1" in gang.pods(), 60, "a replacement", tell=gang.status)
    assert group_of(gang)["metadata"]["uid"] == group["metadata"]["uid"]
    gang.patch({"suspend": True})
    gang.wait_phase("Suspended")
    until(lambda: group_of(gang) is None, 60, "the PodGroup to go", tell=gang.status)
    gang.patch({"suspend": False})
    until(lambda: group_of(gang), 60, "another PodGroup", tell=gang.status)


def test_a_kind_that_is_not_installed_is_told_and_not_watched(job, until):
    """TR39, SC11: the pods are made all the same, and nothing keeps asking for what is not there."""
    mark = job.world.audit.mark()
    alone = make(job, "alone", "scheduler-plugins-scheduler")
    reason, message = until(
        lambda: scheduled(alone) if scheduled(alone)[0] == "PodGroupsUnavailable" else None,
        60,
        "the condition",
        tell=alone.status,
    )
    assert "podgroups.scheduling.x-k8s.io, which is not installed" in message, reason
    until(lambda: len(alone.pods()) == 2, 60, "the pods", tell=alone.status)
    asked = [each.verb for each in job.world.audit.since(mark) if "scheduling.x-k8s.io" in each.request_uri]
    assert asked == ["list"]
