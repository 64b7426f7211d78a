"""What counts as a failure, of which class, and what never does."""

from dataclasses import replace

import pytest

from simulation.views import OTHER, WORKER, agent, exited, observed, pod
from trainer_operator.topology.beat import Exit
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.failures import FailureClass, detect, in_grace, lost_window
from trainer_operator.trainer.views import NodeView, Settings

NODE = "node-worker-0"


def failure(observation, member=WORKER, *, attempt=0, had_pod=True):
    return detect(observation, member, attempt=attempt, had_pod=had_pod)


def silent(seconds, **changes):
    return observed(pods=[(WORKER, pod())], agents=[agent(age=seconds)], **changes)


# -- exits


@pytest.mark.parametrize(
    ("code", "sig", "phase", "kind", "reason", "exit_code"),
    [
        (1, 0, "train", FailureClass.APP, "ProcessExited", 1),
        (0, 9, "train", FailureClass.APP, "ProcessExited", 137),
        (0, 11, "train", FailureClass.APP, "ProcessExited", 139),
        (127, 0, "init", FailureClass.CONFIG, "CannotExecute", 127),
        (126, 0, "init", FailureClass.CONFIG, "CannotExecute", 126),
        (127, 0, "train", FailureClass.APP, "ProcessExited", 127),
    ],
)
def test_an_exit_is_classified_by_code_signal_and_phase(code, sig, phase, kind, reason, exit_code):
    """DT1, DT2."""
    found = failure(
        observed(pods=[(WORKER, pod())], agents=[agent(**exited(code, sig, phase=phase, step=12, run=2))])
    )
    assert (found.kind, found.reason, found.exit_code) == (kind, reason, exit_code)
    assert found.key == "0/boot/2"
    assert not found.pod_gone
    assert "at step 12" in found.message


def test_an_exit_message_carries_the_fingerprint_within_bounds():
    ended = {"proc": "exited", "exit": Exit(code=1, fingerprint="ValueError " + "x" * 1000)}
    found = failure(observed(pods=[(WORKER, pod())], agents=[agent(**ended)]))
    assert "ValueError" in found.message
    assert len(found.message) < 400


def test_each_run_fails_under_a_key_of_its_own():
    """RC4: so that the same failure is counted once and the next one again."""
    keys = {
        failure(observed(pods=[(WORKER, pod())], agents=[agent(**exited(1, run=run, boot=boot))])).key
        for run in (1, 2)
        for boot in ("a", "b")
    }
    assert len(keys) == 4


def test_a_running_member_has_not_failed():
    assert failure(observed(pods=[(WORKER, pod())], agents=[agent()])) is None


# -- pods


@pytest.mark.parametrize(
    ("changes", "heard", "kind", "reason"),
    [
        ({"oom_killed": True, "exit_code": 137}, True, FailureClass.OOM, "OOMKilled"),
        (
            {"disrupted": True, "reason": "PreemptionByScheduler"},
            True,
            FailureClass.DISRUPTION,
            "PreemptionByScheduler",
        ),
        ({"disrupted": True, "oom_killed": True}, True, FailureClass.DISRUPTION, "Disrupted"),
        ({"exit_code": 127}, False, FailureClass.CONFIG, "CannotExecute"),
        ({"exit_code": 127}, True, FailureClass.APP, "PodFailed"),
        ({"exit_code": 1, "reason": "Error"}, True, FailureClass.APP, "Error"),
        ({}, True, FailureClass.APP, "PodFailed"),
    ],
    ids=["oom", "preempted", "disrupted wins", "never ran", "ran", "error", "nothing known"],
)
def test_a_failed_pod_is_classified_by_what_kubelet_says(changes, heard, kind, reason):
    """DT1, DT2, TR11."""
    found = failure(
        observed(pods=[(WORKER, pod(phase="Failed", **changes))], agents=[agent()] if heard else [])
    )
    assert (found.kind, found.reason, found.key, found.pod_gone) == (kind, reason, "0/pod", True)


NO_PYTHON = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable "
    'to start container process: error during container init: exec: "python3": executable file not found in $PATH'
)


def test_an_image_without_python_is_not_tried_again_and_the_user_is_told_what_it_lacks():
    """AG2: in the words of runc."""
    refused = pod(phase="Failed", exit_code=128, reason="StartError", message=NO_PYTHON)
    found = failure(observed(pods=[(WORKER, refused)]))
    assert (found.kind, found.reason) == (FailureClass.CONFIG, "NoPython")
    assert "no python3 on its PATH" in found.message


def test_a_container_that_cannot_start_for_another_reason_is_tried_again():
    """DT1: mounts and control groups fail for a moment, too."""
    refused = pod(
        phase="Failed", exit_code=128, reason="StartError", message="cgroup: device or resource busy"
    )
    found = failure(observed(pods=[(WORKER, refused)]))
    assert (found.kind, found.reason) == (FailureClass.APP, "StartError")


def test_a_failed_pod_beats_the_exit_its_agent_reported():
    """DT2: OOMKilled says more than the signal that the agent saw."""
    found = failure(
        observed(pods=[(WORKER, pod(phase="Failed", oom_killed=True))], agents=[agent(**exited(0, 9))])
    )
    assert found.kind is FailureClass.OOM


def test_a_pod_that_is_being_deleted_is_a_disruption():
    """RC3, TR10."""
    found = failure(observed(pods=[(WORKER, pod(terminating=True))], agents=[agent()]))
    assert (found.kind, found.reason, found.pod_gone) == (FailureClass.DISRUPTION, "PodDeleted", True)


def test_a_pod_that_vanished_is_a_disruption_and_one_that_never_was_is_nothing():
    """RC3, R3."""
    assert failure(observed()).reason == "PodDeleted"
    assert failure(observed(), had_pod=False) is None


def test_only_the_pod_of_the_current_attempt_counts():
    """TR15, TR25: a late event of an old pod changes nothing."""
    old = (WORKER, pod(attempt=0, phase="Failed", exit_code=1))
    assert failure(observed(pods=[old, (WORKER, pod(attempt=1))]), attempt=1) is None
    assert failure(observed(pods=[old]), attempt=1, had_pod=False) is None


def test_an_agent_of_an_older_attempt_says_nothing_of_the_current_one():
    """TR25, TX7."""
    observation = observed(
        pods=[(WORKER, pod(attempt=1))], agents=[agent(attempt=0, pod="pod-worker-0-0", **exited(1))]
    )
    assert failure(observation, attempt=1) is None


def test_an_agent_of_another_pod_of_the_same_attempt_says_nothing():
    """TR22."""
    observation = observed(pods=[(WORKER, pod())], agents=[agent(pod="somebody else", **exited(1))])
    assert failure(observation) is None


# -- success


@pytest.mark.parametrize(
    "later",
    [
        {"phase": "Failed", "exit_code": 1},
        {"phase": "Failed", "disrupted": True},
        {"terminating": True},
        {"phase": "Succeeded"},
    ],
    ids=["failed", "disrupted", "deleted", "succeeded"],
)
def test_a_success_report_beats_every_later_pod_event(later):
    """ST2."""
    assert failure(observed(pods=[(WORKER, pod(**later))], agents=[agent(**exited(0))])) is None


def test_a_success_report_beats_the_end_of_its_pod():
    """ST2."""
    assert failure(observed(agents=[agent(**exited(0))])) is None


def test_the_silence_of_a_member_that_succeeded_is_no_loss():
    """FT08, ST2."""
    assert failure(silent(10_000, nodes={NODE: NodeView(ready=False)})) is not None
    done = observed(
        pods=[(WORKER, pod())], agents=[agent(age=10_000, **exited(0))], nodes={NODE: NodeView(ready=False)}
    )
    assert failure(done) is None


# -- silence


@pytest.mark.parametrize(
    ("heartbeat", "lost_after", "window"), [(2, 10, 10), (5, 10, 15), (15, 10, 45), (2, 60, 60)]
)
def test_the_window_is_three_beats_and_never_less_than_the_setting(heartbeat, lost_after, window):
    """DT3."""
    assert lost_window(observed(heartbeat=heartbeat, settings=Settings(lost_after=lost_after))) == window


@pytest.mark.parametrize(
    ("seconds", "ready", "lost"),
    [
        (10.0, False, False),
        (10.1, False, True),
        (10.1, True, False),
        (20.0, True, False),
        (20.1, True, True),
        (0.0, False, False),
    ],
)
def test_silence_is_a_loss_after_one_window_on_a_bad_node_and_two_on_a_good_one(seconds, ready, lost):
    """DT3."""
    found = failure(silent(seconds, nodes={NODE: NodeView(ready=ready)}))
    assert (found is not None) is lost
    if found is not None:
        assert (found.reason, found.kind, found.pod_gone) == ("Lost", FailureClass.DISRUPTION, True)


def test_a_node_that_no_longer_exists_is_a_bad_node():
    """DT3."""
    known = observed(pods=[(WORKER, pod())], agents=[agent(age=11)])
    without = replace(known, nodes={})
    assert failure(known) is None
    assert failure(without).reason == "Lost"


def test_a_whole_node_that_is_silent_needs_no_word_of_the_node_itself():
    """DT3: every agent, two or more, of that node."""
    pods = [(WORKER, pod(node="n")), (OTHER, pod(OTHER, node="n"))]
    assert failure(observed(pods=pods, agents=[agent(age=11), agent(OTHER, age=11)])).reason == "Lost"
    assert failure(observed(pods=pods, agents=[agent(age=11), agent(OTHER, age=1)])) is None


def test_agents_of_other_nodes_do_not_speak_for_this_one():
    """DT3."""
    pods = [(WORKER, pod(node="n")), (OTHER, pod(OTHER, node="m"))]
    assert failure(observed(pods=pods, agents=[agent(age=11), agent(OTHER, age=11)])) is None


@pytest.mark.parametrize(("led_for", "young"), [(0.0, True), (13.9, True), (14.0, False)])
def test_a_new_leader_judges_no_silence_for_two_beats_and_ten_seconds(led_for, young):
    """TX4, FT10."""
    observation = silent(3600, nodes={NODE: NodeView(ready=False)}, led_for=led_for)
    assert in_grace(observation) is young
    assert (failure(observation) is None) is young


def test_the_grace_covers_silence_only():
    """TX4, DT1: a crash is a crash under any leader."""
    observation = observed(pods=[(WORKER, pod())], agents=[agent(**exited(1))], led_for=0.0)
    assert failure(observation).reason == "ProcessExited"


def test_a_new_leader_that_never_heard_a_running_member_waits_for_its_own_windows():
    """TX4, FT10."""
    down = {NODE: NodeView(ready=False)}
    assert failure(observed(pods=[(WORKER, pod())], led_for=14.0, heartbeat=2, nodes=down)) is not None
    assert failure(observed(pods=[(WORKER, pod())], led_for=10_000.0)) is None, (
        "the node is well: kubelet judges"
    )


def test_a_pod_that_has_no_node_yet_cannot_be_lost():
    """SL1: pending is not silent."""
    assert failure(observed(pods=[(WORKER, pod(phase="Pending", node=""))])) is None


@pytest.mark.parametrize(("ready", "lost"), [(True, False), (False, True)])
def test_a_pod_that_never_started_is_lost_with_its_node(ready, lost):
    """DT3."""
    observation = observed(
        pods=[(WORKER, pod(phase="Pending"))], nodes={NODE: NodeView(ready=ready)}, led_for=100.0
    )
    assert (failure(observation) is not None) is lost


def test_a_member_heard_again_within_its_window_is_no_loss():
    """DT5."""
    assert failure(silent(19.0)) is None
    assert failure(silent(0.5)) is None


def test_a_member_of_any_role_is_judged_alike():
    """DT1."""
    for role in ("ps", "master"):
        member = MemberId(role, 0)
        found = failure(observed(pods=[(member, pod(member))], agents=[agent(member, **exited(1))]), member)
        assert found.member == member
