"""topologyPolicy on the real scheduler: each of three nodes is a zone of its own; one has room for three members."""

import json

import pytest

ZONE = "topology.kubernetes.io/zone"
SLOT = "trainer-operator.dev~1slot"
RESOURCE = "trainer-operator.dev/slot"
SLEEP = ["python3", "-c", "import time; time.sleep(3600)"]


@pytest.fixture
def zones(world):
    """Return the zone of each node."""
    nodes = {
        node["metadata"]["name"]: f"zone-of-{node['metadata']['name']}"
        for node in world.get("nodes")["items"]
    }

    def slots(node, operation):
        value = "3" if node == max(nodes) else "2"
        change = [{"op": operation, "path": f"/status/allocatable/{SLOT}", "value": value}]
        world.kubectl("patch", "node", node, "--subresource=status", "--type=json", "-p", json.dumps(change))

    for node, zone in nodes.items():
        world.kubectl("label", "node", node, f"{ZONE}={zone}")
        slots(node, "add")
    yield nodes
    for node in nodes:
        world.kubectl("label", "node", node, f"{ZONE}-")
        slots(node, "remove")


@pytest.fixture
def racks(world):
    """Name a level after a label that stands for racks, as an administrator does."""
    levels = f"levels=[{{name: rack, labels: [{ZONE}]}}]"
    where = ("configmap", "trainer-topology", "-n", "trainer-operator")
    world.kubectl("create", *where, f"--from-literal={levels}")
    yield
    world.kubectl("delete", *where)


def make(job, name, workers, **policy):
    return job.make(
        name,
        command=SLEEP,
        resources={"limits": {RESOURCE: 1}},
        topology={"workers": workers, "podSpec": {"terminationGracePeriodSeconds": 1}},
        pendingTimeoutSeconds=4,
        scheduling={"topologyPolicy": policy},
    )


def zones_of(trainer, zones):
    """The zones of its pods that have a node, by name."""
    placed = {name: pod["spec"].get("nodeName") for name, pod in trainer.pods().items()}
    return {name: zones[node] for name, node in placed.items() if node}


@pytest.mark.usefixtures("racks")
def test_members_share_the_domain_that_has_room_for_all_and_a_replacement_joins_them(job, zones, until):
    """TP6, GP2, GP6, SC10: rack is known by the ConfigMap only, which the shipped role lets be read."""
    near = make(job, "near", 3, required="rack")
    until(lambda: len(zones_of(near, zones)) == 3, 120, "all placed", tell=near.status)
    before = zones_of(near, zones)
    assert set(before.values()) == {zones[max(zones)]}
    near.world.kubectl("delete", "pod", "near-worker-1", "-n", near.namespace, "--wait=false")
    until(lambda: "near-worker-1-a1" in zones_of(near, zones), 60, "a replacement", tell=near.status)
    assert zones_of(near, zones)["near-worker-1-a1"] == before["near-worker-0"]


def test_a_preferred_level_falls_back_and_a_level_that_nobody_knows_starts_nothing(job, zones, until):
    """TP5, TP6, SC11: those that find no room beside the first share another zone."""
    rather = make(job, "rather", 4, preferred="zone")
    unknown = make(job, "unknown", 2, required="planet")
    until(lambda: len(zones_of(rather, zones)) == 4, 60, "all placed", tell=rather.status)
    assert len(set(zones_of(rather, zones).values())) == 2

    def told():
        rows = unknown.status().get("conditions") or ()
        return next((each["message"] for each in rows if each["reason"] == "TopologyLevelUnknown"), "")

    assert "topology level planet is not known, only " in until(
        told, 60, "the condition", tell=unknown.status
    )
    assert unknown.pods() == {}
