"""Phases and conditions, as the kubelet computes them."""

from datetime import UTC, datetime, timedelta

import pytest

from trainer_operator.devcluster.node.containerstate import ContainerRecord, Running, Terminated, Waiting
from trainer_operator.devcluster.node.podstatus import PodFacts, differs, pod_status

NOW = datetime(2026, 12, 2, 8, tzinfo=UTC)
RUNNING = Running(NOW, "process://r")
FACTS = PodFacts(host_ip="127.1.0.1", pod_ip="127.1.0.2", started_at=NOW)


def end(code):
    return Terminated(code, "Error" if code else "Completed", "", NOW, NOW, "process://e")


def pod(policy="Never", inits=(), mains=("m",), status=None, **spec):
    return {
        "metadata": {"generation": 1},
        "spec": {
            "restartPolicy": policy,
            "initContainers": [{"name": name} for name in inits],
            "containers": [{"name": name, "image": "x"} for name in mains],
            **spec,
        },
        "status": status or {},
    }


def computed(a_pod, facts=FACTS, *, now=NOW, ready=(), last=None, **states):
    records = {
        name: ContainerRecord(name, state, (last or {}).get(name), ready=name in ready)
        for name, state in states.items()
    }
    return pod_status(a_pod, records, facts, now=now)


def condition(status, kind):
    return next(c for c in status["conditions"] if c["type"] == kind)


ENDED = PodFacts(host_ip="h", pod_ip="p", ended=True)


@pytest.mark.parametrize(
    ("policy", "states", "facts", "phase"),
    [
        ("Never", {}, FACTS, "Pending"),
        ("Never", {"m": Waiting("x")}, FACTS, "Pending"),
        ("Never", {"m": RUNNING}, FACTS, "Running"),
        ("Never", {"m": end(0)}, ENDED, "Succeeded"),
        ("Never", {"m": end(0)}, FACTS, "Succeeded"),
        ("Never", {"m": end(1)}, ENDED, "Failed"),
        ("OnFailure", {"m": end(1)}, FACTS, "Running"),
        ("OnFailure", {"m": end(0)}, FACTS, "Succeeded"),
        ("Always", {"m": end(0)}, FACTS, "Running"),
        ("Always", {"m": end(1)}, FACTS, "Running"),
    ],
)
def test_phase_follows_containers_and_policy(policy, states, facts, phase):
    assert computed(pod(policy), facts, **states)["phase"] == phase


def test_container_in_backoff_does_not_make_its_pod_pending():
    status = computed(pod("Always"), m=Waiting("CrashLoopBackOff"), last={"m": end(1)})
    assert status["phase"] == "Running"


def test_pod_with_one_ended_and_one_running_container_runs():
    assert computed(pod(mains=("a", "b")), a=end(1), b=RUNNING)["phase"] == "Running"


def test_failed_init_container_fails_a_pod_that_never_restarts():
    status = computed(pod(inits=("i",)), PodFacts(host_ip="h", ended=True), i=end(1))
    assert status["phase"] == "Failed"
    assert condition(status, "Initialized")["message"] == "containers with incomplete status: [i]"
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_pod_waiting_for_init_is_pending_and_says_which_is_incomplete():
    status = computed(pod("OnFailure", inits=("i1", "i2")), i1=end(0), i2=RUNNING)
    assert status["phase"] == "Pending"
    assert condition(status, "Initialized")["message"] == "containers with incomplete status: [i2]"
    assert [s["ready"] for s in status["initContainerStatuses"]] == [True, False]


def test_final_phase_never_changes_again():
    assert computed(pod(status={"phase": "Failed"}), m=RUNNING)["phase"] == "Failed"


def test_stopped_pod_gives_every_container_an_end():
    facts = PodFacts(host_ip="h", pod_ip="p", stopping=True, ended=True)
    status = computed(
        pod("Always", mains=("a", "b", "c")), facts, a=end(0), b=Waiting("x"), last={"b": end(2)}
    )
    ends = [s["state"]["terminated"]["exitCode"] for s in status["containerStatuses"]]
    assert (status["phase"], ends) == ("Failed", [0, 2, 137])


def test_reason_of_the_node_makes_the_pod_failed_whatever_the_codes_are():
    facts = PodFacts(host_ip="h", ended=True, stopping=True, reason="DeadlineExceeded", message="late")
    status = computed(pod(), facts, m=end(0))
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "late")


def test_conditions_come_in_the_kubelet_s_order():
    kinds = [c["type"] for c in computed(pod())["conditions"]]
    assert kinds == ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]


def test_ready_needs_containers_and_gates():
    gates = [{"conditionType": "g"}]
    unready = computed(pod(readinessGates=gates), m=RUNNING)
    assert condition(unready, "Ready")["reason"] == "ContainersNotReady"
    missing = computed(pod(readinessGates=gates), m=RUNNING, ready={"m"})
    assert condition(missing, "ContainersReady")["status"] == "True"
    assert condition(missing, "Ready")["reason"] == "ReadinessGatesNotReady"
    passed = {"conditions": [{"type": "g", "status": "True"}]}
    assert condition(computed(pod(readinessGates=gates, status=passed), m=RUNNING, ready={"m"}), "Ready")[
        "status"
    ] == ("True")


def test_transition_time_moves_only_with_the_status():
    first = computed(pod(), m=RUNNING)
    later = computed(pod(status=first), now=NOW + timedelta(seconds=9), m=RUNNING, ready={"m"})
    assert condition(later, "Ready")["lastTransitionTime"] == "2026-12-02T08:00:09Z"
    assert condition(later, "Initialized")["lastTransitionTime"] == "2026-12-02T08:00:00Z"


def test_start_time_is_written_once():
    later = PodFacts(host_ip="h", started_at=NOW + timedelta(hours=1))
    status = computed(pod(status={"startTime": "2026-12-02T07:00:00Z"}), later)
    assert status["startTime"] == "2026-12-02T07:00:00Z"


def test_same_status_is_not_reported_again():
    status = computed(pod(), m=RUNNING, ready={"m"})
    stored = status | {
        "qosClass": "BestEffort",
        "conditions": [
            *(
                {k: v for k, v in c.items() if v is not None} | {"lastProbeTime": None}
                for c in status["conditions"]
            ),
            {"type": "PodScheduled", "status": "True"},
        ],
    }
    assert not differs(status, stored)


def test_every_change_is_reported():
    before = computed(pod(), m=RUNNING)
    ready = computed(pod(), m=RUNNING, ready={"m"})
    over = computed(pod(status=before), ENDED, m=end(0))
    assert differs(ready, before)
    assert differs(over, before)
    assert differs(before, {})
    assert differs(before, over)
