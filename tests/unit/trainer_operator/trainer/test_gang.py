"""Gang start: all members find a node, or none keeps one."""

from dataclasses import replace

import pytest

from simulation.cluster import NO_ROOM, Cluster, rescale, trainer
from simulation.views import OTHER, WORKER, active, observed, pod, with_spec, with_status
from trainer_operator.api.status import GangStatus, MembershipPhase, Phase
from trainer_operator.api.trainer import Elastic, Scheduling
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import DeletePod

TIMEOUT = 20
CHARGES = ("failures", "disruptions", "restarts", "rollbacks")


def cluster_of(*, workers=3, servers=0, room=2, spec=None, **options):
    of = with_spec(
        trainer(workers=workers, servers=servers, epochs=500, **options),
        pending_timeout_seconds=TIMEOUT,
        **(spec or {}),
    )
    return Cluster(of, room=room)


def until(cluster, check, *, at_most=200):
    return cluster.run_until(check, at_most=at_most)


def released(cluster):
    gang = cluster.trainer.status.gang
    return gang is not None and gang.not_before is not None


def runs(cluster):
    return cluster.trainer.status.phase is Phase.RUNNING


def charged(cluster):
    status = cluster.trainer.status
    return {name: getattr(status, name) for name in CHARGES if getattr(status, name)}


def scheduled(cluster):
    (found,) = [each for each in cluster.trainer.status.conditions if each.type == "Scheduled"]
    return str(found.status), found.reason, found.message


def held(cluster):
    return sum(bool(view.node) for _, view in cluster.pods.values())


def test_a_gang_that_is_not_placed_in_time_gives_all_its_nodes_back():
    """GS2, SC08: the pods that hold nodes go, and the one that waits goes with them."""
    cluster = cluster_of()
    cluster.reconcile()
    assert held(cluster) == 2
    assert until(cluster, lambda: released(cluster)) == TIMEOUT
    assert {view.terminating for _, view in cluster.pods.values()} == {True}
    until(cluster, lambda: not cluster.pods, at_most=3)


def test_who_found_no_node_and_why_is_told_in_the_schedulers_words():
    """GS4: one Event for each release, and a condition while it lasts."""
    cluster = cluster_of()
    cluster.reconcile()
    cluster.tick()
    cluster.reconcile()
    assert scheduled(cluster) == ("False", "Unschedulable", f"worker-2 has no node: {NO_ROOM}")
    until(cluster, lambda: released(cluster))
    ((reason, message),) = cluster.events
    assert reason == "GangTimeout"
    assert message.startswith(f"worker-2 found no node within {TIMEOUT} s: {NO_ROOM}; 2 members give their")
    state, why, text = scheduled(cluster)
    assert (state, why) == ("False", "GangTimeout")
    assert NO_ROOM in text


def test_it_is_tried_again_with_a_growing_delay_and_nothing_is_charged():
    """GS2, RC3: uncharged, under the same names."""
    cluster = cluster_of()
    delays = []
    for number in range(1, 5):
        until(cluster, lambda n=number: released(cluster) and cluster.trainer.status.gang.tries == n)
        delays.append((cluster.trainer.status.gang.not_before - cluster.now).total_seconds())
        until(cluster, lambda: cluster.trainer.status.phase is Phase.PENDING, at_most=4)
        until(cluster, lambda: not released(cluster))
    assert delays == sorted(delays)
    assert delays[-1] > 4 * delays[0] > 0
    assert {view.attempt for _, view in cluster.pods.values()} == {0}
    assert charged(cluster) == {}


def test_the_delay_never_grows_beyond_the_cap_of_the_retry_policy():
    """GS2: 5 minutes unless the user says otherwise."""
    status = active("", world=0)
    status.membership.phase, status.gang = MembershipPhase.PREPARING, GangStatus(tries=60)
    pods = [(WORKER, pod()), (OTHER, pod(OTHER, node="", phase="Pending", created="2025-12-31T23:00:00Z"))]
    after = decide(observed(of=with_status(trainer(), status), pods=pods, chance=0.999)).status
    assert 290 < (after.gang.not_before - observed().now).total_seconds() <= 300


def test_once_there_is_room_it_trains_and_the_tries_are_forgotten():
    """GS2, GS4."""
    cluster = cluster_of()
    until(cluster, lambda: released(cluster))
    cluster.room = 3
    until(cluster, lambda: runs(cluster))
    assert cluster.trainer.status.gang is None
    assert scheduled(cluster) == ("True", "Placed", "")
    assert charged(cluster) == {}


def test_agents_that_were_heard_before_the_release_are_no_failures_after_it():
    """TR13, RC3: two of three members had agents, whose pods were deleted by us."""
    cluster = cluster_of()
    until(cluster, lambda: len(cluster.agents) == 2)
    until(cluster, lambda: released(cluster))
    cluster.room = 3
    until(cluster, lambda: runs(cluster))
    assert charged(cluster) == {}
    assert cluster.trainer.status.members == []


def test_a_pod_that_does_not_go_is_not_waited_for_for_ever():
    """TR12, ME4: its member gets the next name, the others keep theirs."""
    cluster = cluster_of()
    cluster.reconcile()
    node = next(view.node for member, view in cluster.pods.values() if member == WORKER)
    until(cluster, lambda: released(cluster))
    cluster.down.add(node)
    cluster.room = 4
    until(cluster, lambda: runs(cluster))
    attempts = {member: entry.attempt for member, entry in cluster.pods.values() if not entry.terminating}
    assert attempts == {WORKER: 1, OTHER: 0, MemberId("worker", 2): 0}
    assert charged(cluster) == {}


def test_without_gang_members_keep_what_they_found():
    """api.md, scheduling.gang."""
    cluster = cluster_of(spec={"scheduling": Scheduling(gang=False)})
    for _ in range(3 * TIMEOUT):
        cluster.reconcile()
        cluster.tick()
    assert held(cluster) == 2
    assert cluster.trainer.status.gang is None
    assert scheduled(cluster)[:2] == ("False", "Unschedulable")


def test_a_gang_that_holds_nothing_is_left_waiting():
    """GS4: waiting pods tell an autoscaler that nodes are missing, and there is nothing to give back."""
    cluster = cluster_of(room=0)
    for _ in range(3 * TIMEOUT):
        cluster.reconcile()
        cluster.tick()
    assert {view.terminating for _, view in cluster.pods.values()} == {False}
    assert (cluster.trainer.status.gang, cluster.events) == (None, [])
    assert scheduled(cluster) == (
        "False",
        "Unschedulable",
        f"worker-0 has no node: {NO_ROOM} (and 2 more members)",
    )


@pytest.mark.parametrize(("fewest", "gives_back"), [(2, False), (3, True)])
def test_an_elastic_trainer_gives_its_nodes_back_only_below_its_minimum(fewest, gives_back):
    """ME6, GS1: minimum = elastic.minWorkers."""
    cluster = cluster_of(spec={"elastic": Elastic(min_workers=fewest)})
    until(cluster, lambda: released(cluster) or runs(cluster))
    assert released(cluster) is gives_back
    assert runs(cluster) is not gives_back


def test_members_that_shall_join_give_back_theirs_while_the_old_world_trains():
    """GS2, ME6: the epoch, its pods and its steps are left alone."""
    cluster = cluster_of(workers=2, room=3)
    until(cluster, lambda: cluster.trainer.status.global_step > 3)
    before = {member: view.uid for member, view in cluster.pods.values()}
    epoch, step = cluster.trainer.status.membership.epoch, cluster.trainer.status.global_step
    rescale(cluster, 4)
    until(cluster, lambda: released(cluster))
    until(cluster, lambda: held(cluster) == 2, at_most=3)
    assert {member: view.uid for member, view in cluster.pods.values() if view.node} == before
    assert cluster.trainer.status.membership.epoch == epoch
    assert cluster.trainer.status.global_step > step
    until(cluster, lambda: not released(cluster))
    cluster.room = 4
    until(cluster, lambda: cluster.trainer.status.membership.members == "worker:0-3" and runs(cluster))
    assert cluster.trainer.status.gang is None
    assert charged(cluster) == {}


def test_survivors_give_their_nodes_back_when_a_replacement_finds_none():
    """GS2, SC08: nobody trains, so nodes that are held are held for nothing; only the lost pod was charged."""
    cluster = cluster_of(workers=3, room=3)
    until(cluster, lambda: cluster.trainer.status.global_step > 3)
    cluster.room = 2
    cluster.delete_pod(OTHER)
    until(cluster, lambda: released(cluster))
    before = charged(cluster)
    assert (before["disruptions"], before["restarts"]) == (1, 1)
    cluster.room = 3
    until(cluster, lambda: runs(cluster))
    after = charged(cluster)
    assert {**after, "rollbacks": 0} == {**before, "rollbacks": 0}


def test_a_worker_of_a_server_training_that_finds_no_node_disturbs_nobody():
    """ME5: the others train on with what they hold."""
    cluster = cluster_of(workers=2, servers=1, room=2)
    until(cluster, lambda: cluster.trainer.status.global_step > 3)
    cluster.room = 1
    cluster.delete_pod(OTHER)
    for _ in range(3 * TIMEOUT):
        cluster.reconcile()
        cluster.tick()
    assert cluster.trainer.status.gang is None
    assert held(cluster) == 2


def test_a_release_that_was_stored_but_not_carried_out_is_carried_out_by_the_next_leader():
    """RC8, TR04."""
    status = active("", world=0, epoch=2)
    status.membership.phase, status.membership.reason = MembershipPhase.PREPARING, "Requeued"
    status.gang = GangStatus(tries=1, not_before=observed().now, message="why")
    again = decide(observed(of=with_status(trainer(), status), pods=[(WORKER, pod()), (OTHER, pod(OTHER))]))
    assert {a.name for a in again.actions if isinstance(a, DeletePod)} == {"t-worker-0", "t-worker-1"}
    assert again.status.gang.not_before is not None


def test_a_released_trainer_can_be_suspended_and_resumed():
    """TR34, TR37: a suspended Trainer waits for nothing."""
    cluster = cluster_of()
    until(cluster, lambda: released(cluster))
    spec = cluster.trainer.spec
    cluster.trainer = cluster.trainer.model_copy(update={"spec": spec.model_copy(update={"suspend": True})})
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED and not cluster.pods)
    assert cluster.trainer.status.gang is None
    cluster.trainer = cluster.trainer.model_copy(update={"spec": spec})
    cluster.room = 3
    until(cluster, lambda: runs(cluster))
    assert charged(cluster) == {}


def test_a_member_whose_pod_cannot_be_created_holds_up_the_others_no_longer_than_one_without_a_node():
    """EC10: a quota refuses it; what was created is given back."""
    cluster = cluster_of(room=3)
    missing = MemberId("worker", 2)
    create = cluster._create
    cluster._create = lambda member, attempt: None if member == missing else create(member, attempt)
    assert until(cluster, lambda: released(cluster)) >= TIMEOUT
    ((_, message),) = cluster.events
    assert "worker-2 found no node" in message
    assert "could not be created" in message


def test_nothing_is_written_about_a_gang_that_is_placed_and_trains():
    """TR17."""
    cluster = cluster_of(room=3)
    until(cluster, lambda: runs(cluster))
    before = cluster.trainer.status
    for _ in range(3):
        assert cluster.reconcile().status == before


def test_a_release_waits_for_the_newest_of_several_pods():
    """ME4: the clock of a member begins with its present pod, not with its first."""
    status = active("worker:0-1", world=2)
    status.membership.phase = MembershipPhase.PREPARING
    waiting = pod(OTHER, node="", phase="Pending", created="2025-12-31T23:59:50Z")
    of = with_spec(with_status(trainer(), status), pending_timeout_seconds=11)
    pods = [(WORKER, replace(pod(), created="2025-12-01T00:00:00Z")), (OTHER, waiting)]
    decision = decide(observed(of=of, pods=pods))
    assert decision.status.gang is None
    assert decision.wake <= 1.0


def test_a_member_that_is_replaced_leaves_the_rest_of_a_placed_gang_where_it_is():
    """TR38: one pod restarts, and nobody else gives anything back or is queued again."""
    cluster = cluster_of(room=3)
    until(cluster, lambda: runs(cluster))
    before = {member: view.uid for member, view in cluster.pods.values()}
    cluster.delete_pod(OTHER)
    until(cluster, lambda: runs(cluster) and cluster.trainer.status.membership.epoch == 2)
    after = {member: view.uid for member, view in cluster.pods.values()}
    assert {member for member in after if after[member] != before[member]} == {OTHER}
    assert cluster.trainer.status.gang is None


def test_nothing_is_written_just_to_wait_and_the_moment_it_ends_is_looked_at():
    """TR39, TR17: a timer of the operator's own, no timestamp in the status that pokes itself."""
    cluster = cluster_of()
    until(cluster, lambda: len(cluster.agents) == 2)
    cluster.reconcile()
    before = cluster.trainer.status
    for _ in range(3):
        cluster.tick()
        decision = cluster.reconcile()
        assert decision.status == before
        assert decision.actions == ()
        assert decision.wake is not None


@pytest.mark.parametrize(("unplaced", "gives_back"), [(MemberId("ps", 1), False), (MemberId("ps", 0), True)])
def test_nobody_gives_a_node_back_for_a_standby(unplaced, gives_back):
    """PSR1, GS1: training needs the server that serves, not the one that stands by."""
    of = trainer(workers=1, servers=1)
    of = with_spec(of, topology=of.spec.topology.model_copy(update={"replication_factor": 2}))
    status = active("worker:0;ps:0-1", world=1)
    status.membership.phase = MembershipPhase.PREPARING
    pods = [(member, pod(member)) for member in (WORKER, MemberId("ps", 0), MemberId("ps", 1))]
    late = {"node": "", "phase": "Pending", "created": "2025-12-31T23:00:00Z"}
    pods = [(member, replace(view, **late) if member == unplaced else view) for member, view in pods]
    decision = decide(observed(of=with_status(of, status), pods=pods))
    assert (decision.status.gang is not None) is gives_back
