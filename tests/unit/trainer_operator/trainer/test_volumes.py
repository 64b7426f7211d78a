"""Volumes and old pods: which claim an attempt uses, what is removed, and what is said of a pod that stays."""

from dataclasses import replace

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, WORKER, active, agent, observed, pod, with_spec, with_status
from trainer_operator.api.meta import Role
from trainer_operator.api.status import MemberStatus, OldPod, OldPodPhase, Phase
from trainer_operator.api.topology import Storage, StorageRecovery
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import (
    CreatePod,
    DeleteAttachment,
    DeleteClaim,
    DeletePod,
    ForceDeletePod,
    NodeEvidence,
    TaintNode,
)
from trainer_operator.trainer.nodes import NodeView
from trainer_operator.trainer.pods import owner_reference, pod_manifest
from trainer_operator.trainer.views import ClaimView, Settings
from trainer_operator.trainer.volumes import (
    Detach,
    Force,
    Seen,
    Taint,
    claim_manifest,
    claim_of,
    others_using,
    step,
)

FRESH, REATTACH = StorageRecovery.FRESH_VOLUME, StorageRecovery.REATTACH
SERVICE, WAIT = StorageRecovery.OUT_OF_SERVICE, StorageRecovery.WAIT
NODE = "node-worker-0"
DOWN = NodeView(ready=False, lease_age=61.0, silence=61.0, renewed="then")
SILENT = NodeView(ready=False, lease_age=61.0, silence=5.0, renewed="then")


def stored(recovery, of=None, **storage):
    made = of or trainer(workers=2)
    topology = made.spec.topology
    settings = Storage.read({"size": "1Gi", "recovery": str(recovery), **storage}) if recovery else None
    return with_spec(made, topology=topology.model_copy(update={"storage": settings}))


def lost(recovery, *, node=DOWN, enabled=True, old_pods=(), there=True, attachments=None):
    """A Trainer whose worker 0 is on its second attempt, while the pod of the first one stays Terminating."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, old_pods=list(old_pods))
    status.members = [MemberStatus(role=Role("worker"), index=0, attempt=1)]
    pods = [(WORKER, pod(attempt=1, node="node-b")), (OTHER, pod(OTHER))]
    if there:
        pods.insert(0, (WORKER, pod(terminating=True)))
    name = "t-worker-0"
    return observed(
        of=with_status(stored(recovery), status),
        pods=pods,
        agents=[agent(attempt=1, pod="pod-worker-0-1"), agent(OTHER)],
        nodes={NODE: node},
        claims=(ClaimView(name, "claim-uid", WORKER, 0, "volume"),) if recovery else (),
        attachments=attachments or {},
        settings=Settings(node_recovery=enabled),
    )


def acts(decision):
    kinds = (ForceDeletePod, DeleteAttachment, TaintNode)
    return [action for action in decision.actions if isinstance(action, kinds)]


def condition(decision):
    return next((each for each in decision.status.conditions if each.type == "OldPodStuck"), None)


def old_pod(phase):
    return OldPod(
        member="worker-0",
        pod="t-worker-0",
        uid="pod-worker-0-0",
        node=NODE,
        claim="t-worker-0",
        volume="volume",
        phase=phase,
        since=START,
    )


# -- claims


@pytest.mark.parametrize(
    ("recovery", "first", "third"),
    [
        (None, None, None),
        (FRESH, "t-worker-0", "t-worker-0-a2"),
        (REATTACH, "t-worker-0", "t-worker-0"),
        (SERVICE, "t-worker-0", "t-worker-0"),
        (WAIT, "t-worker-0", "t-worker-0"),
    ],
)
def test_a_claim_is_of_an_attempt_under_fresh_volume_and_else_of_the_member(recovery, first, third):
    """ND3."""
    of = stored(recovery)
    assert (claim_of(of, WORKER, 0), claim_of(of, WORKER, 2)) == (first, third)


def test_the_claim_is_owned_by_the_trainer_and_asks_for_what_the_user_asked():
    of = stored(REATTACH, size="2Gi", storageClassName="fast")
    made = claim_manifest(of, WORKER, 3, owner_reference(of))
    assert made["metadata"]["name"] == "t-worker-0"
    assert made["metadata"]["ownerReferences"] == [owner_reference(of)]
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "2Gi"}},
        "storageClassName": "fast",
    }
    assert claim_manifest(stored(None), WORKER, 0, owner_reference(of)) is None


def test_the_pod_mounts_its_claim_and_is_told_where():
    spec = pod_manifest(stored(FRESH), WORKER, 2, Settings())["spec"]
    volume = next(each for each in spec["volumes"] if each["name"] == "trainer-volume")
    assert volume["persistentVolumeClaim"] == {"claimName": "t-worker-0-a2"}
    container = spec["containers"][0]
    assert {"name": "trainer-volume", "mountPath": "/trainer/volume"} in container["volumeMounts"]
    assert {"name": "TRAINER_VOLUME_DIR", "value": "/trainer/volume"} in container["env"]


def test_the_claim_of_an_attempt_goes_once_its_pod_is_gone():
    """ND3, FreshVolume."""
    assert not [a for a in decide(lost(FRESH)).actions if isinstance(a, DeleteClaim)]
    gone = decide(lost(FRESH, there=False))
    assert [a for a in gone.actions if isinstance(a, DeleteClaim)] == [DeleteClaim("t-worker-0", "claim-uid")]
    kept = decide(lost(REATTACH, there=False))
    assert not [a for a in kept.actions if isinstance(a, DeleteClaim)]


def user(name="other", *, phase="Running", node="n", claim="c", started=True):
    statuses = [{"state": {"running": {}} if started else {"waiting": {}}}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"nodeName": node, "volumes": [{"persistentVolumeClaim": {"claimName": claim}}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


@pytest.mark.parametrize(
    ("changes", "uses"),
    [
        ({}, True),
        ({"phase": "Pending"}, True),
        ({"phase": "Pending", "started": False}, False),
        ({"node": ""}, False),
        ({"phase": "Succeeded"}, False),
        ({"claim": "another"}, False),
    ],
    ids=["runs", "its init container runs", "waits for the volume", "not placed", "ended", "another claim"],
)
def test_a_pod_uses_a_claim_from_when_it_started_until_it_ended(changes, uses):
    """ND4: a volume that another live pod uses is never taken."""
    assert others_using("c", [user(**changes)]) == (["other"] if uses else [])
    assert others_using("c", [user(**changes)], but=frozenset({"uid-other"})) == []


# -- the machine


@pytest.mark.parametrize(
    ("policy", "seen", "expected"),
    [
        *[(policy, Seen(True, False), (OldPodPhase.WAITING, None)) for policy in (None, *StorageRecovery)],
        (None, Seen(True, True), (OldPodPhase.FORCING, Force())),
        (FRESH, Seen(True, True), (OldPodPhase.FORCING, Force())),
        (FRESH, Seen(False, True, attachment="va"), (None, None)),
        (REATTACH, Seen(True, True, attachment="va"), (OldPodPhase.FORCING, Force())),
        (REATTACH, Seen(False, True, attachment="va"), (OldPodPhase.DETACHING, Detach("va"))),
        (REATTACH, Seen(False, False, attachment="va"), (OldPodPhase.WAITING, None)),
        (REATTACH, Seen(False, True), (None, None)),
        (SERVICE, Seen(True, True), (OldPodPhase.OUT_OF_SERVICE, Taint())),
        (SERVICE, Seen(True, True, tainted=True), (OldPodPhase.OUT_OF_SERVICE, None)),
        (SERVICE, Seen(False, True, attachment="va"), (None, None)),
        (WAIT, Seen(True, True, attachment="va"), (OldPodPhase.WAITING, None)),
        (WAIT, Seen(False, True, attachment="va"), (None, None)),
    ],
)
def test_the_machine_is_the_table_of_the_design(policy, seen, expected):
    """ND2, ND3, ND4."""
    assert step(policy, seen) == expected


# -- in a decision


def test_a_replacement_does_not_wait_for_the_pod_of_a_lost_node():
    """TR12, ND1, ND2: the next attempt at once, an ordinary delete for the old pod."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    decision = decide(
        observed(
            of=with_status(trainer(workers=2), status),
            pods=[(WORKER, pod()), (OTHER, pod(OTHER))],
            agents=[agent(age=12.0), agent(OTHER)],
            nodes={NODE: NodeView(ready=True, lease_age=16.0)},
            chance=0.0,
        )
    )
    assert CreatePod(WORKER, 1) in decision.actions
    assert DeletePod("t-worker-0", "pod-worker-0-0", 5) in decision.actions


@pytest.mark.parametrize(
    ("recovery", "reason", "remedy"),
    [
        (None, "NodeLost", "delete the Node"),
        (FRESH, "NodeLost", "--node-recovery"),
        (REATTACH, "NodeRecoveryNotEnabled", "deploy/components/node-recovery"),
        (SERVICE, "NodeRecoveryNotEnabled", "--node-recovery"),
        (WAIT, "WaitsForNode", "bring the node back"),
    ],
)
def test_without_the_rights_a_condition_says_what_to_do_and_nothing_is_forced(recovery, reason, remedy):
    """FT15, TR12, ND2, RB4."""
    decision = decide(lost(recovery, enabled=False))
    found = condition(decision)
    assert (found.status, found.reason) == ("True", reason)
    assert "t-worker-0" in found.message
    assert remedy in found.message
    assert acts(decision) == []
    assert decision.status.old_pods == []


def test_nothing_is_forced_while_an_agent_of_the_node_is_heard_and_the_condition_says_so():
    """FT16, ND4: partitioned from the API server, but alive."""
    decision = decide(lost(REATTACH, node=SILENT))
    assert acts(decision) == []
    assert condition(decision).reason == "NodeNotConfirmed"
    assert "agents" in condition(decision).message
    assert [old.phase for old in decision.status.old_pods] == [OldPodPhase.WAITING]
    assert decision.wake is not None


def test_reattach_goes_from_the_pod_to_the_attachment_and_ends():
    """FT15, ND4: each step is in the status of the decision that allows it."""
    first = decide(lost(REATTACH))
    evidence = NodeEvidence(NODE, "then")
    assert acts(first) == [ForceDeletePod("t-worker-0", "pod-worker-0-0", "t-worker-0", evidence)]
    assert [(old.phase, old.volume) for old in first.status.old_pods] == [(OldPodPhase.FORCING, "volume")]
    attached = {("volume", NODE): "va", ("volume", "node-b"): "theirs", ("other", NODE): "another"}
    second = decide(
        lost(REATTACH, there=False, old_pods=[old_pod(OldPodPhase.FORCING)], attachments=attached)
    )
    assert acts(second) == [DeleteAttachment("va", "t-worker-0", evidence)]
    assert condition(second).reason == "Detaching"
    third = decide(lost(REATTACH, there=False, old_pods=[old_pod(OldPodPhase.DETACHING)]))
    assert acts(third) == []
    assert third.status.old_pods == []


def test_a_node_that_comes_back_half_way_stops_everything():
    """ND4."""
    back = replace(DOWN, ready=True)
    attached = {("volume", NODE): "va"}
    decision = decide(
        lost(
            REATTACH,
            node=back,
            there=False,
            old_pods=[old_pod(OldPodPhase.FORCING)],
            attachments=attached,
        )
    )
    assert acts(decision) == []
    assert [old.phase for old in decision.status.old_pods] == [OldPodPhase.WAITING]


def test_a_node_is_tainted_once():
    """ND3, OutOfService."""
    assert acts(decide(lost(SERVICE))) == [TaintNode(NodeEvidence(NODE, "then"))]
    assert acts(decide(lost(SERVICE, node=replace(DOWN, out_of_service=True)))) == []


def test_a_trainer_that_never_lost_a_node_has_no_such_condition():
    status = active("worker:0", world=1, phase=Phase.RUNNING)
    decision = decide(observed(of=with_status(trainer(), status), pods=[(WORKER, pod())], agents=[agent()]))
    assert condition(decision) is None


def test_new_pods_do_not_avoid_the_node_that_wait_waits_for():
    """ND3, Wait: the volume may only exist there."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    for recovery, avoided in ((WAIT, []), (FRESH, [NODE])):
        decision = decide(
            observed(
                of=with_status(stored(recovery), status),
                pods=[(WORKER, pod()), (OTHER, pod(OTHER))],
                agents=[agent(age=12.0), agent(OTHER)],
                nodes={NODE: NodeView(ready=False)},
            )
        )
        assert [entry.name for entry in decision.status.excluded_nodes] == avoided
