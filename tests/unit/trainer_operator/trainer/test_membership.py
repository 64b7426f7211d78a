"""Membership: epochs, who is in one, and from which step it starts."""

from dataclasses import replace

import pytest

from simulation.cluster import Cluster, rescale, trainer
from trainer_operator.api.status import Phase
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import CreatePod, DeletePod, MarkCorrupt
from trainer_operator.trainer.ranges import format_members
from trainer_operator.trainer.views import CheckpointView

W0, W1, W2 = (MemberId("worker", n) for n in range(3))
PS0, PS1 = MemberId("ps", 0), MemberId("ps", 1)


def running(*, workers=2, servers=0, steps=6, epochs=50, **options):
    """A cluster whose Trainer has made some steps."""
    cluster = Cluster(trainer(workers=workers, servers=servers, epochs=epochs, **options))
    advance(cluster, until=lambda: cluster.trainer.status.global_step >= steps)
    assert cluster.trainer.status.phase is Phase.RUNNING
    return cluster


def advance(cluster, *, until, at_most=120):
    for _ in range(at_most):
        cluster.reconcile()
        if until():
            return
        cluster.tick()
    raise AssertionError(f"did not happen: {cluster.trainer.status.dump()}")


def membership(cluster):
    return cluster.trainer.status.membership


def processes(cluster):
    """Boot and run of every agent: what restarts a pod changes the first, what restarts a process the second."""
    return {member: (agent.boot, agent.run) for member, agent in cluster.agents.items()}


def commit(cluster, name, step, **changes):
    view = CheckpointView(name, f"{step:012d}-e1-aaaa", step, "Committed", "Healthy", "Interval", sequence=99)
    cluster.checkpoints[name] = replace(view, **changes)


# -- the first epoch


def test_nobody_trains_before_everybody_is_there():
    """ME3."""
    cluster = Cluster(trainer(workers=3))
    cluster.reconcile()
    cluster.tick()
    del cluster.agents[W2]
    cluster.reconcile()
    assert membership(cluster).epoch == 0
    assert cluster.last.directives == {}


def test_an_epoch_is_prepared_by_all_before_anybody_goes():
    """ME3, MG2: Preparing is stored, then Prepare is sent; Active is stored, then Go."""
    cluster = Cluster(trainer(workers=2))
    cluster.reconcile()
    cluster.tick()
    preparing = cluster.reconcile()
    assert (membership(cluster).epoch, membership(cluster).phase) == (1, "Preparing")
    assert {d.kind for ds in preparing.directives.values() for d in ds} == {"Prepare"}
    cluster.agents[W1].prepared = 0
    waiting = cluster.reconcile()
    assert membership(cluster).phase == "Preparing"
    assert {m: [d.kind for d in ds] for m, ds in waiting.directives.items()} == {W1: ["Prepare"]}
    cluster.agents[W1].prepared = 1
    going = cluster.reconcile()
    assert membership(cluster).phase == "Active"
    assert {d.kind for ds in going.directives.values() for d in ds} == {"Go"}
    assert membership(cluster).members == "worker:0-1"


def test_a_member_that_is_silent_is_not_chosen():
    """FT09: only fresh beats count."""
    cluster = Cluster(trainer(workers=2))
    cluster.reconcile()
    cluster.tick()
    cluster.agents[W1].age = 1000.0
    cluster.reconcile()
    assert membership(cluster).epoch == 0


# -- all-reduce: a failure


def test_a_crashed_process_restarts_all_processes_and_no_pod():
    """FT01, FT02, ME4, RC: all-reduce, agent alive."""
    cluster = running(workers=3)
    before, pods = processes(cluster), set(cluster.pods)
    cluster.crash(W1)
    advance(cluster, until=lambda: membership(cluster).phase == "Active" and membership(cluster).epoch == 2)
    after = processes(cluster)
    assert set(cluster.pods) == pods
    assert all(after[m][0] == before[m][0] for m in after)
    assert all(after[m][1] == before[m][1] + 1 for m in after)


def test_a_deleted_pod_is_replaced_by_exactly_one_and_the_others_stay():
    """FT02, ME4, TR10."""
    cluster = running(workers=3)
    before = processes(cluster)
    cluster.delete_pod(W1)
    cluster.tick(0.1)
    created = []
    for _ in range(20):
        decision = cluster.reconcile()
        created += [a for a in decision.actions if isinstance(a, CreatePod)]
        cluster.tick()
    assert created == [CreatePod(W1, 1)]
    assert membership(cluster).epoch == 2
    assert {m: boot for m, (boot, _) in processes(cluster).items() if m != W1} == {
        m: boot for m, (boot, _) in before.items() if m != W1
    }


def test_the_first_step_of_an_epoch_follows_the_step_that_it_restored():
    """ME3, ME7, FT01: what is lost is on record."""
    cluster = running(workers=2)
    commit(cluster, "t-c00099", 4)
    reached = cluster.trainer.status.global_step
    cluster.crash(W0)
    advance(cluster, until=lambda: membership(cluster).phase == "Active" and membership(cluster).epoch == 2)
    status = cluster.trainer.status
    assert (status.membership.restore_step, status.membership.restore_from) == (4, "000000000004-e1-aaaa")
    assert (status.last_rollback.from_step, status.last_rollback.to_step) == (reached, 4)
    assert status.rollbacks == 1
    cluster.tick()
    assert cluster.trained[-1] == (2, 0, 5)


def test_without_a_checkpoint_an_epoch_starts_at_zero_and_says_so():
    """ME7."""
    cluster = running(workers=2, steps=3)
    cluster.checkpoints.clear()
    cluster.crash(W0)
    advance(cluster, until=lambda: membership(cluster).phase == "Active" and membership(cluster).epoch == 2)
    assert (membership(cluster).restore_step, membership(cluster).restore_from) == (0, "")
    assert cluster.trainer.status.last_rollback.to_step == 0


def test_a_loss_while_an_epoch_is_prepared_changes_the_same_epoch_and_nobody_trains():
    """ME3: nobody trains while Preparing."""
    cluster = running(workers=3)
    cluster.crash(W0)
    cluster.reconcile()
    assert membership(cluster).phase == "Preparing"
    trained = len(cluster.trained)
    cluster.delete_pod(W1)
    cluster.tick()
    cluster.reconcile()
    assert len(cluster.trained) == trained
    advance(cluster, until=lambda: membership(cluster).phase == "Active")
    assert membership(cluster).epoch == 2
    assert cluster.trainer.status.disruptions == 1


def test_what_ends_because_its_epoch_ended_is_no_failure():
    """RC1: a consequence is not counted."""
    cluster = running(workers=3)
    cluster.crash(W0)
    cluster.reconcile()
    cluster.agents[W2].proc, cluster.agents[W2].exit = "exited", cluster.agents[W0].exit
    cluster.agents[W2].epoch = 1
    advance(cluster, until=lambda: membership(cluster).phase == "Active")
    assert cluster.trainer.status.failures <= 1


# -- parameter servers


def test_a_worker_of_a_server_training_restarts_alone():
    """ME5, RC: PS mode."""
    cluster = running(workers=3, servers=1)
    before, epochs = processes(cluster), (membership(cluster).epoch, membership(cluster).ps_epoch)
    cluster.crash(W1)
    advance(cluster, until=lambda: cluster.agents[W1].proc == "running")
    after = processes(cluster)
    assert {m for m in after if after[m] != before[m]} == {W1}
    assert (membership(cluster).epoch, membership(cluster).ps_epoch) == epochs
    assert cluster.trainer.status.restarts == 1


@pytest.mark.parametrize("lose", [Cluster.crash, Cluster.delete_pod])
def test_the_loss_of_the_rendezvous_host_leaves_the_other_agents_alive_and_counts_once(lose):
    """FT03, ME2: rank 0 hosts the framework's store; everybody meets in the next epoch, with new processes."""
    cluster = running(workers=3)
    before = processes(cluster)
    assert lose(cluster, W0)
    advance(cluster, until=lambda: membership(cluster).epoch == 2)
    advance(cluster, until=lambda: cluster.trainer.status.phase is Phase.RUNNING)
    after = processes(cluster)
    for member in (W1, W2):
        assert after[member][0] == before[member][0], "the agent of a survivor was lost"
        assert after[member][1] > before[member][1], "its process still talks to the old store"
    status = cluster.trainer.status
    assert (membership(cluster).epoch, status.failures + status.disruptions) == (2, 1)


def test_a_lost_server_leaves_every_worker_process_alone():
    """FT13, PSR2: the epoch stays, only psEpoch moves."""
    cluster = running(workers=3, servers=2)
    before, epoch, servers = processes(cluster), membership(cluster).epoch, membership(cluster).ps_epoch
    cluster.delete_pod(PS0)
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Recovering")
    assert cluster.last.directives.get(W0, ()) == ()
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Serving")
    cluster.reconcile()
    assert (membership(cluster).epoch, membership(cluster).ps_epoch) == (epoch, servers + 1)
    after = processes(cluster)
    assert {m for m in after if after[m] != before[m]} == {PS0}


def test_the_survivors_are_told_of_the_new_servers_before_they_go_on():
    """PSR5."""
    cluster = running(workers=2, servers=2)
    cluster.crash(PS0)
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Recovering")
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Serving")
    told = {m: [d.kind for d in ds] for m, ds in cluster.last.directives.items()}
    assert told[PS0] == ["Go"]
    assert "UpdatePS" in told[W0]
    assert "UpdatePS" in told[W1]
    assert "UpdatePS" in told[PS1]
    step = membership(cluster).restore_step
    (update,) = [d for d in cluster.last.directives[W0] if d.kind == "UpdatePS"]
    assert update.args["step"] == step
    assert [m["role"] for m in update.args["members"]] == ["ps", "ps"]


def serve_again(cluster, *, first, second):
    """Lose server 0 and let both servers offer what they have in their rings."""
    cluster.crash(PS0)
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Recovering")
    cluster.agents[PS0].have, cluster.agents[PS1].have = list(first), list(second)
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Serving")
    return membership(cluster).restore_step, membership(cluster).restore_from


@pytest.mark.parametrize(
    ("first", "second", "committed", "step", "source"),
    [
        ([10, 15, 20], [15, 20, 25], None, 20, ""),
        ([10, 15, 20], [10, 25], None, 10, ""),
        ([10], [15], None, 0, ""),
        ([], [15, 20], None, 0, ""),
        ([10, 15], [10, 15], 12, 15, ""),
        ([10, 15], [10, 20], 12, 12, "000000000012-e1-aaaa"),
        ([], [20], 12, 12, "000000000012-e1-aaaa"),
        ([12], [12], 12, 12, "000000000012-e1-aaaa"),
        ([10], [12], 12, 12, "000000000012-e1-aaaa"),
    ],
)
def test_servers_go_on_from_the_newest_step_that_all_of_them_have(first, second, committed, step, source):
    """PSR4: S* = newest common step of the rings, else the last Committed one."""
    cluster = running(workers=1, servers=2, steps=3)
    cluster.checkpoints.clear()
    cluster.trainer.status.checkpoint_in_flight = None
    cluster.trainer.status.last_checkpoint = None
    cluster.trainer.status.last_checkpoint_attempt = cluster.now
    if committed:
        commit(cluster, "t-c00099", committed)
    assert serve_again(cluster, first=first, second=second) == (step, source)


def test_a_damaged_checkpoint_is_no_offer():
    """PSR4, RS1."""
    cluster = running(workers=1, servers=2, steps=3)
    cluster.checkpoints.clear()
    cluster.trainer.status.last_checkpoint_attempt = cluster.now
    commit(cluster, "t-c00099", 12, health="Corrupt")
    assert serve_again(cluster, first=[], second=[]) == (0, "")


def test_a_second_loss_before_the_servers_serve_moves_the_number_no_further():
    """PSR2: nothing was served under the new number yet."""
    cluster = running(workers=2, servers=2)
    before = membership(cluster).ps_epoch
    cluster.crash(PS0)
    advance(cluster, until=lambda: membership(cluster).ps_phase == "Recovering")
    cluster.delete_pod(PS1)
    cluster.reconcile()
    assert membership(cluster).ps_epoch == before + 1


# -- restores


def test_a_checkpoint_that_cannot_be_restored_gives_way_to_an_older_one():
    """RS2."""
    cluster = running(workers=2, steps=8)
    cluster.checkpoints.clear()
    commit(cluster, "t-c00001", 3, id="000000000003-e1-aaaa")
    commit(cluster, "t-c00002", 6, id="000000000006-e1-bbbb")
    cluster.corrupt.add("000000000006-e1-bbbb")
    marked = []
    cluster.crash(W0)
    for _ in range(60):
        marked += [a for a in cluster.reconcile().actions if isinstance(a, MarkCorrupt)]
        if membership(cluster).restore_from.endswith("aaaa") and membership(cluster).phase == "Active":
            break
        cluster.tick()
    assert [mark.name for mark in marked] == ["t-c00002"]
    assert "damaged" in marked[0].message
    assert (membership(cluster).epoch, membership(cluster).restore_step) == (3, 3)
    assert cluster.checkpoints["t-c00002"].health == "Corrupt"


def test_a_start_that_fails_for_another_reason_says_nothing_of_the_checkpoint():
    """RS2, PB4: else a command that cannot be run would cost one sound checkpoint after the other."""
    cluster = running(workers=2, steps=8)
    cluster.checkpoints.clear()
    commit(cluster, "t-c00001", 6, id="000000000006-e1-bbbb")
    cluster.corrupt.add("000000000006-e1-bbbb")
    cluster.refusal = "spawn: cannot start 'train'"
    cluster.crash(W0)
    for _ in range(30):
        assert not [a for a in cluster.reconcile().actions if isinstance(a, MarkCorrupt)]
        cluster.tick()
    assert membership(cluster).restore_from == "000000000006-e1-bbbb"


def test_only_committed_checkpoints_are_restored_and_the_newest_step_wins():
    """FC01, FC02, FC03, RS1, CK1."""
    cluster = running(workers=2, steps=8)
    cluster.checkpoints.clear()
    commit(cluster, "t-c00001", 3, id="000000000003-e1-aaaa")
    commit(cluster, "t-c00002", 4, id="000000000004-e1-bbbb")
    commit(cluster, "t-c00003", 5, state="GarbageCollected", aborted=True)
    commit(cluster, "t-c00004", 6, state="GarbageCollected")
    commit(cluster, "t-c00005", 7, health="Corrupt")
    cluster.crash(W0)
    advance(cluster, until=lambda: membership(cluster).phase == "Active" and membership(cluster).epoch == 2)
    assert membership(cluster).restore_from == "000000000004-e1-bbbb"


def test_an_epoch_waits_for_a_checkpoint_that_is_being_decided():
    """ME7: its outcome says where to start; but not for ever."""
    cluster = running(workers=2)
    cluster.checkpoints["mine"] = CheckpointView("mine", "", 0, "Staging", "Unknown", "OnDemand", sequence=0)
    cluster.crash(W0)
    for _ in range(8):
        cluster.reconcile()
        cluster.tick()
    assert membership(cluster).phase == "Preparing"
    advance(cluster, until=lambda: membership(cluster).phase == "Active", at_most=40)


def test_an_epoch_does_not_wait_for_a_checkpoint_that_waits_for_the_epoch():
    """LT1, CS10: a Pending one has stored nothing, and is taken once members train again."""
    cluster = running(workers=2)
    cluster.checkpoints["mine"] = CheckpointView("mine", "", 0, "Pending", "Unknown", "Interval", sequence=0)
    cluster.crash(W0)
    began = cluster.now
    cluster._commit = lambda: None
    advance(cluster, until=lambda: membership(cluster).epoch == 2 and membership(cluster).phase == "Active")
    assert (cluster.now - began).total_seconds() < 15


def test_without_parameter_servers_there_is_no_pod_of_one_and_nothing_to_do_at_rest():
    """TR07, TR17: zero is a wish like any other; no pod is made and deleted for ever."""
    cluster = running(workers=1, servers=0)
    cluster.reconcile()
    before = cluster.trainer.status.dump()
    for _ in range(5):
        assert cluster.reconcile().actions == ()
        assert cluster.trainer.status.dump() == before
    assert {member.role for member, _ in cluster.pods.values()} == {"worker"}


# -- scaling


def test_scaling_up_loses_no_step_and_restarts_no_pod():
    """FT11, ME6, ME7."""
    cluster = running(workers=2)
    before, reached = processes(cluster), cluster.trainer.status.global_step
    rescale(cluster, 4)
    advance(
        cluster,
        until=lambda: membership(cluster).members == "worker:0-3" and membership(cluster).phase == "Active",
    )
    assert cluster.trainer.status.rollbacks == 0
    assert cluster.trainer.status.global_step >= reached
    assert membership(cluster).reason == "Scaled"
    assert all(processes(cluster)[member][0] == boot for member, (boot, _) in before.items())


def test_the_old_world_trains_while_new_members_start():
    """ME6."""
    cluster = running(workers=2)
    rescale(cluster, 3)
    cluster.reconcile()
    assert (membership(cluster).epoch, membership(cluster).phase) == (1, "Active")
    steps = len(cluster.trained)
    cluster.tick()
    assert len(cluster.trained) > steps


def test_scaling_down_ends_the_epoch_first_and_the_pods_afterwards():
    """ME6, TR20: highest index first, exactly those."""
    cluster = running(workers=3)
    rescale(cluster, 1)
    deleted, at = [], None
    for _ in range(40):
        decision = cluster.reconcile()
        for action in decision.actions:
            if isinstance(action, DeletePod):
                deleted.append(action.name)
                at = at or (membership(cluster).epoch, membership(cluster).members)
        cluster.tick()
    assert sorted(deleted) == ["worker-1-a0", "worker-2-a0"]
    assert at == (2, "worker:0")
    assert cluster.trainer.status.rollbacks == 0
    assert (cluster.trainer.status.disruptions, cluster.trainer.status.failures) == (0, 0)


@pytest.mark.parametrize("servers", [0, 1])
def test_up_and_down_again_never_lets_the_step_fall(servers):
    """FT11, ME7, LT7: 2, 4, 2."""
    cluster = running(workers=2, servers=servers)
    for workers in (4, 2):
        rescale(cluster, workers)
        world = {MemberId("worker", n) for n in range(workers)} | {MemberId("ps", n) for n in range(servers)}
        seen = cluster.trainer.status.global_step
        for _ in range(80):
            cluster.reconcile()
            assert cluster.trainer.status.global_step >= seen
            seen = cluster.trainer.status.global_step
            if membership(cluster).members == format_members(world) and membership(cluster).phase == "Active":
                break
            cluster.tick()
        else:
            raise AssertionError("the epoch never came")
    assert cluster.trainer.status.rollbacks == 0


def test_a_wish_that_is_taken_back_in_time_changes_nothing():
    """ME6: targets are coalesced."""
    cluster = running(workers=2)
    rescale(cluster, 4)
    cluster.reconcile()
    rescale(cluster, 2)
    for _ in range(10):
        cluster.reconcile()
        cluster.tick()
    assert membership(cluster).epoch == 1
    assert sorted(cluster.pods) == ["worker-0-a0", "worker-1-a0"]


def test_voluntary_epochs_keep_their_distance():
    """ME6."""
    cluster = running(workers=2)
    cluster.settings = replace(cluster.settings, voluntary_interval=3600.0)
    rescale(cluster, 3)
    for _ in range(20):
        cluster.reconcile()
        cluster.tick()
    assert membership(cluster).epoch == 1
    cluster.now = cluster.now.replace(hour=cluster.now.hour + 1)
    advance(cluster, until=lambda: membership(cluster).epoch == 2)


def test_a_scale_goes_on_without_its_checkpoint_when_that_takes_too_long():
    """ME7: then the loss is on record."""
    cluster = running(workers=2)
    commit(cluster, "t-c00099", 2)
    cluster._commit = lambda: None  # the store takes nothing any more
    rescale(cluster, 3)
    advance(
        cluster,
        until=lambda: membership(cluster).epoch == 2 and membership(cluster).phase == "Active",
        at_most=150,
    )
    assert cluster.trainer.status.rollbacks == 1
