"""Weights: one commit for all members, and what the condition says of their files."""

from dataclasses import replace
from datetime import timedelta

import pytest

from simulation.cluster import START, Cluster, rescale, trainer
from simulation.views import OTHER, SERVER, WORKER, observed, pod, with_spec, with_status
from trainer_operator.agent.hub.errors import Passing
from trainer_operator.api.profile import RetryPolicy
from trainer_operator.api.status import Phase, TrainerStatus, WeightsStatus
from trainer_operator.api.trainer import Scheduling, Weights
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.podgroup import VOLCANO, group_spec
from trainer_operator.trainer.pods import pod_manifest
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.weightfiles import PASSING

COMMIT, NEWER = "0123456789abcdef0123456789abcdef01234567", "f" * 40
PIN = f"org/model main {COMMIT}"
MISMATCH = f"HashMismatch: a.safetensors of org/model has SHA-256 {'1' * 64}, expected {'2' * 64}; it was fetched twice"


def with_weights(of=None, **fields):
    weights = {"repo": "org/model", "mountPath": "/weights", **fields}
    return with_spec(of or trainer(), weights=Weights.read({"huggingFace": weights}))


def run(cluster, passes=3):
    for _ in range(passes):
        cluster.reconcile()
        cluster.tick()
    return cluster


def change_pod(cluster, member, attempt=0, **changes):
    name = f"{member}-a{attempt}"
    owner, view = cluster.pods[name]
    cluster.pods[name] = (owner, replace(view, **changes))


def pin(cluster, member=WORKER, *, pin=PIN):
    """Let the pod of the first member say what its init container found."""
    cluster.reconcile()
    change_pod(cluster, member, weights_pin=pin)
    return cluster


def fail(cluster, member, problem=MISMATCH, *, attempt=0, code=65):
    change_pod(
        cluster,
        member,
        attempt,
        phase="Failed",
        ready=False,
        weights_problem=problem,
        exit_code=code,
        message=problem,
    )


def running(**fields):
    return run(pin(Cluster(with_weights(**fields))), 8)


def condition(cluster):
    found = [each for each in cluster.trainer.status.conditions if each.type == "WeightsVerified"]
    return (str(found[0].status), found[0].reason, found[0].message) if found else None


def events(cluster, *reasons):
    return [event for event in cluster.events if event[0] in reasons]


def test_only_the_first_member_starts_until_its_pod_has_pinned_the_revision():
    """HF1: a branch that moves between two pods cannot mix weights."""
    cluster = Cluster(with_weights())
    cluster.reconcile()
    cluster.reconcile()
    assert sorted(cluster.pods) == ["worker-0-a0"]
    assert condition(cluster) == ("Unknown", "Pinning", "the commit of org/model main is not known yet")
    change_pod(cluster, WORKER, weights_pin=PIN)
    cluster.reconcile()
    assert sorted(cluster.pods) == ["worker-0-a0", "worker-1-a0"]
    kept = cluster.trainer.status.weights
    assert (kept.repo, kept.revision, kept.commit) == ("org/model", "main", COMMIT)
    sentence = f"org/model main is commit {COMMIT}; all members get this one"
    assert events(cluster, "WeightsPinned") == [("WeightsPinned", sentence)]
    assert condition(cluster) == ("Unknown", "Fetching", f"0 of 2 members have org/model at commit {COMMIT}")


def test_the_first_member_may_be_a_server():
    """HF1: roles wait for each other in one order."""
    cluster = Cluster(with_weights(trainer(servers=1)))
    cluster.reconcile()
    assert sorted(cluster.pods) == [f"{SERVER}-a0"]


def test_a_commit_is_pinned_without_asking_and_nobody_waits():
    """HF1."""
    cluster = Cluster(with_weights(revision=COMMIT))
    cluster.reconcile()
    assert sorted(cluster.pods) == ["worker-0-a0", "worker-1-a0"]
    assert cluster.trainer.status.weights.commit == COMMIT
    assert events(cluster, "WeightsPinned") == []


@pytest.mark.parametrize(
    "said", ["", "main", f"org/model main {'g' * 40}", f"org/model main {COMMIT}0", f"{COMMIT}"]
)
def test_only_a_whole_pin_is_believed(said):
    """TN5: pod status has other writers."""
    cluster = run(pin(Cluster(with_weights()), pin=said))
    assert cluster.trainer.status.weights is None
    assert sorted(cluster.pods) == ["worker-0-a0"]


def test_all_members_with_their_files_make_the_condition_true_and_one_event():
    """CR7, EV1."""
    cluster = running()
    sentence = f"all members have org/model at commit {COMMIT}, hash by hash"
    assert condition(cluster) == ("True", "Verified", sentence)
    assert events(cluster, "WeightsVerified") == [("WeightsVerified", sentence)]


def test_an_agent_that_is_heard_before_its_node_says_so_has_its_files():
    """CR7: else a short training could end with a condition that says it never had them."""
    cluster = pin(Cluster(with_weights()))
    cluster.reconcile()
    cluster.tick()
    change_pod(cluster, OTHER, phase="Pending")
    cluster.reconcile()
    assert condition(cluster)[:2] == ("True", "Verified")


def test_a_replacement_gets_the_commit_of_the_others():
    """HF1: also when the branch has moved, for the operator asks nobody."""
    cluster = running()
    assert cluster.delete_pod(OTHER)
    run(cluster, 6)
    assert f"{OTHER}-a1" in cluster.pods
    made = pod_manifest(cluster.trainer, OTHER, 1, Settings())
    assert f"--commit={COMMIT}" in made["spec"]["initContainers"][-1]["command"]
    assert condition(cluster)[0] == "True"


def test_an_edit_of_the_spec_counts_once_no_pod_is_left():
    """HF1: members with old and new weights would not be one training."""
    cluster = running()
    cluster.trainer = with_weights(cluster.trainer, revision=NEWER)
    run(cluster, 4)
    assert cluster.trainer.status.weights.commit == COMMIT
    cluster.trainer = with_spec(cluster.trainer, suspend=True)
    run(cluster, 12)
    assert cluster.trainer.status.phase is Phase.SUSPENDED
    assert condition(cluster) == ("Unknown", "Suspended", "")
    cluster.trainer = with_spec(cluster.trainer, suspend=False)
    run(cluster, 8)
    assert cluster.trainer.status.weights.commit == NEWER
    assert condition(cluster)[0] == "True"


def test_a_resume_keeps_the_commit():
    """HF1: a Trainer has one, for its life."""
    cluster = running()
    for suspend in (True, False):
        cluster.trainer = with_spec(cluster.trainer, suspend=suspend)
        run(cluster, 12)
    assert cluster.trainer.status.weights.commit == COMMIT
    assert len(events(cluster, "WeightsPinned")) == 1


def test_a_file_that_is_wrong_keeps_training_from_starting_and_the_condition_says_which():
    """EC9, HF3: until it is right in the pods that follow."""
    cluster = pin(Cluster(with_weights()))
    cluster.reconcile()
    cluster.tick()
    fail(cluster, OTHER)
    cluster.reconcile()
    sentence = f"pod {OTHER}-a0: {MISMATCH.removeprefix('HashMismatch: ')}"
    assert condition(cluster) == ("False", "HashMismatch", sentence)
    assert cluster.trainer.status.failures == 1
    assert cluster.trainer.status.recovery.reason == "HashMismatch"
    ((_, told),) = events(cluster, "HashMismatch")
    assert told.startswith(sentence)
    while f"{OTHER}-a1" not in cluster.pods:
        run(cluster, 1)
        assert condition(cluster)[0] == "False"
    run(cluster, 8)
    assert condition(cluster)[0] == "True"
    assert len(events(cluster, "WeightsVerified")) == 1


def test_a_scale_up_or_a_replacement_under_way_does_not_take_the_condition_back():
    """CR7: it says what was last found out."""
    cluster = running()
    rescale(cluster, 3)
    cluster.reconcile()
    cluster.reconcile()
    assert condition(cluster)[0] == "True"


def test_weights_that_never_come_end_the_trainer_with_the_sentence():
    """EC9, RC3: by the budget of failures, like any other."""
    cluster = Cluster(with_weights(trainer(backoff_limit=0)))
    cluster.reconcile()
    cluster.tick()
    fail(cluster, WORKER, "AccessDenied: org/model is gated: name a Secret with HF_TOKEN")
    cluster.reconcile()
    status = cluster.trainer.status
    assert (status.phase, status.reason) == (Phase.FAILED, "BackoffLimitExceeded")
    assert status.message.endswith(f"pod {WORKER}-a0: org/model is gated: name a Secret with HF_TOKEN")
    assert condition(cluster)[:2] == ("False", "AccessDenied")
    cluster.reconcile()
    assert condition(cluster)[:2] == ("False", "AccessDenied")


@pytest.mark.parametrize(
    ("problem", "phase"),
    [(MISMATCH, Phase.FAILED), ("HubUnreachable: no answer", Phase.RECOVERING)],
    ids=["permanent", "passing"],
)
def test_what_may_go_by_itself_is_retried_where_exit_codes_decide(problem, phase):
    """RC4: restartPolicy ExitCode."""
    of = with_spec(trainer(), retry_policy=RetryPolicy.read({"restartPolicy": "ExitCode", "backoffLimit": 5}))
    cluster = running_with(of)
    assert cluster.delete_pod(OTHER)
    while f"{OTHER}-a1" not in cluster.pods:
        run(cluster, 1)
    fail(cluster, OTHER, problem, attempt=1)
    cluster.reconcile()
    assert cluster.trainer.status.phase is phase


def running_with(of):
    return run(pin(Cluster(with_weights(of))), 8)


def test_members_that_wait_for_the_pin_are_no_reason_to_give_nodes_back():
    """GS2: it is not the scheduler that they wait for."""
    waiting = TrainerStatus(start_time=START - timedelta(hours=1))
    of = with_status(with_spec(with_weights(), pending_timeout_seconds=5), waiting)
    start = [(WORKER, pod(phase="Pending", created="2025-12-31T23:00:00Z"))]
    after = decide(observed(of=of, pods=start))
    assert after.status.gang is None
    assert [action.reason for action in after.actions if hasattr(action, "reason")] == []


def test_a_scheduler_that_places_gangs_places_the_first_member_alone_until_the_revision_is_pinned():
    """HF1, GS1: it would wait for members that have no pods yet, and they for what the first one says."""
    of = with_spec(with_weights(trainer(workers=3)), scheduling=Scheduling(scheduler_name="volcano"))
    assert group_spec(of, VOLCANO)["minMember"] == 1
    status = of.status.model_copy(
        update={"weights": WeightsStatus(repo="org/model", revision="main", commit=COMMIT)}
    )
    assert group_spec(with_status(of, status), VOLCANO)["minMember"] == 3


def test_the_operator_knows_which_words_of_the_containers_are_passing():
    """RC4: it does not import the agent, so both lists are compared here."""
    assert {each.__name__ for each in Passing.__subclasses__()} == PASSING


def test_a_pass_over_unchanged_weights_changes_nothing():
    """CR7, ST7: an idle Trainer costs no write."""
    cluster = running()
    cluster.reconcile()
    before = cluster.trainer.status.dump()
    decision = decide(cluster.observed())
    assert decision.status.dump() == before
    assert decision.actions == ()


def test_a_trainer_without_weights_has_no_such_condition():
    """CR7: its status is what it was."""
    cluster = run(Cluster(trainer()), 8)
    assert condition(cluster) is None
    assert "weights" not in cluster.trainer.status.dump()
