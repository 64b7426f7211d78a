"""Warm standbys: who serves a shard, who takes over, and what the others are told."""

import pytest

from simulation.cluster import Cluster, rescale, trainer
from trainer_operator.api.status import MembershipStatus, Phase
from trainer_operator.checkpoint.quorum import holders_of
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.environment import peers_of
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.serving import let_serve, serving_members, standbys
from trainer_operator.trainer.views import Settings

PS = [MemberId("ps", number) for number in range(4)]
OF = trainer(servers=2, replicas=2)


def test_the_first_replica_of_each_shard_serves_unless_status_names_another():
    """ME1, PSR1: ps:0-3/1.0."""
    membership = MembershipStatus()
    assert serving_members(OF, membership) == [PS[0], PS[1]]
    let_serve(OF, membership, PS[2])
    assert membership.serving == "1.0"
    assert serving_members(OF, membership) == [PS[2], PS[1]]
    assert standbys(OF, membership) == {PS[0], PS[3]}
    let_serve(OF, membership, PS[0])
    assert membership.serving == ""


@pytest.mark.parametrize("text", ["", "7", "0.9", "x.y", "0.0.1.1"])
def test_a_status_that_does_not_fit_the_spec_names_the_first_replicas(text):
    """TR18: stale and malformed input."""
    assert serving_members(OF, MembershipStatus(serving=text)) == [PS[0], PS[1]]


def test_without_replicas_nobody_stands_by():
    """PSR1."""
    assert standbys(trainer(servers=3), MembershipStatus(serving="1.1.1")) == frozenset()


def test_shards_keep_their_order_whoever_serves_them():
    """QR1, ME2: a checkpoint's shard and a server's rank are those of the shard, not of the pod."""
    serving = [PS[2], PS[1]]
    assert [(holder.member, holder.shard) for holder in holders_of(serving, 1)] == [(PS[2], 0), (PS[1], 1)]
    peers = peers_of(dict.fromkeys((*serving, MemberId("worker", 0)), ("10.0.0.1", 1)))
    assert [(peer.member, peer.rank) for peer in peers if peer.member.role == "ps"] == [
        (PS[2], 0),
        (PS[1], 1),
    ]


def test_replicas_of_a_shard_rather_run_on_different_nodes():
    """PSR1: preferred, so that a cluster of one node trains as well."""
    affinity = pod_manifest(OF, PS[3], 0, Settings())["spec"]["affinity"]
    ((key, terms),) = affinity["podAntiAffinity"].items()
    assert key == "preferredDuringSchedulingIgnoredDuringExecution"
    (expression,) = terms[0]["podAffinityTerm"]["labelSelector"]["matchExpressions"]
    assert expression["values"] == ["1", "3"]
    for other in (
        pod_manifest(OF, MemberId("worker", 0), 0, Settings()),
        pod_manifest(trainer(servers=1), PS[0], 0, Settings()),
    ):
        assert "affinity" not in other["spec"]


def running(*, servers=1, replicas=2, steps=12):
    cluster = Cluster(trainer(workers=2, servers=servers, replicas=replicas, epochs=50), soft=True)
    passes(cluster, lambda status: status.global_step >= steps)
    return cluster


def passes(cluster, until, at_most=80):
    cluster.run_until(lambda: until(cluster.trainer.status), at_most=at_most)


def workers(cluster):
    return {m: (a.boot, a.run) for m, a in cluster.agents.items() if m.role == "worker"}


@pytest.mark.parametrize("fault", ["crash", "delete_pod"])
def test_a_standby_takes_over_without_waiting_for_a_pod(fault):
    """PSR2, PSR3, LT6: no worker's process ends, and training goes on from the standby's newest snapshot."""
    cluster = running()
    before, snapshot = workers(cluster), max(cluster.agents[PS[1]].have)
    assert getattr(cluster, fault)(PS[0])
    passes(
        cluster, lambda status: status.membership.ps_epoch == 2 and status.membership.ps_phase == "Serving", 3
    )
    status = cluster.trainer.status
    assert (status.membership.epoch, status.membership.serving) == (1, "1")
    assert status.membership.restore_step >= snapshot
    passes(cluster, lambda status: status.global_step > snapshot + 8)
    assert workers(cluster) == before
    assert cluster.agents[PS[0]].proc == "running", "the lost one is the new standby"
    assert any(reason == "StandbyTakesOver" for reason, _ in cluster.events)


def test_the_loss_of_a_standby_disturbs_nobody():
    """PSR3."""
    cluster = running()
    step = cluster.trainer.status.global_step
    assert cluster.delete_pod(PS[1])
    passes(cluster, lambda status: status.global_step > step + 5, 8)
    status = cluster.trainer.status
    assert (status.membership.ps_epoch, status.rollbacks, status.phase) == (1, 0, Phase.RUNNING)
    passes(
        cluster, lambda status: cluster.agents[PS[1]].attempt == 1 and cluster.agents[PS[1]].proc == "running"
    )


def test_a_standby_of_an_older_server_epoch_does_not_take_over():
    """PSR6: its snapshots may be of a history that is void."""
    cluster = running(servers=2)
    cluster.agents[PS[2]].deaf = True
    cluster.crash(PS[1])
    passes(
        cluster, lambda status: status.membership.ps_epoch == 2 and status.membership.ps_phase == "Serving"
    )
    cluster.crash(PS[0])
    passes(
        cluster, lambda status: status.membership.ps_epoch == 3 and status.membership.ps_phase == "Serving"
    )
    assert serving_members(cluster.trainer, cluster.trainer.status.membership) == [PS[0], PS[3]]


def test_both_replicas_lost_at_once_end_in_the_ordinary_recovery():
    """PSR3, PSR4: from the newest committed checkpoint."""
    cluster = running()
    cluster.delete_pod(PS[0])
    cluster.delete_pod(PS[1])
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.membership.ps_epoch == 2 and status.global_step > step + 5)


def test_an_epoch_is_formed_without_standbys():
    """PSR3: a standby without a node holds nobody up."""
    cluster = Cluster(trainer(workers=2, servers=1, replicas=2), soft=True)
    for _ in range(3):
        cluster.reconcile()
        cluster.tick()
        cluster.agents.pop(PS[1], None)
    cluster.reconcile()
    assert cluster.trainer.status.membership.members == "worker:0-1;ps:0-1"
    assert cluster.trainer.status.membership.phase == "Active"


def test_workers_come_and_go_while_somebody_else_than_the_first_serves():
    """ME5, PSR3."""
    cluster = running()
    cluster.crash(PS[0])
    passes(cluster, lambda status: status.membership.serving == "1")
    before = workers(cluster)
    rescale(cluster, 3)
    passes(cluster, lambda status: status.membership.members == "worker:0-2;ps:0-1")
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.global_step > step + 5)
    assert workers(cluster).items() >= before.items()
    assert cluster.agents[PS[0]].pause_at is None
