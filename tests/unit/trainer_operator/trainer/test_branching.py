"""A start that leaves something newer behind: its timeline is recorded first, whatever the store answers."""

from dataclasses import replace

import pytest

from simulation.cluster import Cluster, trainer
from trainer_operator.api.names import RESTORE_ANNOTATION
from trainer_operator.api.status import MembershipPhase
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.branching import WAITING
from trainer_operator.trainer.views import CheckpointView

W0 = MemberId("worker", 0)
OLD = CheckpointView("old", "000000000004-e1-aaaa", 4, "Committed", "Healthy", "Interval", sequence=1)
NEW = CheckpointView("new", "000000000008-e1-aaaa", 8, "Committed", "Healthy", "Interval", sequence=2)


def failed(*checkpoints, asked=""):
    """A Trainer whose first worker has crashed, with these checkpoints and perhaps a request."""
    cluster = Cluster(trainer(workers=2))
    cluster.run_until(lambda: cluster.trainer.status.global_step >= 9, at_most=60)
    cluster.checkpoints = {each.name: each for each in checkpoints}
    ask(cluster, asked)
    cluster.crash(W0)
    return cluster


def ask(cluster, request):
    metadata = cluster.trainer.metadata.model_copy(update={"annotations": {RESTORE_ANNOTATION: request}})
    cluster.trainer = cluster.trainer.model_copy(update={"metadata": metadata})


def start(cluster):
    """Run until the second epoch has begun; return what it starts from."""
    cluster.run_until(
        lambda: (
            cluster.trainer.status.membership.epoch == 2
            and cluster.trainer.status.membership.phase is MembershipPhase.ACTIVE
        ),
        at_most=60,
    )
    return cluster.trainer.status.membership.restore_from


def opened(cluster):
    return [(each.number, each.parent, each.step) for each in cluster.trainer.status.timelines]


def reasons(cluster):
    return [reason for reason, _ in cluster.events]


@pytest.mark.parametrize(
    ("asked", "newest", "source", "timelines"),
    [
        ("old@now", NEW, OLD, [(1, 0, 4)]),
        ("old", NEW, OLD, [(1, 0, 4)]),
        ("new", NEW, NEW, []),
        ("", NEW, NEW, []),
        ("", replace(NEW, health="Corrupt"), OLD, [(1, 0, 4)]),
        ("gone", NEW, NEW, []),
    ],
    ids=["asked", "without a time", "the newest", "not asked", "damaged", "not there"],
)
def test_a_start_below_the_newest_committed_one_opens_a_timeline_and_no_other_does(
    asked, newest, source, timelines
):
    """CK6."""
    cluster = failed(OLD, newest, asked=asked)
    assert start(cluster) == source.id
    assert opened(cluster) == timelines
    assert ("TimelineOpened" in reasons(cluster)) == bool(timelines)
    assert ("RestoreRefused" in reasons(cluster)) == (asked == "gone")
    assert cluster.trainer.status.restore_request == asked


def test_nobody_goes_before_the_store_has_the_timeline_and_the_reason_is_said_once():
    """CK6, PB4: it is tried again, not in a hurry."""
    cluster = failed(OLD, NEW, asked="old")
    cluster.run_until(lambda: "store:timeline" in str(cluster.last.directives), at_most=60)
    names = set()
    for _ in range(30):
        for agent in cluster.agents.values():
            for name in [each for each in agent.done_ids if each.startswith("store:timeline")]:
                names.add(name)
                agent.done_ids[name] = DirectiveResult(name, ok=False, error="NoRights: it refuses")
        cluster.reconcile()
        cluster.tick()
    membership, conditions = cluster.trainer.status.membership, cluster.trainer.status.conditions
    assert (membership.epoch, membership.phase, opened(cluster)) == (2, MembershipPhase.PREPARING, [])
    (row,) = [each for each in conditions if each.type == "CheckpointHealthy"]
    assert (row.reason, row.message) == ("NoRights", f"{WAITING}it refuses")
    assert reasons(cluster).count("TimelineNotRecorded") == 1
    assert 1 < len(names) <= 10
    assert cluster.trainer.status.restore_request == ""
    assert start(cluster) == OLD.id


def test_a_request_is_honoured_once():
    """CK6: the next restart takes the newest of the new path."""
    cluster = failed(OLD, NEW, asked="old@1")
    start(cluster)
    path = {"old": OLD, "new": replace(NEW, on_path=False)}
    cluster.checkpoints = {
        **path,
        "later": replace(NEW, name="later", id="000000000006-e2-aaaa", step=6, timeline=1),
    }
    cluster.crash(W0)
    cluster.run_until(
        lambda: (
            cluster.trainer.status.membership.epoch == 3
            and cluster.trainer.status.membership.phase is MembershipPhase.ACTIVE
        ),
        at_most=60,
    )
    assert cluster.trainer.status.membership.restore_from == "000000000006-e2-aaaa"
    assert opened(cluster) == [(1, 0, 4)]
