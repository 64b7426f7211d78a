"""How a Trainer ends, rests, and is cleaned up."""

from datetime import timedelta

import pytest

from simulation.cluster import START, Cluster, trainer
from simulation.views import OTHER, WORKER, active, agent, exited, observed, pod, with_spec, with_status
from trainer_operator.api.status import CheckpointInFlight, MembershipPhase, PendingChange, Phase
from trainer_operator.api.trainer import CleanPodPolicy, SuccessPolicy, TrainerSpec
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.draft import CloseAgents, CreateCheckpoint, CreatePod, DeletePod, DeleteTrainer
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.views import CheckpointView, Settings

MASTER = MemberId("master", 0)


def after(seconds):
    return START + timedelta(seconds=seconds)


def pods_of(*members, **changes):
    return [(member, pod(member, **changes)) for member in members]


def kinds(decision):
    return {type(action) for action in decision.actions}


def deletes(decision):
    return sorted(action.name for action in decision.actions if isinstance(action, DeletePod))


def open_checkpoint():
    return CheckpointView("t-c00001", "", 0, "Staging", "Unknown", "Interval", sequence=1)


# -- success


def with_master(status=None, **spec):
    made = trainer(workers=2)
    topology = made.spec.topology.model_copy(update={"masters": 1})
    made = with_spec(made, topology=topology, **spec)
    return with_status(made, status or active("master:0;worker:0-1", world=3, phase=Phase.RUNNING))


@pytest.mark.parametrize(
    ("policy", "done", "succeeds"),
    [
        (None, {MASTER}, True),
        (None, {WORKER, OTHER}, False),
        (SuccessPolicy.CHIEF, {MASTER}, True),
        (SuccessPolicy.ALL_WORKERS, {MASTER, WORKER}, False),
        (SuccessPolicy.ALL_WORKERS, {WORKER, OTHER}, True),
    ],
)
def test_the_success_policy_alone_decides(policy, done, succeeds):
    """ST6, TR08."""
    of = with_master(success_policy=policy)
    members = [MASTER, WORKER, OTHER]
    agents = [agent(member, **(exited(0) if member in done else {})) for member in members]
    status = decide(observed(of=of, pods=pods_of(*members), agents=agents)).status
    assert (status.phase is Phase.SUCCEEDED) is succeeds


@pytest.mark.parametrize(
    ("policy", "done", "succeeds"),
    [
        (None, {WORKER}, False),
        (None, {WORKER, OTHER}, True),
        (SuccessPolicy.CHIEF, {WORKER}, True),
        (SuccessPolicy.CHIEF, {OTHER}, False),
    ],
)
def test_without_a_master_worker_0_is_the_chief(policy, done, succeeds):
    """TR08."""
    of = with_spec(with_status(trainer(), active("worker:0-1", world=2)), success_policy=policy)
    agents = [agent(m, **(exited(0) if m in done else {})) for m in (WORKER, OTHER)]
    status = decide(observed(of=of, pods=pods_of(WORKER, OTHER), agents=agents)).status
    assert (status.phase is Phase.SUCCEEDED) is succeeds


def test_an_early_finisher_waits_for_the_slowest():
    """FT04, ME9: it stays done, costs nothing and is not restarted, however long it takes."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    for seconds in (0, 400, 4000):
        agents = [agent(**exited(0, step=50)), agent(OTHER)]
        decision = decide(
            observed(
                of=with_status(trainer(), status),
                pods=pods_of(WORKER, OTHER),
                agents=agents,
                now=after(seconds),
            )
        )
        status = decision.status
        assert (status.failures, status.restarts, status.membership.epoch) == (0, 0, 1)
        assert not {CreatePod, DeletePod} & kinds(decision)
        assert not [d for d in decision.directives.get(WORKER, ()) if d.kind == "Go"]
    agents = [agent(**exited(0, step=50)), agent(OTHER, **exited(0, step=50))]
    ended = decide(
        observed(of=with_status(trainer(), status), pods=pods_of(WORKER, OTHER), agents=agents)
    ).status
    assert (ended.phase, ended.global_step, ended.epochs_completed) == (Phase.SUCCEEDED, 50, 5)


def test_a_member_that_was_done_stays_done_when_its_pod_goes():
    """ST2, FT08: the next leader knows it from status alone."""
    first = decide(
        observed(
            of=with_status(trainer(), active("worker:0-1", world=2)),
            pods=pods_of(WORKER, OTHER),
            agents=[agent(**exited(0)), agent(OTHER)],
        )
    )
    gone = decide(
        observed(of=with_status(trainer(), first.status), pods=pods_of(OTHER), agents=[agent(OTHER)])
    )
    assert (gone.status.failures, gone.status.disruptions) == (0, 0)
    assert CreatePod not in kinds(gone)
    last = decide(
        observed(
            of=with_status(trainer(), gone.status), pods=pods_of(OTHER), agents=[agent(OTHER, **exited(0))]
        )
    )
    assert last.status.phase is Phase.SUCCEEDED


def test_a_pod_that_ended_well_while_nobody_listened_is_a_success():
    """ST2, AG7: the agents left before the operator was back; their pods say how."""
    decision = decide(
        observed(
            of=with_status(trainer(), active("worker:0-1", world=2)),
            pods=pods_of(WORKER, OTHER, phase="Succeeded"),
        )
    )
    assert decision.status.phase is Phase.SUCCEEDED


def test_exit_0_of_an_older_epoch_is_no_success():
    """ST6: members of the active epoch only."""
    of = with_status(trainer(workers=1), active("worker:0", world=1, epoch=3))
    decision = decide(observed(of=of, pods=pods_of(WORKER), agents=[agent(epoch=2, prepared=3, **exited(0))]))
    assert decision.status.phase is not Phase.SUCCEEDED


def test_nobody_succeeds_while_an_epoch_is_prepared():
    """ST6."""
    of = with_status(trainer(workers=1), active("worker:0", world=1, epoch=2))
    of.status.membership.phase = MembershipPhase.PREPARING
    decision = decide(observed(of=of, pods=pods_of(WORKER), agents=[agent(**exited(0))]))
    assert decision.status.phase is not Phase.SUCCEEDED


# -- deadline


@pytest.mark.parametrize(("seconds", "failed"), [(0, False), (29.9, False), (30, True), (1000, True)])
def test_the_deadline_counts_from_the_start_with_no_event_at_all(seconds, failed):
    """TR03."""
    of = with_spec(with_status(trainer(), active("worker:0-1", world=2)), active_deadline_seconds=30)
    agents = [agent(), agent(OTHER)]
    decision = decide(observed(of=of, pods=pods_of(WORKER, OTHER), agents=agents, now=after(seconds)))
    assert (decision.status.phase is Phase.FAILED) is failed
    if failed:
        assert decision.status.reason == "DeadlineExceeded"
        assert decision.status.completion_time == after(seconds)
    else:
        assert decision.wake <= 30 - seconds


def test_the_deadline_starts_again_when_a_trainer_resumes():
    """TR03."""
    of = with_spec(
        with_status(trainer(), active("worker:0-1", world=2)), active_deadline_seconds=30, suspend=True
    )
    of.status.membership.phase = MembershipPhase.PREPARING
    rested = decide(observed(of=of, now=after(20))).status
    assert (rested.phase, rested.start_time) == (Phase.SUSPENDED, None)
    again = with_status(with_spec(of, suspend=False), rested)
    resumed = decide(observed(of=again, now=after(1000))).status
    assert resumed.start_time == after(1000)
    assert resumed.phase is not Phase.FAILED


# -- cleaning up


def finished(seconds=0, *, pods=(), phase=Phase.SUCCEEDED, checkpoints=(), **spec):
    status = active("worker:0-1", world=2, phase=phase, completion_time=START)
    of = with_spec(with_status(trainer(), status), **spec)
    return decide(observed(of=of, pods=pods, checkpoints=checkpoints, now=after(seconds)))


@pytest.mark.parametrize(
    ("policy", "at_once", "later"),
    [
        (CleanPodPolicy.NONE, [], []),
        (CleanPodPolicy.RUNNING, [], ["t-worker-0"]),
        (CleanPodPolicy.ALL, ["t-worker-1"], ["t-worker-0", "t-worker-1"]),
    ],
)
def test_pods_go_as_the_policy_says_after_agents_had_time_to_end(policy, at_once, later):
    """TR09, TR14."""
    pods = pods_of(WORKER) + pods_of(OTHER, phase="Succeeded")
    assert deletes(finished(0, pods=pods, clean_pod_policy=policy)) == at_once
    assert deletes(finished(11, pods=pods, clean_pod_policy=policy)) == later


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_agents_are_told_to_end(phase):
    """AG7, TR14."""
    assert CloseAgents in kinds(finished(phase=phase))


def test_the_deletion_of_a_pod_is_asked_for_until_it_is_gone():
    """TR04: a delete that the server refused is tried again; the end stays the end."""
    pods = pods_of(WORKER)
    for _ in range(3):
        decision = finished(20, pods=pods, phase=Phase.FAILED)
        assert deletes(decision) == ["t-worker-0"]
        assert decision.status.phase is Phase.FAILED
    assert deletes(finished(20, pods=pods_of(WORKER, terminating=True))) == []


def test_agents_stay_until_the_last_checkpoint_is_decided():
    """AG7, CS11: but not for ever."""
    undecided = (open_checkpoint(),)
    early = finished(30, pods=pods_of(WORKER), checkpoints=undecided)
    assert (CloseAgents in kinds(early), deletes(early)) == (False, [])
    late = finished(61, pods=pods_of(WORKER), checkpoints=undecided)
    assert (CloseAgents in kinds(late), deletes(late)) == (True, ["t-worker-0"])


@pytest.mark.parametrize(
    ("ttl", "seconds", "gone"), [(None, 1e6, False), (0, 0, True), (60, 59, False), (60, 60, True)]
)
def test_a_trainer_is_deleted_when_its_time_to_live_is_over(ttl, seconds, gone):
    """TR02, TR05."""
    decision = finished(seconds, ttl_seconds_after_finished=ttl)
    assert (DeleteTrainer in kinds(decision)) is gone
    if ttl and not gone:
        assert decision.wake == ttl - seconds


def test_what_was_deleted_comes_back_in_no_later_period():
    """TR05."""
    for seconds in (0, 60, 120, 180):
        assert not {CreatePod, CreateCheckpoint} & kinds(finished(seconds, ttl_seconds_after_finished=60))


# -- suspend and resume


def running(**options):
    cluster = Cluster(trainer(epochs=50, **options))
    until(cluster, lambda: cluster.trainer.status.global_step >= 6)
    return cluster


def until(cluster, reached, *, at_most=150):
    cluster.run_until(reached, at_most=at_most)


def suspend(cluster, value=True):
    cluster.trainer = with_spec(cluster.trainer, suspend=value)


@pytest.mark.parametrize("servers", [0, 1])
def test_suspending_takes_a_checkpoint_first_and_then_every_pod(servers):
    """TR34, ME7: resumed where it stopped; no step is lost, no failure counted."""
    cluster = running(workers=2, servers=servers)
    suspend(cluster)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED)
    reached = cluster.trainer.status.global_step
    until(cluster, lambda: not cluster.pods)
    assert cluster.trainer.status.last_checkpoint.step == reached
    suspend(cluster, value=False)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.RUNNING)
    status = cluster.trainer.status
    assert (status.rollbacks, status.failures, status.disruptions, status.restarts) == (0, 0, 0, 0)
    assert status.membership.restore_step == reached
    assert cluster.trained[-1][2] >= reached


def test_pausing_and_resuming_again_and_again_uses_up_no_budget():
    """TR13."""
    cluster = running(workers=1, backoff_limit=0)
    for _ in range(3):
        suspend(cluster)
        until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED and not cluster.pods)
        suspend(cluster, value=False)
        until(cluster, lambda: cluster.trainer.status.phase is Phase.RUNNING)
    assert (cluster.trainer.status.failures, cluster.trainer.status.disruptions) == (0, 0)


def test_a_suspended_trainer_writes_nothing_and_keeps_no_pod():
    """TR06, TR17."""
    cluster = running(workers=2)
    suspend(cluster)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED and not cluster.pods)
    before = cluster.trainer.status.dump()
    for _ in range(5):
        cluster.tick(1000)
        decision = cluster.reconcile()
        assert decision.actions == ()
        assert cluster.trainer.status.dump() == before


def test_a_new_leader_hears_the_members_before_it_suspends():
    """RC8, ME7: right after a change of leaders nobody was heard yet, and yet everybody may train."""
    of = with_spec(with_status(trainer(), active("worker:0-1", world=2)), suspend=True)
    young = {"of": of, "pods": pods_of(WORKER, OTHER), "led_for": 1.0}
    decision = decide(observed(**young))
    assert decision.status.phase is not Phase.SUSPENDED
    assert deletes(decision) == []
    assert decision.wake is not None
    ended = [agent(member, **exited(1)) for member in (WORKER, OTHER)]
    assert decide(observed(**young, agents=ended)).status.phase is Phase.SUSPENDED
    assert decide(observed(**{**young, "led_for": 60.0})).status.phase is Phase.SUSPENDED


def test_a_suspend_goes_on_from_the_checkpoint_of_the_change_that_it_replaces():
    """ME7: the members may wait at its step, so that another one would never be reached."""
    change = PendingChange(reason="Scale", since=START, checkpoint="t-c00001")
    status = active("worker:0-1", world=2, pending_change=change)
    of = with_spec(with_status(trainer(workers=3), status), suspend=True)
    decision = decide(
        observed(
            of=of,
            pods=pods_of(WORKER, OTHER),
            agents=[agent(), agent(OTHER)],
            checkpoints=(open_checkpoint(),),
        )
    )
    found = decision.status.pending_change
    assert (found.reason, found.checkpoint) == ("Suspend", "t-c00001")


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.SUSPENDED])
def test_a_trainer_at_rest_makes_no_checkpoint_that_was_still_to_be_made(phase):
    """TR05: its leader died between the status that names it and its creation."""
    flight = CheckpointInFlight(name="t-c00001", since=START)
    status = active("worker:0", world=1, phase=phase, completion_time=START, checkpoint_in_flight=flight)
    of = with_spec(with_status(trainer(workers=1), status), suspend=phase is Phase.SUSPENDED)
    decision = decide(observed(of=of))
    assert CreateCheckpoint not in kinds(decision)
    assert decision.status.checkpoint_in_flight is None


def test_time_to_live_does_not_touch_a_suspended_trainer():
    """TR06."""
    cluster = running(workers=1)
    cluster.trainer = with_spec(cluster.trainer, ttl_seconds_after_finished=1)
    suspend(cluster)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED and not cluster.pods)
    cluster.tick(1000)
    assert DeleteTrainer not in kinds(cluster.reconcile())


def test_a_resume_waits_until_the_last_old_pod_is_gone():
    """TR34: a new pod never meets its own predecessor."""
    status = active("", world=0, epoch=2, phase=Phase.SUSPENDED)
    status.membership.phase, status.membership.reason = MembershipPhase.PREPARING, "Resumed"
    old = pods_of(WORKER, terminating=True)
    waiting = decide(observed(of=with_status(trainer(), status), pods=old))
    assert (waiting.status.phase, CreatePod in kinds(waiting)) == (Phase.SUSPENDED, False)
    resumed = decide(observed(of=with_status(trainer(), waiting.status)))
    assert CreatePod in kinds(resumed)


def test_a_suspend_that_is_withdrawn_at_once_runs_to_its_end_and_then_resumes():
    """TR34: nothing is left half torn down, and no step is lost."""
    cluster = running(workers=2)
    before = {view.uid for _, view in cluster.pods.values()}
    suspend(cluster)
    cluster.reconcile()
    assert cluster.trainer.status.pending_change.reason == "Suspend"
    suspend(cluster, value=False)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.RUNNING)
    assert before.isdisjoint(view.uid for _, view in cluster.pods.values())
    status = cluster.trainer.status
    assert (status.rollbacks, status.failures, status.disruptions) == (0, 0, 0)


def test_a_pod_whose_delete_failed_is_deleted_again_by_the_resume_that_waits_for_it():
    """TR04, TR34: else the resume waits for ever."""
    status = active("", world=0, epoch=2, phase=Phase.SUSPENDED)
    status.membership.phase, status.membership.reason = MembershipPhase.PREPARING, "Resumed"
    waiting = decide(observed(of=with_status(trainer(), status), pods=pods_of(WORKER)))
    assert deletes(waiting) == ["t-worker-0"]


def test_what_was_changed_with_the_resume_is_what_the_new_pods_get():
    """TR35: nodeSelector and labels come in the request that resumes, as a queue sends them."""
    cluster = running(workers=1)
    suspend(cluster)
    until(cluster, lambda: cluster.trainer.status.phase is Phase.SUSPENDED and not cluster.pods)
    spec = cluster.trainer.spec.dump()
    spec["suspend"] = False
    spec["topology"]["roles"] = {"worker": {"nodeSelector": {"pool": "spot"}}}
    spec["topology"]["podSpec"]["labels"] = {"team": "vision"}
    cluster.trainer = cluster.trainer.model_copy(update={"spec": TrainerSpec.read(spec)})
    until(cluster, lambda: cluster.pods)
    made = pod_manifest(cluster.trainer, WORKER, 0, Settings())
    assert made["spec"]["nodeSelector"] == {"pool": "spot"}
    assert {"team": "vision", "trainer-name": "t"}.items() <= made["metadata"]["labels"].items()


def test_a_trainer_that_was_created_suspended_makes_no_pod():
    """TR34."""
    decision = decide(observed(of=with_spec(trainer(), suspend=True)))
    assert decision.status.phase is Phase.SUSPENDED
    assert CreatePod not in kinds(decision)


def test_a_suspend_without_a_store_waits_for_nothing():
    """ME7."""
    of = with_spec(with_status(trainer(), active("worker:0-1", world=2)), suspend=True, checkpoint=None)
    decision = decide(observed(of=of, pods=pods_of(WORKER, OTHER), agents=[agent(), agent(OTHER)]))
    assert decision.status.phase is Phase.SUSPENDED
    assert [orders[0].kind for orders in decision.directives.values()] == ["Drain", "Drain"]


def ending(*agents, workers=2, **spec):
    """What is decided of a Trainer whose epoch has two workers, while a third may wait to join."""
    of = with_spec(with_status(trainer(workers=workers), active("worker:0-1", world=2)), **spec)
    third = MemberId("worker", 2)
    pods = pods_of(WORKER, OTHER, *([third] if workers > 2 else []))
    joining = [agent(third, proc="none", phase="init", epoch=0)] if workers > 2 else []
    return decide(
        observed(of=of, pods=pods, agents=[*agents, *joining], settings=Settings(voluntary_interval=0))
    )


DONE = [agent(**exited(0)), agent(OTHER, **exited(0))]


@pytest.mark.parametrize("change", [{"suspend": True}, {"workers": 3}], ids=["suspend", "scale"])
def test_a_training_that_is_done_ends_whatever_else_was_asked_for(change):
    """ME7, ME9: a change would take it back to the last checkpoint, and train again what is done."""
    decision = ending(*DONE, **change)
    assert decision.status.phase is Phase.SUCCEEDED
    assert decision.status.rollbacks == 0


def test_nobody_is_added_to_a_training_that_ends():
    """ME7, ME9: one worker is done, so no checkpoint of all could be taken any more."""
    decision = ending(agent(**exited(0)), agent(OTHER), workers=3)
    assert decision.status.pending_change is None
    assert decision.status.membership.epoch == 1
