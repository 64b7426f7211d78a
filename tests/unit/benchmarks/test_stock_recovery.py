"""A job is whole again when as many pods as it has run elsewhere than what failed."""

import pytest

from benchmarks.stock.arm import Broken
from benchmarks.stock.audit import Entry
from benchmarks.stock.recovery import Mark, Pod, pods_of, replacements, seconds, victims


def pod(name, uid="", *, job="job", node="node", is_running=True):
    return Pod(name, uid or f"uid-{name}", job, node, is_running, ("main",))


def request(verb, what, name, *, at, user="admin", ok=True):
    return Entry(verb, what, "bench", name, user, ok, received=at, answered=at + 0.5)


def raw(name, **status):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"job": "a"}},
        "spec": {"nodeName": "node", "containers": [{"name": "main"}]},
        "status": {"phase": "Running", **status},
    }


def test_pods_are_read_by_name_and_those_of_nobody_are_left_out():
    nobody = raw("c")
    nobody["metadata"]["labels"] = {}
    unscheduled = {**raw("a", phase="Pending"), "spec": {"containers": []}}
    assert pods_of({"items": [raw("b"), nobody, unscheduled]}, label="job") == [
        Pod("a", "uid-a", "a", "", is_running=False, containers=()),
        Pod("b", "uid-b", "a", "node", is_running=True, containers=("main",)),
    ]


def test_pod_that_is_being_deleted_does_not_count_although_its_phase_is_running():
    ending = raw("a")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not pods_of({"items": [ending]}, label="job")[0].is_running


@pytest.mark.parametrize(
    ("count", "share", "chosen"), [(200, 0.1, 20), (4, 0.1, 1), (10, 1.0, 10), (1, 0.5, 1)]
)
def test_share_of_pods_is_spread_over_all_of_them(count, share, chosen):
    pods = [pod(f"{number:03}") for number in range(count)]
    found = victims(pods, share=share)
    assert len({each.name for each in found}) == chosen
    assert found[-1] == pods[-1]


def test_job_is_not_whole_while_the_lost_pod_is_all_that_makes_up_its_number():
    pods = [pod("a"), pod("b")]
    assert replacements(pods, size=2, lost={"uid-b"}, before={"uid-a", "uid-b"}) is None


def test_job_is_not_whole_while_a_replacement_does_not_run():
    pods = [pod("a"), pod("b", "new", is_running=False)]
    assert replacements(pods, size=2, lost={"uid-b"}, before={"uid-a", "uid-b"}) is None


def test_replacement_may_have_the_name_of_what_failed():
    pods = [pod("a"), pod("b", "new")]
    assert replacements(pods, size=2, lost={"uid-b"}, before={"uid-a", "uid-b"}) == [pod("b", "new")]


def test_clock_runs_from_the_failure_to_the_last_pod_that_was_started():
    entries = [
        request("patch", "pods/status", "b", at=1.0, user="kwok"),  # when it ran for the first time
        request("patch", "pods/status", "b", at=10.0, ok=False),
        request("patch", "pods/status", "b", at=11.0),
        request("patch", "pods/status", "b", at=14.0, user="kwok"),
        request("patch", "pods/status", "c", at=15.0, user="kwok"),
    ]
    mark = Mark("patch", "pods/status", "b")
    assert seconds(entries[1:], mark, [pod("b", "new"), pod("c")], node="kwok") == 15.5 - 11.0
    assert seconds(entries[1:], mark, [pod("b", "new")], node="kwok") == 14.5 - 11.0


@pytest.mark.parametrize(
    ("entries", "fresh", "sentence"),
    [
        ([], ["b"], "holds no delete of pods a"),
        ([request("delete", "pods", "a", at=1.0)], ["b"], "when b ran"),
        ([request("delete", "pods", "a", at=1.0)], [], "when a replacement ran"),
    ],
)
def test_what_the_audit_log_does_not_hold_is_not_made_up(entries, fresh, sentence):
    with pytest.raises(Broken, match=sentence):
        seconds(entries, Mark("delete", "pods", "a"), [pod(name) for name in fresh], node="kwok")
