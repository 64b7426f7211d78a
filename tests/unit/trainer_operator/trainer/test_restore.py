"""What an epoch starts from, and that it is pinned before anybody hears of it."""

from dataclasses import replace

import pytest

from simulation.cluster import Cluster, trainer
from trainer_operator.api.status import MembershipPhase
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.views import CheckpointView

W0 = MemberId("worker", 0)
OLD = CheckpointView("old", "000000000004-e1-aaaa", 4, "Committed", "Healthy", "Interval", sequence=1)
NEW = CheckpointView("new", "000000000008-e1-aaaa", 8, "Committed", "Healthy", "Interval", sequence=2)


def failed(*checkpoints, **topology):
    """A Trainer whose first worker has crashed, with these checkpoints."""
    cluster = Cluster(trainer(workers=2, **topology))
    cluster.run_until(lambda: cluster.trainer.status.global_step >= 9, at_most=60)
    cluster.checkpoints = {each.name: each for each in checkpoints}
    cluster.crash(W0)
    return cluster


def restored(cluster):
    """Run until the next epoch has begun; return what it starts from."""
    epoch = cluster.trainer.status.membership.epoch
    cluster.run_until(
        lambda: (
            cluster.trainer.status.membership.epoch > epoch
            and cluster.trainer.status.membership.phase is MembershipPhase.ACTIVE
        ),
        at_most=60,
    )
    return cluster.trainer.status.membership.restore_from


def test_an_epoch_is_not_active_before_what_it_starts_from_shows_its_pin():
    """RS4: whoever keeps the pin from being seen keeps the epoch from starting."""
    cluster = failed(OLD, NEW)
    for _ in range(40):
        cluster.reconcile()
        membership = cluster.trainer.status.membership
        cluster.checkpoints["new"] = replace(cluster.checkpoints["new"], pins=())
        cluster.tick()
    assert (membership.epoch, membership.phase) == (2, MembershipPhase.PREPARING)
    cluster.run_until(lambda: cluster.trainer.status.membership.phase is MembershipPhase.ACTIVE, at_most=10)
    assert cluster.trainer.status.membership.restore_from == NEW.id
    assert cluster.checkpoints["new"].pins == ("restore/2",)
    assert cluster.checkpoints["old"].pins == ()


def test_with_servers_the_pin_names_the_parameter_server_epoch_too():
    """RS4, PSR4: each of them chooses anew what it starts from."""
    cluster = failed(OLD, NEW, servers=1)
    cluster.delete_pod(MemberId("ps", 0))  # its snapshots go with it
    cluster.run_until(lambda: cluster.checkpoints["new"].pins, at_most=60)
    membership = cluster.trainer.status.membership
    assert cluster.checkpoints["new"].pins == (f"restore/{membership.epoch}.{membership.ps_epoch}",)


@pytest.mark.parametrize("change", [{"marked": True}, {"discard": True}, {"health": "Corrupt"}], ids=str)
def test_what_does_not_count_is_neither_pinned_nor_restored(change):
    """RS1, GC2."""
    cluster = failed(OLD, replace(NEW, **change))
    assert restored(cluster) == OLD.id
    assert cluster.checkpoints["new"].pins == ()


def test_one_that_is_marked_while_members_prepare_gives_way_to_an_older_one():
    """RS4, GC2: the mark came first."""
    cluster = failed(OLD, NEW)
    cluster.run_until(lambda: cluster.checkpoints["new"].pins, at_most=60)
    cluster.checkpoints["new"] = replace(NEW, marked=True)
    cluster.run_until(lambda: cluster.trainer.status.membership.phase is MembershipPhase.ACTIVE, at_most=60)
    assert cluster.trainer.status.membership.restore_from == OLD.id
