"""The tree that status and pods tell."""

import pytest

from trainer_operator.cli.plugin.treedata import poor_tree, view
from trainersample import failed, operators_tree, pod, pods, trainer


def states(told):
    return {m["member"]: (m["state"], m["cause"]) for role in told["roles"] for m in role["members"]}


def test_members_without_pods_are_pending_at_first_and_lost_later():
    """ST1, CR10: a member with a record had a pod before."""
    told = states(poor_tree(trainer(), []))
    assert told["worker-0"] == ("Pending", "")
    assert told["worker-1"] == ("Lost", "PodDeleted")


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod("worker", 0), ("Ready", "")),
        (pod("worker", 0, ready=False), ("Starting", "")),
        (pod("worker", 0, phase="Pending"), ("Pending", "")),
        (pod("worker", 0, phase="Failed", **failed(2)), ("Crashed", "Error (exit code 2)")),
        (pod("worker", 0, phase="Failed", reason="Evicted"), ("Lost", "Evicted")),
        (pod("worker", 0, phase="Succeeded"), ("Succeeded", "")),
        (
            pod(
                "worker",
                0,
                phase="Pending",
                containerStatuses=[{"state": {"waiting": {"reason": "ErrImagePull"}}}],
            ),
            ("Pending", "ErrImagePull"),
        ),
        (
            pod(
                "worker",
                0,
                phase="Pending",
                containerStatuses=[{"state": {"waiting": {"reason": "PodInitializing"}}}],
            ),
            ("Pending", ""),
        ),
    ],
)
def test_a_pod_tells_its_members_state(made, expected):
    """ST1."""
    assert states(poor_tree(trainer(), [made]))["worker-0"] == expected


def test_a_pod_that_is_being_deleted_drains():
    """ST1."""
    made = pod("worker", 0)
    made["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    assert states(poor_tree(trainer(), [made]))["worker-0"] == ("Draining", "")


def test_suspects_stalls_and_finished_members_are_known_from_the_status():
    """SL4, ST5."""
    status = {
        "suspects": ["worker-0"],
        "stall": {"member": "worker-2"},
        "members": [{"role": "ps", "index": 0, "done": 3}],
    }
    told = poor_tree(trainer(**status), [pod("worker", 0), pod("worker", 2), pod("ps", 0)])
    assert states(told)["worker-0"] == ("Suspect", "Suspect")
    assert states(told)["worker-2"] == ("Stalled", "Stalled")
    assert states(told)["ps-0"] == ("Succeeded", "")
    assert told["roles"][0]["worst"] == "Stalled"


def test_an_old_attempts_pod_does_not_speak_for_its_member():
    """ME4: the record says that attempt 1 is the present one."""
    assert states(poor_tree(trainer(), [pod("worker", 1)]))["worker-1"] == ("Lost", "PodDeleted")


def test_a_suspended_trainer_has_no_members_but_pods_that_are_left():
    """TR06."""
    told = poor_tree(trainer(phase="Suspended"), [pod("worker", 0)])
    assert list(states(told)) == ["worker-0"]


def test_a_trainer_that_the_operator_has_not_seen_is_all_pending():
    """ST1: no status at all."""
    fresh = trainer()
    del fresh["status"]
    told = poor_tree(fresh, [])
    assert told["phase"] == "Pending"
    assert {state for state, _ in states(told).values()} == {"Pending"}


def test_foreign_pods_with_bad_labels_are_left_out():
    """EC1."""
    bad = pod("worker", 0)
    bad["metadata"]["labels"] = {"trainer-name": "digits", "trainer.operator.kubeflow.org/role": "chief"}
    assert states(poor_tree(trainer(), [bad])) == states(poor_tree(trainer(), []))


def test_the_operators_tree_is_joined_with_nodes_ages_and_past_attempts_of_pods():
    """ST4, CR10."""
    tree = view(operators_tree(), trainer(), pods(), from_operator=True)
    worker = tree.roles[0].members[1]
    assert (worker.member, worker.state, worker.restarts) == ("worker-1", "Pending", 1)
    assert worker.pod.name == "digits-worker-1-a1"
    assert [(old.name, old.node, old.cause) for old in worker.pods] == [
        ("digits-worker-1", "node-2", "OOMKilled (exit code 137)")
    ]
    assert tree.roles[0].members[0].step == 1090


def test_an_answer_that_lacks_fields_is_shown_as_far_as_it_goes():
    """CR10: another version of the operator."""
    tree = view({"trainer": "team-a/digits", "roles": [{"role": "worker"}]}, {}, [], from_operator=True)
    assert (tree.name, tree.phase, tree.roles[0].members) == ("digits", "Pending", ())
