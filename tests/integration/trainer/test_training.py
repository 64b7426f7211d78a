"""The main job on a real API server with real processes: it trains to its end, whatever is killed."""

import json
import time

from trainer_operator.demo.invariants import refusals

REFERENCE = 0.95
USER = "system:serviceaccount:trainer-operator:trainer-operator"
LONG = 2000
"""Epochs of a training that is not meant to end within its test."""


def test_undisturbed_training_succeeds_with_all_steps_and_the_accuracy(job):
    """AG1, ME3, AG7: one Trainer, two workers, all-reduce."""
    digits = job.digits(epochs=20, pace=0.0)
    status = digits.wait_phase("Succeeded", 90)
    assert status["epochsCompleted"] == 20
    assert status["restarts"] == status["failures"] == status["disruptions"] == 0
    assert status["metrics"]["accuracy"] > REFERENCE
    assert status["membership"]["epoch"] == 1


def test_killed_process_restarts_in_place_from_the_newest_committed_checkpoint(job):
    """FT01, ME4, RC4, DT1: survivors keep their pods, the step goes back only to a committed one."""
    digits = job.digits(epochs=25)
    committed = digits.wait_committed()
    pods = {name: pod["metadata"]["uid"] for name, pod in digits.pods().items()}
    digits.kill_process("worker", 1)
    status = digits.wait_phase("Succeeded", 120)
    assert {name: pod["metadata"]["uid"] for name, pod in digits.pods().items()} == pods
    assert (status["failures"], status["restarts"], status["membership"]["epoch"]) == (1, 1, 2)
    assert status["membership"]["restoreStep"] >= committed["step"]
    assert status["lastRollback"]["to"] == status["membership"]["restoreStep"]
    assert status["metrics"]["accuracy"] > REFERENCE


def test_deleted_pod_is_replaced_under_the_next_attempt_and_the_others_stay(job, until):
    """FT02, TR10, ME4, R1, LT2: exactly one new pod, suffix -a1, charged as a disruption.

    RS2: its state comes from those that stayed, not from the store.
    """
    digits = job.digits(epochs=LONG, workers=4)
    digits.wait_committed()
    before = {name: pod["metadata"]["uid"] for name, pod in digits.pods().items()}
    began = time.monotonic()
    digits.world.kubectl("delete", "pod", "digits-worker-1", "-n", digits.namespace, "--wait=false")
    until(lambda: "digits-worker-1-a1" in digits.pods(), 60, "the replacement")
    status = digits.wait_trains_on()
    assert time.monotonic() - began < 38
    after = digits.pods()
    stayed = set(before) - {"digits-worker-1"}
    assert {name: after[name]["metadata"]["uid"] for name in stayed} == {
        name: before[name] for name in stayed
    }
    assert set(after) - {"digits-worker-1"} == {*stayed, "digits-worker-1-a1"}
    assert (status["failures"], status["disruptions"]) == (0, 1)
    restore = until(lambda: digits.status().get("lastRestore"), 60, "the report of the restore")
    assert (restore["members"], restore["checkpoint"]) == (4, status["membership"]["restoreFrom"])
    assert restore["ownBytes"] > 0
    assert restore["peerBytes"] > 0


def test_parameter_server_restarts_while_no_worker_process_exits(job):
    """FT13, PSR2, PSR4, PSR5: workers wait, keep their process ids, and go on."""
    digits = job.digits(mode="ps", workers=2, servers=1, epochs=40)
    digits.wait_step(40)
    workers = digits.processes("worker")
    old = digits.kill_process("ps", 0)
    status = digits.wait_phase("Recovering", 20) if digits.phase() != "Running" else digits.status()
    step = status.get("globalStep", 0)
    digits.wait_step(step + 60)
    assert digits.processes("worker") == workers
    assert digits.processes("ps")[0] != old
    status = digits.wait_phase("Succeeded", 120)
    assert status["membership"]["epoch"] == 1
    assert status["membership"]["psEpoch"] == 2
    assert status["failures"] == 1
    assert status["metrics"]["accuracy"] > REFERENCE


def test_scaling_in_mid_training_loses_no_step(job, until):
    """FT11, ME5, ME6, ME7, CR6: 2 to 4 to 2 by kubectl scale; no process ends, the step never falls, no charge.

    PSR1 to PSR3, FT13: then the server is killed, and its standby takes over.
    """
    digits = job.digits(mode="ps", workers=2, servers=1, epochs=LONG, copies=2)
    seen = []

    def watch():
        seen.append(digits.status().get("globalStep", 0))
        return True

    digits.wait_step(20)
    until(lambda: digits.status().get("readyServers") == "2/2", 60, "a standby", tell=digits.status)
    survivors, servers = digits.processes("worker"), digits.processes("ps")
    for replicas in (4, 2):
        digits.world.kubectl("scale", "trainer", "digits", "-n", digits.namespace, f"--replicas={replicas}")
        until(
            lambda n=replicas: watch() and digits.status().get("readyWorkers") == f"{n}/{n}",
            60,
            f"{replicas} workers",
        )
        until(lambda: watch() and digits.phase() == "Running", 30, "running")
        assert digits.processes("worker").items() >= survivors.items()
    status = digits.wait_trains_on()
    assert digits.processes("ps") == servers
    assert applied_once(digits.logs / "ps-0.jsonl")
    assert seen == sorted(seen)
    assert status["rollbacks"] == status["failures"] == status["disruptions"] == 0
    assert status["membership"]["epoch"] == 3
    scale = json.loads(
        digits.world.kubectl(
            "get",
            "--raw",
            f"/apis/trainer.operator.kubeflow.org/v1alpha1/namespaces/{digits.namespace}/trainers/digits/scale",
        )
    )
    assert scale["status"]["selector"] == "trainer-name=digits,trainer.operator.kubeflow.org/role=worker"
    digits.wait_trains_on(60)  # some snapshots, which the standby holds then
    old = digits.kill_process("ps", 0)
    until(lambda: digits.status()["membership"].get("serving") == "1", 60, "the standby serves")
    until(lambda: digits.status()["membership"]["psPhase"] == "Serving", 60, "serving", tell=digits.status)
    status = digits.wait_trains_on()
    assert digits.processes("worker").items() >= survivors.items()
    assert digits.processes("ps")[1] == servers[1]
    assert (status["membership"]["epoch"], status["failures"]) == (3, 1)
    until(lambda: digits.processes("ps").get(0, old) != old, 60, "the next standby")


def applied_once(log):
    """Whether the server applied each step once, in order, and every sample of each pass once (ME8)."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    at = {}
    for line in lines:
        if line["from"] != at.get(line["dataEpoch"], 0):
            return False
        at[line["dataEpoch"]] = line["to"]
    return [line["step"] for line in lines] == list(range(1, len(lines) + 1))


def test_suspend_commits_the_state_releases_the_pods_and_resumes_without_losing_a_step(job, until):
    """TR06, TR34, ME7: nothing is written while it is suspended."""
    digits = job.digits(epochs=LONG)
    digits.wait_step(20)
    digits.patch({"suspend": True})
    digits.wait_phase("Suspended", 60)
    until(lambda: not digits.pods(), 60, "no pods")
    until(lambda: not digits.status().get("workers"), 3, "no workers", tell=digits.status)
    status = digits.status()
    assert status["lastCheckpoint"]["step"] == status["globalStep"]
    version = digits.object()["metadata"]["resourceVersion"]
    time.sleep(6)  # the silence itself is what is measured; what could wait would come within five seconds
    assert digits.object()["metadata"]["resourceVersion"] == version
    digits.patch({"suspend": False})
    digits.wait_step(status["globalStep"] + 20)
    assert digits.status()["rollbacks"] == 0


def test_damaged_checkpoint_is_marked_and_an_older_one_is_restored(job, until):
    """RS2, CK1: the newest committed one lost a file while nothing ran; training goes on from the one before."""
    digits = job.digits(epochs=LONG)
    first = digits.wait_committed()
    digits.patch({"suspend": True})
    digits.wait_phase("Suspended", 60)
    until(lambda: not digits.pods(), 60, "no pods")
    newest = digits.status()["lastCheckpoint"]
    assert newest["step"] > first["step"]
    found = digits.world.get("checkpoint", newest["name"], "-n", digits.namespace)
    (decision,) = digits.folder.glob(f"store-*/**/ckpt/{found['status']['id']}/DECISION")
    decision.unlink()
    digits.patch({"suspend": False})
    digits.wait_phase("Running", 90)
    status = digits.wait_trains_on()
    assert status["lastRollback"]["to"] == status["membership"]["restoreStep"] < newest["step"]
    assert status["failures"] == 0
    found = digits.world.get("checkpoint", newest["name"], "-n", digits.namespace)
    assert found["status"]["health"] == "Corrupt"
    assert "RestoreFailed" in digits.events()


def test_copies_come_from_different_members_and_a_majority_commits(job):
    """QR1, QR2: replicationFactor 3 on three workers."""
    digits = job.digits(workers=3, epochs=LONG, copies=3)
    name = digits.wait_committed()["name"]
    status = digits.world.get("checkpoint", name, "-n", digits.namespace)["status"]
    assert status["copies"] >= 2
    assert status["holders"] == ["worker-0:0", "worker-1:1", "worker-2:2"]
    store = next(digits.folder.glob(f"store-*/**/ckpt/{status['id']}"))
    acks = {path.name: json.loads(path.read_text())["holder"] for path in (store / "acks").iterdir()}
    pods = {pod["metadata"]["uid"] for pod in digits.pods().values()}
    assert set(acks.values()) <= pods
    assert len(set(acks.values())) == len(acks) >= 2


def test_lost_node_is_replaced_elsewhere_without_waiting_for_its_pods(job, until):
    """DT3, ND1, ND2, TR12, RC: the replacement keeps away from the node; the old pod may stay Terminating."""
    digits = job.digits(epochs=LONG)
    digits.wait_committed()
    node = digits.pods()["digits-worker-1"]["spec"]["nodeName"]
    digits.world.cluster.kill_node(node)
    try:
        until(lambda: "digits-worker-1-a1" in digits.pods(), 60, "the replacement", tell=digits.status)
        digits.wait_phase("Running", 60)
        status = digits.status()
        assert status["excludedNodes"][0]["name"] == node
        assert status["failures"] == 0
        assert digits.pods()["digits-worker-1-a1"]["spec"]["nodeName"] != node

        def stuck_pod():
            conditions = digits.status()["conditions"]
            return next((each for each in conditions if each["type"] == "OldPodStuck"), None)

        until(stuck_pod, 30, "word of the old pod", tell=digits.status)
        stuck = stuck_pod()
        assert (stuck["status"], stuck["reason"]) == ("True", "NodeLost")
        assert digits.pods()["digits-worker-1"]["metadata"]["deletionGracePeriodSeconds"] > 0, "it was forced"
        digits.wait_trains_on()
    finally:
        digits.world.cluster.start_node(node)
    until(lambda: "digits-worker-1" not in digits.pods(), 60, "the old pod goes when its node is back")


def test_killed_leader_is_followed_by_the_standby_and_training_never_stops(job, until):
    """FT10, TX4, RC8, LT8: no restart, no count, no second leader."""
    digits = job.digits(epochs=LONG)
    digits.wait_step(20)
    world = digits.world
    workers = digits.processes("worker")
    leader = until(world.leader, 20, "a leader")
    leader.kill()
    other = next(o for o in world.operators if o is not leader)
    try:
        until(other.leads, 30, "the standby leads")
        step = digits.status()["globalStep"]
        digits.wait_step(step + 30)
        assert digits.processes("worker") == workers
        status = digits.status()
        assert status["restarts"] == status["failures"] == status["disruptions"] == 0
    finally:
        leader.start().wait_ready()


def test_crash_loop_ends_the_trainer_after_backoff_limit(job, until):
    """TR01, RC1, RC3: attempts live in status; the failure that makes count > limit ends it."""
    policy = {"backoffLimit": 2, "backoff": {"baseSeconds": 1}}
    crashes = job.make("crashes", command=["python3", "-c", "raise SystemExit(3)"], retryPolicy=policy)
    until(lambda: crashes.phase() == "Failed", 60, "Failed", tell=crashes.status)
    status = crashes.status()
    assert (status["failures"], status["reason"]) == (3, "BackoffLimitExceeded")
    assert status["completionTime"]


def test_finished_and_idle_trainers_cost_no_write(job, until):
    """TR05, TR17, rule 4 of the architecture: counted in the API server's audit log."""
    digits = job.digits(epochs=2, pace=0.0)
    digits.wait_phase("Succeeded", 60)
    until(
        lambda: all(pod["status"]["phase"] == "Succeeded" for pod in digits.pods().values()), 30, "pods done"
    )
    time.sleep(3)  # the last events are on their way
    mark = digits.world.audit.mark()
    time.sleep(5)  # the silence itself is what is measured
    writes = [
        str(event)
        for event in digits.world.audit.since(mark)
        if event.verb not in {"get", "list", "watch"}
        and event.user.username == USER
        and event.object_ref.namespace == digits.namespace  # others' namespaces are being taken down
    ]
    assert writes == []


def test_zz_the_operator_was_never_refused_a_right(world):
    """RB5, TR41: the whole suite ran under the shipped role; any 403 fails it, those between two tests too."""
    assert [str(violation) for violation in refusals(world.audit.since(), operator=USER)] == []
