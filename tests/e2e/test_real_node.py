"""The main job in real containers: it behaves there as on process nodes, whatever is lost.

After each test the API server's audit log is checked for the invariants of every Trainer (RB5, TR41 among them). Those
that most need a real node are marked `short`: a lost process, container and pod, memory, what a container gets and says.
"""

import json

import pytest

WITHOUT_ROOT = 1000
"""User of the images."""


def test_undisturbed_training_succeeds_in_restricted_containers(jobs):
    """AG1, PS1, RC7: the namespace admits nothing but restricted pods."""
    digits = jobs.digits(epochs=15, pace=0.01)
    status = digits.wait_phase("Succeeded")
    assert status["restarts"] == status["failures"] == status["disruptions"] == 0
    assert status["metrics"]["accuracy"] > 0.9
    assert "accuracy 0.9" in digits.logs("digits-worker-0")
    for pod in digits.pods().values():
        (installer,) = pod["status"]["initContainerStatuses"]
        assert installer["state"]["terminated"]["reason"] == "Completed"
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


LOOK_AROUND = """
import base64, json, os, time
token = open("/var/run/secrets/trainer-operator/token").read()
body = token.split(".")[1]
claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
os.makedirs(os.environ["TRAINER_STORE"], exist_ok=True)
open(os.environ["TRAINER_STORE"] + "/mark", "w").close()
print(json.dumps({
    "user": os.getuid(),
    "audience": claims["aud"],
    "bound": claims["kubernetes.io"]["pod"]["name"],
    "answer": open("/settings/answer").read(),
    "agent": sorted(name for name in os.listdir("/trainer/agent") if name.startswith(("agent", "trainer"))),
    "ports": open("/proc/sys/net/ipv4/ip_local_port_range").read().split(),
    "privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("NoNewPrivs", "Seccomp:"))],
}), flush=True)
"""


@pytest.mark.short
def test_agent_token_secret_and_claim_are_in_the_container(jobs):
    """AG1, SE1, PS1: what the operator asks for is what a real kubelet gives, to a user without rights."""
    jobs.world.apply(profile(jobs.namespace))
    look = jobs.python("look", LOOK_AROUND, profile="shared", checkpoint={"bucket": "digits-checkpoints"})
    look.wait_phase("Succeeded")
    line = next(line for line in look.logs("look-worker-0").splitlines() if line.startswith('{"user"'))
    assert json.loads(line) == {
        "user": WITHOUT_ROOT,
        "audience": ["trainer-operator"],
        "bound": "look-worker-0",
        "answer": "forty-two",
        "agent": ["agent.pyz", "trainer_sdk.py"],
        "ports": ["32768", "33791"],
        "privileges": ["1", "2"],
    }
    assert [path.name for path in jobs.volume.rglob("mark")] == ["mark"]


def profile(namespace):
    return {
        "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
        "kind": "TrainingProfile",
        "metadata": {"name": "shared", "namespace": namespace},
        "spec": {"runtimeConfig": {"secret": "settings", "mountPath": "/settings"}},
    }


@pytest.mark.short
def test_killed_process_restarts_in_its_container(jobs, until):
    """FT01, ME4, AG9: container and pod stay and become ready again; one failure is charged."""
    digits = jobs.digits()
    digits.wait_committed()
    until(lambda: digits.status()["readyWorkers"] == "2/2", "both workers ready", digits.tell)
    uids = digits.uids()
    digits.kill(1)
    digits.wait_restarted(failures=1)
    status = digits.wait_trains_on()
    until(lambda: digits.status()["readyWorkers"] == "2/2", "both workers ready again", digits.tell)
    assert digits.uids() == uids
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in digits.pods().values())
    assert (status["failures"], status["disruptions"]) == (1, 0)
    assert status["membership"]["restoreStep"] > 0


@pytest.mark.short
def test_killed_container_is_replaced_by_a_pod_of_the_next_attempt(jobs, until):
    """FT02, ME4, AG3: kubelet restarts nothing; the other member keeps its pod."""
    digits = jobs.digits()
    digits.wait_committed()
    uids = digits.uids()
    digits.kill(1, agent=True)
    until(lambda: "digits-worker-1-a1" in digits.pods(), "the replacement", digits.tell)
    status = digits.wait_trains_on()
    assert digits.uids()["digits-worker-0"] == uids["digits-worker-0"]
    assert (status["failures"], status["disruptions"]) == (1, 0)


@pytest.mark.short
def test_deleted_pod_is_replaced_before_it_has_ended(jobs, until):
    """FT02, TR10, R1: charged as a disruption."""
    digits = jobs.digits()
    digits.wait_committed()
    uids = digits.uids()
    digits.world.kubectl("delete", "pod", "digits-worker-1", "-n", digits.namespace, "--wait=false")
    until(lambda: "digits-worker-1-a1" in digits.pods(), "the replacement", digits.tell)
    status = digits.wait_trains_on()
    assert digits.uids()["digits-worker-0"] == uids["digits-worker-0"]
    assert (status["failures"], status["disruptions"]) == (0, 1)


def test_lost_kubelet_costs_a_training_nothing_while_its_agents_beat(jobs, until):
    """DT3, TR12: the node is not ready, but members are lost only when they are silent as well."""
    digits = jobs.digits()
    digits.wait_committed()
    uids, node = digits.uids(), jobs.world.node
    node.kill_kubelet()
    until(lambda: not ready(jobs.world), "the node to be given up", digits.tell)
    digits.wait_trains_on()
    node.start_kubelet()
    until(lambda: ready(jobs.world), "the node to come back", digits.tell)
    status = digits.wait_trains_on()
    assert digits.uids() == uids
    assert status["restarts"] == status["failures"] == status["disruptions"] == 0


def ready(world):
    conditions = world.get("node", world.node.name)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


GREEDY = """
held = []
while True:
    held.append(bytearray(8 << 20))
"""


@pytest.mark.short
def test_process_beyond_its_memory_limit_is_killed_by_the_kernel(jobs, until):
    """RC3: every kill is one failure, and the last one ends the Trainer.

    Older control groups kill the process and leave the agent to start it again; newer ones end the whole container.
    """
    policy = {"backoffLimit": 1, "backoff": {"baseSeconds": 1, "capSeconds": 1}}
    limit = {"limits": {"memory": "96Mi", "cpu": "1"}}
    greedy = jobs.python("greedy", GREEDY, resources=limit, retryPolicy=policy)
    until(lambda: greedy.status().get("phase") == "Failed", "Failed", greedy.tell)
    status = greedy.status()
    assert (status["failures"], status["reason"]) == (2, "BackoffLimitExceeded")
    words = greedy.world.kubectl("get", "events", "-n", greedy.namespace)
    assert "ended with signal 9" in words or "OOMKilled" in words


@pytest.mark.short
def test_image_without_python_ends_the_training_with_a_sentence_that_says_so(jobs, until):
    """AG2, DT1; ADR 0016: it is the runtime's own word that another try would be in vain."""
    hidden = jobs.python("hidden", "", env=[{"name": "PATH", "value": "/nowhere"}])
    until(lambda: hidden.status().get("phase") == "Failed", "Failed", hidden.tell)
    status = hidden.status()
    assert (status["failures"], status["restarts"], status["reason"]) == (1, 0, "CannotExecute")
    words = hidden.world.kubectl("get", "events", "-n", hidden.namespace)
    assert "has no python3 on its PATH" in words


FAREWELL = """
import os, signal, time
def end(*_):
    time.sleep(1)
    open(os.environ["TRAINER_STORE"] + "/farewell", "w").close()
    raise SystemExit(0)
signal.signal(signal.SIGTERM, end)
os.makedirs(os.environ["TRAINER_STORE"], exist_ok=True)
print("waiting", flush=True)
while True:
    time.sleep(1)
"""


def test_deleted_pod_has_its_grace_to_end(jobs, until):
    """AG7: the process gets SIGTERM and the time it needs, and the pod ends with it and not with its grace."""
    polite = jobs.python(
        "polite",
        FAREWELL,
        checkpoint={"bucket": "digits-checkpoints"},
        topology={"podSpec": {"terminationGracePeriodSeconds": 600}},
    )
    until(lambda: "waiting" in polite.words("polite-worker-0"), "its first words", polite.tell)
    polite.world.kubectl("delete", "pod", "polite-worker-0", "-n", polite.namespace, "--wait=false")
    until(lambda: "polite-worker-0" not in polite.pods(), "the pod to be gone", polite.tell)
    assert [path.name for path in jobs.volume.rglob("farewell")] == ["farewell"]


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waiting", flush=True)
while True:
    time.sleep(1)
"""


def test_pod_that_does_not_end_is_killed_after_its_grace(jobs, until):
    """AG7: nothing that a process ignores keeps its pod."""
    stubborn = jobs.python("stubborn", STUBBORN, topology={"podSpec": {"terminationGracePeriodSeconds": 5}})
    until(lambda: "waiting" in stubborn.words("stubborn-worker-0"), "its first words", stubborn.tell)
    (process,) = stubborn.processes(0)
    stubborn.world.kubectl("delete", "pod", "stubborn-worker-0", "-n", stubborn.namespace, "--wait=false")
    until(lambda: "stubborn-worker-0" not in stubborn.pods(), "the pod to be gone", stubborn.tell)
    assert process not in stubborn.processes(0)
