"""One decision: what comes first, what is written before it is done, and what is never done again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from simulation.cluster import START, Cluster, trainer
from simulation.views import OTHER, WORKER, active, agent, exited, observed, pod, with_spec, with_status
from trainer_operator.api.meta import Role
from trainer_operator.api.profile import RestartPolicy, RetryPolicy, TrainingProfileSpec
from trainer_operator.api.status import MemberStatus, Phase, RecoveryStatus, TrainerStatus
from trainer_operator.api.trainer import MANAGER, FailureRule, TrainerSpec
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.decide import decide, is_ours
from trainer_operator.trainer.draft import CreatePod, DeletePod, EmitEvent
from trainer_operator.trainer.views import NodeView, Settings


def two_workers(status=None, **spec):
    made = with_status(trainer(workers=2), status or active("worker:0-1", world=2, phase=Phase.RUNNING))
    return with_spec(made, **spec) if spec else made


def pods_of(*members, **changes):
    return [(member, pod(member, **changes)) for member in members]


def creates(decision):
    return [action for action in decision.actions if isinstance(action, CreatePod)]


def deletes(decision):
    return [action.name for action in decision.actions if isinstance(action, DeletePod)]


def events(decision):
    return [action.reason for action in decision.actions if isinstance(action, EmitEvent)]


# -- whose it is


@pytest.mark.parametrize(
    ("manager", "ours"), [(None, True), ("", True), (MANAGER, True), ("kueue.x-k8s.io/multikueue", False)]
)
def test_a_trainer_that_names_another_manager_is_not_ours(manager, ours):
    """TR36."""
    assert is_ours(with_spec(trainer(), managed_by=manager)) is ours


# -- the beginning


def test_a_new_trainer_gets_a_pod_for_every_member():
    decision = decide(observed(of=trainer(workers=2, servers=1)))
    assert creates(decision) == [
        CreatePod(MemberId("ps", 0), 0),
        CreatePod(WORKER, 0),
        CreatePod(OTHER, 0),
    ]
    assert decision.status.phase is Phase.PENDING
    assert decision.status.start_time == START
    assert decision.directives == {}


def test_a_pod_that_is_there_is_not_created_again():
    """R1."""
    decision = decide(observed(of=trainer(workers=2), pods=pods_of(WORKER, phase="Pending", node="")))
    assert creates(decision) == [CreatePod(OTHER, 0)]


BAD_RULES = (FailureRule.read({"messagePattern": "(", "action": "Ignore"}),)


def rules_condition(decision):
    found = [each for each in decision.status.conditions if each.type == "FailureRulesValid"]
    return [(each.status, each.message) for each in found]


def test_a_pattern_that_is_none_keeps_a_trainer_from_its_start_with_one_sentence():
    """TR30: the API server cannot tell, so the operator says it before anything is charged."""
    refused = with_spec(trainer(), failure_rules=BAD_RULES)
    first = decide(observed(of=refused))
    assert (creates(first), events(first), first.status.start_time) == ([], ["InvalidSpec"], None)
    assert first.status.message.startswith(
        "spec.failureRules[0].messagePattern '(' is no regular expression: "
    )
    assert first.status.message.endswith("; correct it to start")
    again = decide(observed(of=with_status(refused, first.status)))
    assert events(again) == []
    corrected = decide(observed(of=with_status(trainer(), first.status)))
    assert len(creates(corrected)) == 2
    assert rules_condition(corrected) == [("True", "")]


def test_a_pattern_that_is_spoiled_while_training_runs_is_said_and_stops_no_recovery():
    """TR30, DT2."""
    before = active("worker:0-1", world=2, phase=Phase.RUNNING)
    running = with_status(with_spec(trainer(workers=2), failure_rules=BAD_RULES), before)
    agents = [agent(WORKER, **exited(1)), agent(OTHER)]
    decision = decide(observed(of=running, pods=pods_of(WORKER, OTHER), agents=agents))
    ((word, message),) = rules_condition(decision)
    assert word == "False"
    assert message.endswith("; until it is corrected this rule never applies")
    assert decision.status.restarts == 1
    assert rules_condition(decide(observed(of=trainer()))) == [], "nothing is said where nothing was wrong"


def test_a_missing_profile_is_said_once_and_waited_for():
    """TN7: nothing starts with half of its settings."""
    waiting = with_spec(trainer(), profile="shared")
    first = decide(observed(of=waiting))
    assert (creates(first), events(first), first.status.start_time) == ([], ["ProfileNotFound"], None)
    assert "shared" in first.status.message
    again = decide(observed(of=with_status(waiting, first.status)))
    assert again.actions == ()
    assert again.status.dump() == first.status.dump()
    profile = TrainingProfileSpec.read({"nodeSelector": {"pool": "gpu"}})
    found = decide(observed(of=with_status(waiting, first.status), profile=profile))
    assert creates(found)
    assert found.status.profile_snapshot.spec == profile
    assert found.status.message == ""


def test_a_profile_that_changes_later_does_not_touch_a_running_trainer():
    """TN7."""
    begun = decide(observed(of=with_spec(trainer(), profile="shared"), profile=TrainingProfileSpec()))
    edited = TrainingProfileSpec.read({"nodeSelector": {"pool": "other"}})
    for later in (edited, None):
        after = decide(
            observed(of=with_status(with_spec(trainer(), profile="shared"), begun.status), profile=later)
        )
        assert after.status.profile_snapshot.spec == TrainingProfileSpec()


# -- failures: written first, then acted on


def test_the_next_attempt_is_in_the_status_of_the_decision_that_creates_its_pod():
    """RC4, RC8: counters are written before the restart."""
    crashed = pods_of(WORKER, phase="Failed", exit_code=1) + pods_of(OTHER)
    decision = decide(observed(of=two_workers(), pods=crashed, agents=[agent(), agent(OTHER)], chance=0.0))
    assert CreatePod(WORKER, 1) in creates(decision)
    (entry,) = decision.status.members
    assert (entry.role, entry.index, entry.attempt, entry.failures) == ("worker", 0, 1, 1)
    assert (decision.status.failures, decision.status.restarts) == (1, 1)
    assert deletes(decision) == ["t-worker-0"]


def test_the_delay_is_in_the_status_before_anything_restarts():
    """RC1, RC8: the next leader waits for the same moment."""
    recovery = RecoveryStatus(count=4, not_before=START, detected_at=START, step=10)
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, recovery=recovery, failures=4)
    gone = pods_of(OTHER)
    failed = pods_of(WORKER, phase="Failed", exit_code=1)
    decision = decide(
        observed(of=two_workers(status), pods=failed + gone, agents=[agent(), agent(OTHER)], chance=1.0)
    )
    assert creates(decision) == []
    assert decision.status.recovery.count == 5
    assert decision.status.recovery.not_before == START + timedelta(seconds=16)
    assert decision.wake <= 16
    moment = START + timedelta(seconds=16)
    later = decide(observed(of=two_workers(decision.status), pods=gone, agents=[agent(OTHER)], now=moment))
    assert creates(later) == [CreatePod(WORKER, 1)]
    assert later.status.failures == decision.status.failures


def test_the_same_failure_is_counted_once_however_often_it_is_seen():
    """RC4, TR44."""
    status = two_workers().status
    seen = {"pods": pods_of(WORKER, OTHER), "agents": [agent(**exited(1)), agent(OTHER)]}
    for _ in range(5):
        decision = decide(observed(of=two_workers(status), **seen))
        status = TrainerStatus.read(decision.status.dump())
    assert (status.failures, status.restarts) == (1, 1)


def test_members_that_fail_together_are_one_restart():
    """RC1."""
    both = [agent(**exited(1)), agent(OTHER, **exited(9))]
    decision = decide(observed(of=two_workers(), pods=pods_of(WORKER, OTHER), agents=both))
    assert (decision.status.failures, decision.status.restarts) == (1, 1)
    assert decision.status.recovery.members == ["worker-0", "worker-1"]
    assert len([reason for reason in events(decision) if reason == "ProcessExited"]) == 1


def test_a_trainer_fails_with_the_failure_that_exceeds_its_limit():
    """RC3, TR01, TR02: Failed once, with its time, and no restart is counted."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, failures=2, restarts=2)
    of = two_workers(status, retry_policy=RetryPolicy(backoff_limit=2))
    decision = decide(
        observed(of=of, pods=pods_of(WORKER, OTHER), agents=[agent(**exited(137)), agent(OTHER)])
    )
    ended = decision.status
    assert (ended.phase, ended.reason, ended.failures, ended.restarts) == (
        Phase.FAILED,
        "BackoffLimitExceeded",
        3,
        2,
    )
    assert ended.completion_time == START
    assert creates(decision) == []
    assert decision.directives == {}


def test_the_limit_of_the_profile_holds_unless_the_trainer_says_otherwise():
    """TR33."""
    profile = TrainingProfileSpec.read({"retryPolicy": {"backoffLimit": 0}})
    crash = {"pods": pods_of(WORKER, OTHER), "agents": [agent(**exited(1)), agent(OTHER)]}
    of = with_spec(two_workers(), profile="shared", retry_policy=None)
    assert decide(observed(of=of, profile=profile, **crash)).status.phase is Phase.FAILED
    own = with_spec(of, retry_policy=RetryPolicy(backoff_limit=3))
    assert decide(observed(of=own, profile=profile, **crash)).status.phase is not Phase.FAILED


def test_ten_preemptions_leave_a_limit_of_one_untouched():
    """FT18, RC3, TR11."""
    status = two_workers().status
    for attempt in range(10):
        preempted = pods_of(
            WORKER, attempt=attempt, phase="Failed", disrupted=True, reason="PreemptionByScheduler"
        )
        of = two_workers(status, retry_policy=RetryPolicy(backoff_limit=1))
        decision = decide(observed(of=of, pods=preempted + pods_of(OTHER), agents=[agent(OTHER)]))
        status = decision.status
    assert (status.disruptions, status.failures) == (10, 0)
    assert status.phase is not Phase.FAILED


def test_disruptions_end_a_trainer_at_their_own_limit():
    """FT18, RC3."""
    status = active("worker:0-1", world=2, disruptions=5)
    of = two_workers(status, retry_policy=RetryPolicy(backoff_limit=1, max_disruptions=5))
    decision = decide(observed(of=of, pods=pods_of(WORKER, terminating=True) + pods_of(OTHER)))
    assert (decision.status.phase, decision.status.reason) == (Phase.FAILED, "MaxDisruptionsExceeded")


def test_a_permanent_exit_fails_at_once():
    """RC7, TR02."""
    of = two_workers(retry_policy=RetryPolicy(restart_policy=RestartPolicy.EXIT_CODE))
    decision = decide(observed(of=of, pods=pods_of(WORKER, OTHER), agents=[agent(**exited(1)), agent(OTHER)]))
    assert (decision.status.phase, decision.status.reason) == (Phase.FAILED, "PermanentExitCode")


def test_an_ignored_failure_restarts_without_counting():
    """DT2."""
    rules = (FailureRule.read({"action": "Ignore", "exitCodes": [1]}),)
    of = two_workers(failure_rules=rules, retry_policy=RetryPolicy(backoff_limit=0))
    decision = decide(observed(of=of, pods=pods_of(WORKER, OTHER), agents=[agent(**exited(1)), agent(OTHER)]))
    assert decision.status.failures == 0
    assert decision.status.membership.epoch == 2


# -- series of restarts


@pytest.mark.parametrize(
    ("after", "step", "count"),
    [(599, 20, 4), (600, 20, 1), (600, 10, 4), (10_000, 10, 4), (0, 20, 4)],
    ids=["too soon", "stable", "no progress", "no progress ever", "at once"],
)
def test_a_series_ends_after_a_stable_time_with_progress(after, step, count):
    """RC2."""
    recovery = RecoveryStatus(count=3, detected_at=START, not_before=START, step=10)
    status = active("worker:0-1", world=2, recovery=recovery, global_step=step, phase=Phase.RUNNING)
    decision = decide(
        observed(
            of=two_workers(status),
            pods=pods_of(WORKER, OTHER),
            agents=[agent(**exited(1)), agent(OTHER)],
            now=START + timedelta(seconds=after),
        )
    )
    assert decision.status.recovery.count == count


def test_a_long_wait_needs_a_longer_stable_time():
    """RC2: twice the last delay."""
    recovery = RecoveryStatus(count=3, detected_at=START - timedelta(seconds=50), not_before=START, step=10)
    status = active("worker:0-1", world=2, recovery=recovery, global_step=20)
    policy = RetryPolicy.read({"backoff": {"resetAfterSeconds": 10}})
    for seconds, count in ((99, 4), (100, 1)):
        decision = decide(
            observed(
                of=two_workers(status, retry_policy=policy),
                pods=pods_of(WORKER, OTHER),
                agents=[agent(**exited(1)), agent(OTHER)],
                now=START + timedelta(seconds=seconds),
            )
        )
        assert decision.status.recovery.count == count


def test_a_disruption_does_not_lengthen_the_series():
    """RC3."""
    recovery = RecoveryStatus(count=3, detected_at=START, not_before=START, step=10)
    status = active("worker:0-1", world=2, recovery=recovery)
    decision = decide(
        observed(of=two_workers(status), pods=pods_of(WORKER, terminating=True) + pods_of(OTHER), chance=0.9)
    )
    assert decision.status.recovery.count == 3
    assert decision.status.recovery.not_before - START <= timedelta(seconds=0.5)


# -- pods of other attempts


def test_a_replacement_does_not_wait_for_a_pod_that_will_not_go():
    """ME4, TR12, ND1."""
    status = active("worker:0-1", world=2)
    status.members.append(MemberStatus(role=Role.WORKER, index=0, attempt=1, handled="0/pod"))
    stuck = pods_of(WORKER, attempt=0, terminating=True)
    decision = decide(observed(of=two_workers(status), pods=stuck + pods_of(OTHER), agents=[agent(OTHER)]))
    assert creates(decision) == [CreatePod(WORKER, 1)]
    assert deletes(decision) == [], "it is being deleted already"


def test_a_pod_of_an_older_attempt_that_came_back_is_deleted_and_changes_nothing_else():
    """DT5, TR25, ND2."""
    status = active("worker:0-1", world=2, phase=Phase.RUNNING)
    status.members.append(MemberStatus(role=Role.WORKER, index=0, attempt=1))
    pods = pods_of(WORKER, attempt=0) + pods_of(WORKER, attempt=1) + pods_of(OTHER)
    agents = [agent(attempt=1, pod="pod-worker-0-1"), agent(OTHER)]
    decision = decide(observed(of=two_workers(status), pods=pods, agents=agents))
    assert deletes(decision) == ["t-worker-0"]
    assert (decision.status.failures, decision.status.disruptions, decision.status.restarts) == (0, 0, 0)


def test_a_lost_member_moves_on_and_its_node_is_left_alone():
    """DT3, ND1, ND2: an ordinary delete, and a replacement under the next name."""
    lost = observed(
        of=two_workers(),
        pods=pods_of(WORKER, OTHER),
        agents=[agent(age=11), agent(OTHER)],
        nodes={"node-worker-0": NodeView(ready=False)},
        chance=0.0,
    )
    decision = decide(lost)
    assert creates(decision) == [CreatePod(WORKER, 1)]
    assert deletes(decision) == ["t-worker-0"]
    assert decision.status.disruptions == 1
    assert [entry.name for entry in decision.status.excluded_nodes] == ["node-worker-0"]


def test_silence_is_looked_at_again_when_it_could_become_a_loss():
    """DT3, TX5: silence makes no event."""
    decision = decide(
        observed(
            of=two_workers(checkpoint=None),
            pods=pods_of(WORKER, OTHER),
            agents=[agent(age=4.0), agent(OTHER, age=1.0)],
        )
    )
    assert decision.wake == pytest.approx(6.1)


# -- the end is the end


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_finished_trainer_creates_nothing_and_counts_nothing(phase):
    """TR02, TR05: whatever happens to its pods."""
    status = active(
        "worker:0-1", world=2, phase=phase, completion_time=START, failures=1, reason="Because", message="why"
    )
    for pods, agents in (
        ([], []),
        (pods_of(WORKER, phase="Failed", exit_code=1), [agent(**exited(1))]),
        (pods_of(WORKER, OTHER), [agent(), agent(OTHER)]),
    ):
        decision = decide(
            observed(of=two_workers(status), pods=pods, agents=agents, now=START + timedelta(seconds=99))
        )
        assert creates(decision) == []
        assert events(decision) == []
        assert decision.directives == {}
        after = decision.status
        assert (after.phase, after.failures, after.restarts, after.reason) == (phase, 1, 0, "Because")
        assert after.completion_time == START


@pytest.mark.parametrize(
    "change", [{"suspend": True}, {"active_deadline_seconds": 1}, {"profile": "missing"}]
)
def test_nothing_in_the_spec_brings_a_finished_trainer_back(change):
    """TR02, TR05."""
    status = active("worker:0-1", world=2, phase=Phase.SUCCEEDED, completion_time=START)
    decision = decide(observed(of=two_workers(status, **change), now=START + timedelta(seconds=99)))
    assert decision.status.phase is Phase.SUCCEEDED
    assert creates(decision) == []


# -- purity


def test_a_decision_leaves_its_input_alone():
    """TR27."""
    crash = observed(of=two_workers(), pods=pods_of(WORKER, OTHER), agents=[agent(**exited(1)), agent(OTHER)])
    before = crash.trainer.dump()
    decide(crash)
    assert crash.trainer.dump() == before


def test_the_same_observation_gives_the_same_decision():
    crash = observed(of=two_workers(), pods=pods_of(WORKER, OTHER), agents=[agent(**exited(1)), agent(OTHER)])
    assert decide(crash) == decide(crash)


def test_a_crash_loop_waits_longer_each_time_and_ends_at_its_limit():
    """LT9, RC1, TR01: exactly limit + 1 attempts."""
    cluster = Cluster(trainer(workers=1, backoff_limit=4), settings=Settings(voluntary_interval=0.0))
    waits, crashes = [], 0
    for _ in range(400):
        cluster.reconcile()
        status = cluster.trainer.status
        if status.phase is Phase.FAILED:
            break
        if cluster.crash(WORKER):
            crashes += 1
            cluster.reconcile()
            recovery = cluster.trainer.status.recovery
            waits.append((recovery.not_before - recovery.detected_at).total_seconds())
        cluster.tick(0.5)
    assert crashes == 5
    assert waits[:4] == [0.0, 1.5, 3.0, 6.0]
    assert cluster.trainer.status.reason == "BackoffLimitExceeded"


def test_the_settings_of_the_operator_hold_for_every_decision():
    observation = observed(
        of=two_workers(), pods=pods_of(WORKER, OTHER), agents=[agent(age=70), agent(OTHER)]
    )
    assert decide(observation).status.disruptions == 1
    patient = replace(observation, settings=Settings(lost_after=60))
    assert decide(patient).status.disruptions == 0


@pytest.mark.parametrize("dropped", sorted(TrainerStatus.model_fields))
def test_a_status_field_that_an_older_crd_drops_deletes_no_pod_and_charges_nothing(dropped):
    """TR32: absent is not zero; the API server prunes what its CRD doesn't know, whichever field that is."""
    cluster = Cluster(trainer(workers=3, servers=1, epochs=50))
    for _ in range(8):
        cluster.reconcile()
        cluster.tick()
    assert cluster.trainer.status.phase is Phase.RUNNING
    status = cluster.trainer.status.dump()
    status.pop(TrainerStatus.model_fields[dropped].alias, None)
    cluster.trainer = with_status(cluster.trainer, TrainerStatus.read(status))
    for _ in range(3):
        assert deletes(cluster.reconcile()) == []
        cluster.tick()
    after = cluster.trainer.status
    assert (after.failures, after.disruptions, after.restarts) == (0, 0, 0)


@pytest.mark.parametrize("dropped", ["workers", "parameterServers", "masters", "replicationFactor"])
def test_a_count_that_an_older_crd_drops_has_its_default_and_is_never_zero_workers(dropped):
    """TR32, TR33."""
    spec = trainer(workers=3).spec.dump()
    spec["topology"].pop(dropped, None)
    topology = TrainerSpec.read(spec).topology
    assert topology.workers >= 1
    assert topology.replication_factor >= 1
