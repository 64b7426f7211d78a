"""Soft epochs: when the members of a training with servers change, and what each of them is told."""

from dataclasses import replace

import pytest

from simulation.cluster import START, Cluster, rescale, trainer
from simulation.views import (
    OTHER,
    SERVER,
    WORKER,
    active,
    agent,
    exited,
    observed,
    pod,
    with_spec,
    with_status,
)
from trainer_operator.api.meta import Role
from trainer_operator.api.status import MemberStatus, PendingChange, Phase, ServerPhase
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer import change
from trainer_operator.trainer.directives import directives_of
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.views import CheckpointView

SECOND = MemberId("ps", 1)
NEW = MemberId("worker", 2)


def serving(members="worker:0-1;ps:0", *, world=2, **pending):
    status = active(members, world=world)
    status.membership.ps_phase, status.membership.ps_epoch = ServerPhase.SERVING, 3
    if pending:
        status.pending_change = PendingChange(**{"reason": "Scale", "since": START, "soft": True, **pending})
    return status


def member(which, **changes):
    fields = {"ps_epoch": 3, "soft_epochs": True, "step": 40, **changes}
    return agent(which, **fields)


def joined(which=NEW, **changes):
    return member(which, **{"ps_epoch": 0, "step": 0, "phase": "rendezvous", **changes})


def stands(which=SERVER, step=40, **changes):
    """A server that waits after a step, as it was told by the order of that step."""
    told = f"pause:1:3:0:{step}"
    results = {told: DirectiveResult(told)}
    return member(which, results=results, **{"phase": "paused", "step": step, **changes})


def draft_of(status, agents, *, workers=3, servers=1, **changes):
    made = trainer(workers=workers, servers=servers)
    pods = [
        (MemberId(view.beat.role, view.beat.idx), pod(MemberId(view.beat.role, view.beat.idx)))
        for view in agents
    ]
    return Draft(observed(of=with_status(made, status), pods=pods, agents=agents, **changes), status)


def scaled(status, agents, **changes):
    draft = draft_of(status, agents, **{"now": START.replace(hour=1), **changes})
    change.scale(draft)
    return draft


WORLD = [member(WORKER), member(OTHER), member(SERVER)]


def test_a_resize_is_soft_where_all_programs_can():
    """ME5."""
    draft = scaled(serving(), [*WORLD, member(NEW, proc="none", prepared=0)])
    assert draft.status.pending_change.soft
    assert draft.status.membership.epoch == 1


@pytest.mark.parametrize(
    "world",
    [
        [member(WORKER), member(OTHER, soft_epochs=False), member(SERVER)],
        [member(WORKER), member(OTHER), member(SERVER, soft_epochs=False)],
        [member(WORKER), member(OTHER), member(SERVER, phase="init", soft_epochs=False)],
    ],
)
def test_one_program_that_cannot_makes_it_a_restart(world):
    """ME3: an old SDK, or code that knows its rank from the start only."""
    draft = scaled(serving(), [*world, member(NEW, proc="none", prepared=0)])
    assert not draft.status.pending_change.soft


def test_a_worker_that_is_down_or_starting_does_not_decide_how_members_change():
    """ME5: scaling down must be possible to be rid of it."""
    for late in (
        member(OTHER, **exited(1), soft_epochs=False),
        member(OTHER, phase="init", soft_epochs=False),
    ):
        draft = scaled(serving(), [member(WORKER), late, member(SERVER)], workers=1)
        assert draft.status.pending_change.soft


def test_a_change_of_servers_is_never_soft():
    """PSR1: shards would have to move."""
    agents = [*WORLD, member(SECOND, proc="none", prepared=0)]
    draft = scaled(serving(), agents, workers=2, servers=2)
    assert not draft.status.pending_change.soft


def test_all_reduce_has_no_soft_epochs():
    """ME3."""
    agents = [agent(soft_epochs=True), agent(OTHER, soft_epochs=True), agent(NEW, proc="none")]
    draft = scaled(active("worker:0-1", world=2), agents, servers=0)
    assert not draft.status.pending_change.soft


def test_a_training_that_ends_is_not_resized():
    """ME9."""
    agents = [member(WORKER, **exited()), member(OTHER), member(SERVER), member(NEW, proc="none", prepared=0)]
    assert scaled(serving(), agents).status.pending_change is None


def told(status, agents, **changes):
    return directives_of(draft_of(status, agents, **changes))


def test_new_workers_are_started_while_the_old_world_trains():
    """ME6: prepared, then let go with the order to wait until they are let in."""
    prepare = told(serving(soft=True), [*WORLD, member(NEW, proc="none", prepared=0)])
    assert [(d.kind, d.args["epoch"]) for d in prepare[NEW]] == [("Prepare", 1)]
    (go,) = told(serving(soft=True), [*WORLD, member(NEW, proc="none", prepared=1)])[NEW]
    assert (go.kind, go.args) == ("Go", {"epoch": 1, "psEpoch": 0, "join": True})
    for each in (WORKER, OTHER, SERVER):
        assert {d.kind for d in prepare[each]} <= {"Go"}


def test_a_new_worker_that_crashed_is_started_again_under_another_id():
    """MG1, RC1."""
    status = serving(soft=True)
    (first,) = told(status, [*WORLD, member(NEW, proc="none")])[NEW]
    status.members.append(MemberStatus(role=Role.WORKER, index=2, handled="0/boot/1"))
    (second,) = told(status, [*WORLD, member(NEW, **exited(1))])[NEW]
    assert first.id != second.id


def test_servers_are_stopped_only_when_all_new_workers_wait():
    """ME6: the pause is not as long as an import."""
    starting = joined(phase="init")
    assert scaled(serving(soft=True), [*WORLD, starting]).status.pending_change.step is None
    draft = scaled(serving(soft=True), [*WORLD, joined()])
    assert draft.status.pending_change.step == 40
    directives = directives_of(draft)
    assert [(d.kind, d.args) for d in directives[SERVER] if d.kind != "Go"] == [("Pause", {"step": 40})]
    assert "Pause" not in {d.kind for d in directives[WORKER]}


def test_a_checkpoint_that_is_being_taken_comes_first():
    """CS10: it belongs to the epoch that took it."""
    open_one = CheckpointView("t-c00001", "", 0, "Staging", "Unknown", "Interval", sequence=1)
    draft = scaled(serving(soft=True), [*WORLD, joined()], checkpoints=(open_one,))
    assert draft.status.pending_change.step is None


def test_the_epoch_begins_when_all_servers_stand_at_one_step():
    """ME5, ME7: no process ends, no step is lost."""
    agents = [member(WORKER), member(OTHER, step=39), stands(), joined()]
    draft = scaled(serving(soft=True, step=40), agents)
    membership = draft.status.membership
    assert (membership.epoch, membership.process_epoch, membership.ps_epoch) == (2, 1, 4)
    assert (membership.phase, membership.members, membership.world) == ("Active", "worker:0-2;ps:0", 3)
    assert (membership.restore_step, draft.status.global_step, draft.status.rollbacks) == (40, 40, 0)
    assert draft.status.pending_change is None


@pytest.mark.parametrize(
    "server",
    [
        member(SERVER),
        member(SERVER, phase="paused"),
        stands(step=39),
        stands(ps_epoch=2),
        stands(**exited(1)),
        stands(proc="starting", phase="init"),
    ],
)
def test_a_server_that_is_on_its_way_is_waited_for(server):
    """ME5, AG8: one that waits for another reason may go on by itself."""
    draft = scaled(serving(soft=True, step=40), [member(WORKER), member(OTHER), server, joined()], now=START)
    assert draft.status.membership.epoch == 1
    assert draft.status.pending_change.step == 40


def test_servers_that_stopped_at_different_steps_meet_at_the_last_of_them():
    """ME5, PSR4: a step that one server has applied is applied by all."""
    status = serving("worker:0-1;ps:0-1", soft=True, step=40)
    agents = [member(WORKER), member(OTHER), stands(step=41), stands(SECOND, step=40), joined()]
    draft = scaled(status, agents, servers=2, now=START)
    assert (draft.status.membership.epoch, draft.status.pending_change.step) == (1, 41)
    pauses = {m: [d.args["step"] for d in ds if d.kind == "Pause"] for m, ds in directives_of(draft).items()}
    assert pauses[SECOND] == [41]
    agents = [member(WORKER), member(OTHER), stands(step=41), stands(SECOND, step=41), joined()]
    assert scaled(draft.status, agents, servers=2).status.membership.epoch == 2


def test_servers_that_never_stand_end_in_a_restart_of_all():
    """ME7: training does not wait for ever."""
    draft = scaled(serving(soft=True, step=40), [*WORLD, joined()])
    assert (draft.status.membership.epoch, draft.status.membership.phase) == (2, "Preparing")
    assert draft.status.membership.process_epoch == 2


def test_a_new_worker_that_went_at_the_last_moment_lets_the_others_go_on():
    """ME6: servers that stand are never left standing."""
    gone = joined(**exited(1))
    draft = scaled(serving(soft=True, step=40), [member(WORKER), member(OTHER), stands(), gone])
    membership = draft.status.membership
    assert (membership.epoch, membership.members, membership.reason) == (
        2,
        "worker:0-1;ps:0",
        "ScaleCancelled",
    )


def test_a_new_leader_waits_to_hear_of_the_new_workers():
    """TX3, TX4."""
    draft = scaled(serving(soft=True, step=40), [member(WORKER), member(OTHER), stands()], led_for=1.0)
    assert draft.status.membership.epoch == 1
    assert draft.wake is not None


def soft_second_epoch():
    status = serving("worker:0-2;ps:0", world=3)
    membership = status.membership
    membership.epoch, membership.process_epoch, membership.ps_epoch, membership.restore_step = 2, 1, 4, 40
    return status


def test_all_processes_are_told_their_new_place_and_servers_to_go_on():
    """ME5, PSR5, MG2."""
    found = told(soft_second_epoch(), [member(WORKER), member(OTHER), stands(), joined()])
    assert [d.kind for d in found[SERVER]] == ["UpdatePS", "Resume"]
    for each in (WORKER, OTHER, NEW):
        (update,) = found[each]
        args = update.args
        assert (args["psEpoch"], args["epoch"], args["world"], args["step"]) == (4, 2, 3, 40)
        assert [(m["role"], m["index"], m["rank"]) for m in args["members"]] == [
            ("worker", 0, 0),
            ("worker", 1, 1),
            ("worker", 2, 2),
            ("ps", 0, 0),
        ]
        assert all(m["address"] for m in args["members"])


def test_a_process_that_ended_before_it_took_its_place_is_prepared_first():
    """ME5, RC: its successor starts in the new epoch."""
    found = told(soft_second_epoch(), [member(WORKER), member(OTHER, **exited(1)), stands(), joined()])
    assert [(d.kind, d.args["epoch"]) for d in found[OTHER]] == [("Prepare", 2)]
    agents = [member(WORKER), member(OTHER, **exited(1), prepared=2), stands(), joined()]
    assert [d.kind for d in told(soft_second_epoch(), agents)[OTHER]] == ["Go"]


def running(*, workers=2, servers=1):
    cluster = Cluster(trainer(workers=workers, servers=servers, epochs=50), soft=True)
    for _ in range(30):
        cluster.reconcile()
        cluster.tick()
        if cluster.trainer.status.global_step > 5:
            return cluster
    raise AssertionError(cluster.trainer.status.dump())


def passes(cluster, until, at_most=60):
    cluster.run_until(lambda: until(cluster.trainer.status), at_most=at_most)


def test_a_process_that_crashes_after_a_soft_epoch_is_a_failure_and_comes_back_alone():
    """RC4, ME5: also one that never took the new epoch."""
    cluster = running()
    cluster.agents[OTHER].deaf = True
    rescale(cluster, 3)
    passes(cluster, lambda status: status.membership.epoch == 2)
    others = {m: a.run for m, a in cluster.agents.items() if m != OTHER}
    assert cluster.agents[OTHER].epoch == 1
    cluster.crash(OTHER)
    cluster.agents[OTHER].deaf = False
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.global_step > step + 3)
    assert cluster.trainer.status.failures == 1
    assert {m: a.run for m, a in cluster.agents.items() if m != OTHER} == others
    assert cluster.trainer.status.membership.epoch == 2


def test_a_server_lost_while_it_waits_is_recovered_and_the_change_goes_on():
    """PSR2, ME5: the servers that stood are not left standing."""
    cluster = running(servers=2)
    rescale(cluster, 3)
    passes(
        cluster, lambda status: status.pending_change is not None and status.pending_change.step is not None
    )
    cluster.crash(SERVER)
    passes(cluster, lambda status: status.membership.members == "worker:0-2;ps:0-1")
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.global_step > step + 3)
    assert cluster.trainer.status.phase is Phase.RUNNING


def test_a_server_lost_just_after_a_soft_epoch_waits_for_nobody_that_runs():
    """PSR2, ME5: a survivor that has not heard of the epoch yet needs no Prepare, which would end it."""
    cluster = running(servers=2)
    rescale(cluster, 3)
    passes(
        cluster, lambda status: status.pending_change is not None and status.pending_change.step is not None
    )
    cluster.tick()
    cluster.agents[SECOND].deaf = True
    passes(cluster, lambda status: status.membership.epoch == 2)
    run = cluster.agents[SECOND].run
    cluster.crash(SERVER)
    passes(
        cluster, lambda status: status.membership.ps_epoch == 3 and status.membership.ps_phase == "Serving"
    )
    cluster.agents[SECOND].deaf = False
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.global_step > step + 3)
    assert cluster.agents[SECOND].run == run


def test_a_change_withdrawn_after_the_servers_stopped_lets_them_go_on():
    """ME6."""
    cluster = running()
    rescale(cluster, 3)
    passes(
        cluster, lambda status: status.pending_change is not None and status.pending_change.step is not None
    )
    rescale(cluster, 2)
    passes(cluster, lambda status: status.membership.reason == "ScaleCancelled")
    step = cluster.trainer.status.global_step
    passes(cluster, lambda status: status.global_step > step + 3)
    assert cluster.trainer.status.membership.members == "worker:0-1;ps:0"


def test_a_suspend_overtakes_a_soft_change_and_loses_no_step():
    """TR34, ME7: its checkpoint lifts the pause of the servers."""
    cluster = running()
    rescale(cluster, 3)
    passes(
        cluster, lambda status: status.pending_change is not None and status.pending_change.step is not None
    )
    cluster.trainer = with_spec(cluster.trainer, suspend=True)
    passes(cluster, lambda status: status.phase is Phase.SUSPENDED)
    assert cluster.trainer.status.last_checkpoint.step == cluster.trainer.status.global_step
    cluster.trainer = with_spec(cluster.trainer, suspend=False)
    passes(cluster, lambda status: status.phase is Phase.RUNNING)
    assert cluster.trainer.status.rollbacks == 0


def test_voluntary_epochs_keep_their_distance_when_they_are_soft():
    """ME6."""
    cluster = running()
    cluster.settings = replace(cluster.settings, voluntary_interval=3600.0)
    rescale(cluster, 3)
    with pytest.raises(AssertionError):
        passes(cluster, lambda status: status.pending_change is not None)
