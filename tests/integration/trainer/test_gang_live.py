"""Gang start on the real scheduler: two Trainers that each need more than half of what there is (SC08)."""

import json

import pytest

SLOT = "trainer-operator.dev~1slot"
RESOURCE = "trainer-operator.dev/slot"
WORKERS = 3
ENDS = ["python3", "-c", "pass"]


@pytest.fixture
def slots(world):
    """Two nodes with two slots each; the second is closed but for those that tolerate it, until it is opened."""
    first, second = sorted(node["metadata"]["name"] for node in world.get("nodes")["items"])[:2]

    def patch(node, operation):
        change = [{"op": operation, "path": f"/status/allocatable/{SLOT}", "value": "2"}]
        world.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps(change))

    closed = [second]

    def reopen():
        world.kubectl("taint", "node", closed.pop(), "half-")

    world.kubectl("taint", "node", second, "half=closed:NoSchedule")
    for node in (first, second):
        patch(node, "add")
    yield reopen
    if closed:
        reopen()
    for node in (first, second):
        patch(node, "remove")


def gang(job, name, *, tolerations=()):
    roles = {"worker": {"tolerations": list(tolerations)}} if tolerations else {}
    return job.make(
        name,
        command=ENDS,
        pendingTimeoutSeconds=8,
        resources={"limits": {RESOURCE: 1}},
        topology={"workers": WORKERS, "roles": roles},
    )


def placed(trainer):
    return sum(bool(pod["spec"].get("nodeName")) for pod in trainer.pods().values())


def test_two_half_gangs_do_not_hold_for_ever_what_the_other_one_lacks(job, slots, until):
    """SC08, GS2, GS4: four slots, three each; both are made to hold two, and both end, uncharged."""
    one = gang(job, "one")
    until(lambda: placed(one) == 2, 60, "half of the first gang", tell=one.status)
    two = gang(job, "two", tolerations=[{"key": "half", "operator": "Exists"}])
    until(lambda: placed(two) == 2, 60, "half of the second gang", tell=two.status)
    slots()
    for each in (one, two):
        each.wait_phase("Succeeded", 120)
        status = each.status()
        assert (status["failures"], status["disruptions"], status["restarts"]) == (0, 0, 0)
    (told, *_) = [
        event
        for event in one.world.get("events", "-n", one.namespace)["items"]
        if event["reason"] == "GangTimeout"
    ]
    assert "found no node within 8 s: 0/" in told["message"]
    assert f"Insufficient {RESOURCE}" in told["message"]
