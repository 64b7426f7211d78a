"""From caches to views: whose pod it is, and what kubelet said of it."""

from datetime import UTC, datetime

import msgspec
import pytest

from runtime.cache.projection import Pod
from simulation.views import OTHER, WORKER
from trainer_operator.api.names import pod_labels
from trainer_operator.api.status import Timeline
from trainer_operator.api.timelines import current_path
from trainer_operator.trainer.observe import checkpoint_view, pod_view, pods_by_member

OWNER = {"kind": "Trainer", "name": "t", "uid": "uid-t", "controller": True}


PATH = current_path([])


def pod(*, index=0, attempt=0, owners=(OWNER,), labels=None, spec=None, **status):
    metadata = {
        "name": f"t-worker-{index}-a{attempt}",
        "uid": f"uid-{index}-{attempt}",
        "labels": pod_labels("t", "worker", index, attempt) if labels is None else labels,
        "ownerReferences": list(owners),
    }
    return msgspec.convert({"metadata": metadata, "spec": spec or {}, "status": status}, Pod)


def ended(*, code, reason=None, message=None):
    terminated = {"exitCode": code, "reason": reason, "message": message}
    return {"name": "trainer", "state": {"terminated": terminated}}


def test_pods_are_grouped_by_member_with_attempts_in_order():
    found = pods_by_member([pod(attempt=2), pod(index=1), pod(attempt=0), pod(attempt=1)], "uid-t")
    assert [view.attempt for view in found[WORKER]] == [0, 1, 2]
    assert [view.attempt for view in found[OTHER]] == [0]


@pytest.mark.parametrize(
    "owners",
    [
        (),
        ({**OWNER, "uid": "uid-of-the-deleted-one"},),
        ({**OWNER, "controller": False},),
    ],
    ids=["nobody's", "same name, other uid", "not the controller"],
)
def test_a_pod_that_this_trainer_does_not_control_is_not_seen(owners):
    """TN5, TR22: labels alone prove nothing."""
    assert pods_by_member([pod(owners=owners)], "uid-t") == {}


@pytest.mark.parametrize("broken", [{"role": "", "index": "0"}, {"role": "worker", "index": "x"}, {}])
def test_a_pod_whose_labels_were_changed_is_passed_over(broken):
    """TR28: one odd object stops nothing."""
    prefix = "trainer.operator.kubeflow.org/"
    labels = {f"{prefix}{name}": value for name, value in broken.items()}
    assert list(pods_by_member([pod(labels=labels), pod(index=1)], "uid-t")) == [OTHER]


def test_a_label_that_is_no_number_reads_as_the_first_attempt():
    labels = {**pod_labels("t", "worker", 0), "trainer.operator.kubeflow.org/attempt": "many"}
    assert pod_view(pod(labels=labels)).attempt == 0


@pytest.mark.parametrize(
    ("status", "disrupted", "reason"),
    [
        (
            {
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                ]
            },
            True,
            "PreemptionByScheduler",
        ),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False", "reason": "x"}]}, False, ""),
        ({"reason": "NodeShutdown"}, True, "NodeShutdown"),
        ({"reason": "Evicted"}, True, "Evicted"),
        ({"reason": "DeadlineExceeded"}, False, "DeadlineExceeded"),
    ],
)
def test_a_disruption_is_known_by_condition_or_reason(status, disrupted, reason):
    """DT2, TR11."""
    view = pod_view(pod(phase="Failed", **status))
    assert (view.disrupted, view.reason) == (disrupted, reason)


def test_the_container_that_ended_badly_is_the_one_that_counts():
    """DT2."""
    view = pod_view(
        pod(
            phase="Failed",
            initContainerStatuses=[ended(code=0)],
            containerStatuses=[ended(code=137, reason="OOMKilled", message="last words")],
        )
    )
    assert (view.exit_code, view.oom_killed, view.reason, view.message) == (
        137,
        True,
        "OOMKilled",
        "last words",
    )


def test_a_message_is_cut_to_a_bound():
    assert len(pod_view(pod(message="x" * 10_000)).message) == 512


def test_a_pod_that_kubelet_never_saw_reads_as_pending():
    view = pod_view(pod())
    assert (view.phase, view.node, view.ready, view.exit_code, view.failed, view.alive) == (
        "Pending",
        "",
        False,
        None,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("phase", "terminating", "alive"),
    [
        ("Pending", False, True),
        ("Running", False, True),
        ("Unknown", False, True),
        ("Running", True, False),
        ("Succeeded", False, False),
        ("Failed", False, False),
    ],
)
def test_a_pod_is_alive_while_it_can_train(phase, terminating, alive):
    made = pod(phase=phase)
    if terminating:
        metadata = msgspec.structs.replace(made.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        made = msgspec.structs.replace(made, metadata=metadata)
    assert pod_view(made).alive is alive


def test_a_checkpoint_that_was_just_created_is_open():
    view = checkpoint_view({"metadata": {"name": "t-c00012"}, "spec": {"reason": "Interval"}}, PATH)
    assert (view.sequence, view.state, view.health, view.open, view.reason) == (
        12,
        "",
        "Unknown",
        True,
        "Interval",
    )


def test_a_checkpoint_that_a_user_named_has_no_place_in_the_sequence():
    assert checkpoint_view({"metadata": {"name": "before-holidays"}}, PATH).sequence == 0


@pytest.mark.parametrize(
    ("state", "conditions", "is_open"),
    [
        ("Pending", [], True),
        ("Staging", [], True),
        ("Staging", [{"type": "Aborted", "status": "True"}], False),
        ("Committed", [], False),
        ("GarbageCollected", [], False),
    ],
)
def test_a_checkpoint_is_open_until_its_outcome_is_known(state, conditions, is_open):
    """CS3, CS4."""
    view = checkpoint_view(
        {"metadata": {"name": "c"}, "status": {"state": state, "conditions": conditions}}, PATH
    )
    assert view.open is is_open


def test_why_a_checkpoint_was_given_up_is_read_from_its_condition():
    """PB4."""
    condition = {"type": "Aborted", "status": "True", "reason": "Full", "message": "no room"}
    view = checkpoint_view({"metadata": {"name": "c"}, "status": {"conditions": [condition]}}, PATH)
    assert (view.abort_reason, view.abort_message) == ("Full", "no room")


def test_the_time_of_a_commit_is_read_as_a_time():
    view = checkpoint_view(
        {"metadata": {"name": "c"}, "status": {"committedAt": "2026-01-01T00:00:05Z"}}, PATH
    )
    assert view.committed_at == datetime(2026, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_a_pod_without_a_node_says_why_in_the_schedulers_words():
    """GS4."""
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes ..."}
    view = pod_view(pod(conditions=[told]))
    assert (view.node, view.waits_reason, view.waits_message) == ("", "Unschedulable", "0/3 nodes ...")
    placed = pod_view(pod(conditions=[{"type": "PodScheduled", "status": "True"}], spec={"nodeName": "a"}))
    assert (placed.node, placed.waits_reason, placed.waits_message) == ("a", "", "")


def test_a_checkpoint_behind_which_training_went_is_off_the_path():
    """CK6: one without a timeline is of the first."""
    path = current_path([Timeline(number=1, parent=0, step=20)])
    views = [
        checkpoint_view({"metadata": {"name": "c"}, "status": {"step": step, "timeline": timeline}}, path)
        for step, timeline in [(20, None), (30, None), (30, 1)]
    ]
    assert [view.on_path for view in views] == [True, False, True]


def init_ended(name, *, code=0, message=None):
    return {"name": name, "state": {"terminated": {"exitCode": code, "message": message}}}


def test_what_the_init_containers_say_of_weights_is_read():
    """HF1, HF3: the pin of the one, the problem of the other."""
    pin = f"org/model main {'a' * 40}"
    view = pod_view(pod(initContainerStatuses=[init_ended("agent"), init_ended("weights-pin", message=pin)]))
    assert (view.weights_pin, view.weights_problem) == (pin, "")
    words = "HashMismatch: a.json has 1 bytes, expected 2"
    view = pod_view(pod(initContainerStatuses=[init_ended("weights", code=65, message=words)]))
    assert (view.weights_pin, view.weights_problem) == ("", words)


@pytest.mark.parametrize("words", [None, "", "killed", "no Reason: at all", "lower: case"])
def test_a_weights_container_that_ended_without_a_word_is_a_failed_pod_like_any(words):
    """HF5: killed by the node, say."""
    view = pod_view(pod(initContainerStatuses=[init_ended("weights", code=137, message=words)]))
    assert view.weights_problem == ""
    assert (
        pod_view(pod(initContainerStatuses=[init_ended("other", code=1, message="Bad: x")])).weights_problem
        == ""
    )
