"""Acts on a node that is down: looked at again before each, and nothing of somebody else's is touched."""

from types import SimpleNamespace

import msgspec
import pytest

from runtime.cache.projection import Node
from runtime.client.errors import NotFound
from runtime.controller.reconciler import Request
from runtime.objects import LEASES, NODES, PODS, ObjectKey
from runtime.testing.clock import SimClock
from trainer_operator.trainer.draft import DeleteAttachment, ForceDeletePod, NodeEvidence, TaintNode
from trainer_operator.trainer.noderecovery import NodeRecovery, NodeReturn
from trainer_operator.trainer.nodes import (
    OUR_TAINT_VALUE,
    OUT_OF_SERVICE_TAINT,
    SHUTDOWN_TAINT,
    NodeLease,
    NodeLeases,
)

EVIDENCE = NodeEvidence("a", "then")
FORCE = ForceDeletePod("p", "uid-p", "c", EVIDENCE)
DETACH = DeleteAttachment("va", "c", EVIDENCE)
OURS = {"key": OUT_OF_SERVICE_TAINT, "value": OUR_TAINT_VALUE, "effect": "NoExecute"}
THEIRS = {"key": "gpu", "value": "broken", "effect": "NoSchedule"}


class Api:
    """The few calls that are made, over a node, its Lease and the pods of a namespace."""

    def __init__(self, *, ready="Unknown", renewed="then", taints=(), pods=()):
        self.node = {
            "metadata": {"name": "a", "resourceVersion": "7"},
            "spec": {"taints": list(taints)},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }
        self.lease = {"metadata": {"name": "a"}, "spec": {"renewTime": renewed}}
        self.pods = list(pods)
        self.writes = []

    async def get(self, resource, name, namespace=None):
        found = {NODES: self.node, LEASES: self.lease}[resource]
        if found is None:
            raise NotFound(name, status=404, reason="NotFound")
        return found

    async def list(self, resource, namespace=None):
        assert (resource, namespace) == (PODS, "ns")
        return SimpleNamespace(items=self.pods)

    async def delete(self, resource, name, namespace=None, *, grace_seconds=None, uid=None):
        self.writes.append(("delete", resource.kind, name, grace_seconds, uid))

    async def patch(self, resource, name, body, *, kind):
        self.writes.append(("patch", resource.kind, name, body))


def using(name="other", uid="uid-other"):
    volumes = [{"persistentVolumeClaim": {"claimName": "c"}}]
    return {
        "metadata": {"name": name, "uid": uid},
        "spec": {"nodeName": "b", "volumes": volumes},
        "status": {"phase": "Running"},
    }


async def test_a_pod_of_a_node_that_is_still_down_is_deleted_without_grace():
    """ND4, FT15: by uid, so that never a successor is hit."""
    api = Api(pods=[using("p", "uid-p")])
    assert await NodeRecovery(api).carry_out("ns", FORCE) == ""
    assert api.writes == [("delete", "Pod", "p", 0, "uid-p")]


async def test_an_attachment_is_deleted_by_its_name():
    """ND4, FT15."""
    api = Api()
    assert await NodeRecovery(api).carry_out("ns", DETACH) == ""
    assert api.writes == [("delete", "VolumeAttachment", "va", None, None)]


@pytest.mark.parametrize("action", [FORCE, DETACH, TaintNode(EVIDENCE)], ids=["force", "detach", "taint"])
@pytest.mark.parametrize(
    ("api", "word"),
    [
        (Api(ready="True"), "ready again"),
        (Api(renewed="now"), "renews"),
        (Api(), "no Lease"),
        (Api(), "not there"),
    ],
    ids=["ready", "renewed", "no lease", "no node"],
)
async def test_nothing_is_done_to_a_node_that_the_api_server_shows_otherwise(action, api, word):
    """FT16, ND4: a cache that fell behind never causes an act."""
    if word == "no Lease":
        api.lease = None
    if word == "not there":
        api.node = None
    assert word in await NodeRecovery(api).carry_out("ns", action)
    assert api.writes == []


async def test_the_clouds_word_that_the_machine_is_off_is_enough():
    """ND4."""
    api = Api(renewed="now", taints=[{"key": SHUTDOWN_TAINT}])
    assert await NodeRecovery(api).carry_out("ns", DETACH) == ""
    assert len(api.writes) == 1


@pytest.mark.parametrize("action", [FORCE, DETACH], ids=["force", "detach"])
async def test_a_claim_that_another_pod_uses_is_never_taken(action):
    """ND4."""
    api = Api(pods=[using()])
    assert "used by pod other" in await NodeRecovery(api).carry_out("ns", action)
    assert api.writes == []


async def test_a_node_keeps_its_other_taints_when_it_gets_ours():
    """ND3."""
    api = Api(taints=[THEIRS])
    assert await NodeRecovery(api).carry_out("ns", TaintNode(EVIDENCE)) == ""
    ((_, _, _, body),) = api.writes
    assert body == {"metadata": {"resourceVersion": "7"}, "spec": {"taints": [THEIRS, OURS]}}


async def test_a_node_that_somebody_declared_out_of_service_is_left_as_it_is():
    """ND3."""
    api = Api(taints=[{**OURS, "value": "nodeshutdown"}])
    assert await NodeRecovery(api).carry_out("ns", TaintNode(EVIDENCE)) == ""
    assert api.writes == []


def returned(api, *, rested=0.0):
    clock = SimClock()
    leases = NodeLeases(clock)
    leases.on_add(msgspec.convert(api.lease, NodeLease), initial=True)
    clock.advance(rested)
    nodes = SimpleNamespace(list=lambda: [msgspec.convert(api.node, Node)])
    return NodeReturn(api, nodes, leases)


async def test_our_taint_goes_when_the_node_is_back_and_no_other():
    """ND3."""
    theirs = {**OURS, "value": "nodeshutdown", "effect": "NoSchedule"}
    api = Api(ready="True", taints=[THEIRS, OURS, theirs])
    assert await returned(api).reconcile(Request(ObjectKey("", "a"))) is None
    ((_, _, _, body),) = api.writes
    assert body["spec"]["taints"] == [THEIRS, theirs]


@pytest.mark.parametrize(
    ("ready", "taint", "rested", "again"),
    [("Unknown", OURS, 0, False), ("True", OURS, 20, True), ("True", THEIRS, 0, False)],
    ids=["not ready", "its lease rests", "not ours"],
)
async def test_a_node_that_is_not_back_or_not_ours_is_left_alone(ready, taint, rested, again):
    """ND3."""
    api = Api(ready=ready, taints=[taint])
    result = await returned(api, rested=rested).reconcile(Request(ObjectKey("", "a")))
    assert (result is not None) is again
    assert api.writes == []
