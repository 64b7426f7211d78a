"""Stalls, the State Tree over HTTPS, and training that goes on smaller: on the real cluster with real processes."""

import json
import os
import re
import signal
import ssl
import urllib.error
import urllib.request

import pytest

LONG = 2000
"""Epochs of a training that is not meant to end within its test."""
HARD = 60
"""Seconds that a step may take at least before anything is done."""


def get_tree(world, namespace, name, token):
    """Ask the leader; returns status and body."""
    operator = world.leader()
    address = next(a for a in operator.command if a.startswith("--agent-bind-address=")).partition("=")[2]
    request = urllib.request.Request(f"https://{address}/v1/trees/{namespace}/{name}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    trust = ssl.create_default_context(cafile=str(world.folder / "tls" / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=20, context=trust) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


@pytest.fixture
def reader(job):
    """A service account that may get Trainers of the namespace."""
    kubectl = job.world.kubectl
    kubectl("create", "serviceaccount", "reader", "-n", job.namespace)
    kubectl("create", "role", "reader", "--verb=get", "--resource=trainers", "-n", job.namespace)
    kubectl(
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        f"--serviceaccount={job.namespace}:reader",
        "-n",
        job.namespace,
    )
    return kubectl("create", "token", "reader", "-n", job.namespace).strip()


def test_who_may_get_the_trainer_sees_its_members(job, reader, until):
    """CR10, ST4, ST5: four facts of each member, rolled up to roles."""
    digits = job.digits(mode="ps", workers=2, servers=1, epochs=LONG)
    digits.wait_step(60)

    def ready():
        status, body = get_tree(job.world, job.namespace, "digits", reader)
        assert status == 200
        return body if [role["worst"] for role in body["roles"]] == ["Ready", "Ready"] else None

    tree = until(ready, 60, "all members Ready")
    assert tree["trainer"] == f"{job.namespace}/digits"
    workers = tree["roles"][0]
    assert (workers["role"], workers["desired"], workers["ready"]) == ("worker", 2, 2)
    first = workers["members"][0]
    assert (first["member"], first["pod"], first["state"]) == ("worker-0", "digits-worker-0", "Ready")
    assert (first["live"], first["ready"], first["progressing"]) == (True, True, True)
    assert first["step"] > 0
    assert first["stepsPerSecond"] > 1
    digits.world.kubectl("delete", "trainer", "digits", "-n", job.namespace)
    until(
        lambda: get_tree(job.world, job.namespace, "digits", reader)[0] in {403, 404}, 30, "it is forgotten"
    )


def test_who_may_not_get_the_trainer_is_refused_in_one_sentence(job, reader):
    """AA: token and right are the API server's word."""
    job.digits(epochs=LONG)
    stranger = job.world.kubectl("create", "token", "default", "-n", job.namespace).strip()
    status, body = get_tree(job.world, job.namespace, "digits", stranger)
    assert (status, body["error"]) == (
        403,
        f"system:serviceaccount:{job.namespace}:default may not get Trainer digits in namespace {job.namespace}",
    )
    assert get_tree(job.world, job.namespace, "digits", "nonsense")[0] == 401
    assert get_tree(job.world, job.namespace, "digits", "")[0] == 401
    assert get_tree(job.world, job.namespace, "nothing", reader)[0] == 404


APART = """
import os, sys, time
import trainer_sdk

job, orders, step = trainer_sdk.init(), sys.argv[1], 0
while True:
    time.sleep(0.05)
    step += 1
    job.step(step)
    try:
        os.unlink(os.path.join(orders, "hang"))
    except FileNotFoundError:
        continue
    time.sleep(3600)
"""
"""Members that train each for itself; whichever finds the order hangs."""


def test_a_process_that_hangs_is_found_its_stacks_kept_and_training_goes_on(job, until):
    """FT05, FT06, SL2, SL3, SL4, SL5, LT5: all agents beat, all processes live, and no step comes.

    Of one training a process is stopped and the others wait for it, of another one hangs and the others go on. As the
    pods share the machine's network, that can't be told to be quiet.
    """
    digits = job.digits(epochs=LONG)
    apart = job.make("apart", command=["python3", "-c", APART, str(job.folder)], topology={"workers": 2})
    digits.wait_step(100)
    digits.wait_committed()
    apart.wait_step(100)
    os.kill(digits.processes("worker")[1], signal.SIGSTOP)
    (job.folder / "hang").touch()
    for each in (digits, apart):
        until(lambda each=each: each.status().get("suspects"), 90, "a suspicion", tell=each.status)
        assert each.status()["restarts"] == 0
    for each in (digits, apart):
        until(lambda each=each: each.status()["restarts"] == 1, 150, "the restart", tell=each.status)
    status = digits.wait_trains_on()
    assert status["recovery"]["reason"] == "Stalled"
    assert (status["failures"], status["disruptions"], status["membership"]["epoch"]) == (1, 0, 2)
    assert not status.get("stall")
    told = {(name, reason): message for name, reason, message in stories(job)}
    assert {"Suspect", "StallDetected", "StackDump", "Stalled"} <= {reason for _, reason in told}
    assert "train.py" in told["digits", "StackDump"]
    assert "restart in place" in told["digits", "Stalled"]
    assert told["digits", "StallDetected"].startswith("worker-1 ")
    assert "it alone prints no stack" in told["digits", "StallDetected"]
    alone = told["apart", "StallDetected"]
    for sign in (
        "it uses no processor time",
        "others have finished more steps",
        "it stands in <module> (<string>:",
    ):
        assert sign in alone
    for name in ("digits", "apart"):
        seconds = int(re.search(r"finished no step for (\d+) s", told[name, "StallDetected"])[1])
        assert seconds < 2 * HARD, "it did not wait for more than two signs"
        (stacks, restart) = audit_trail(job, name)
        assert (stacks["action"], restart["action"]) == ("StackDump", "Restart")
        assert restart["details"]["reason"] == "Stalled"
        assert "worker-0" in stacks["details"]["stacks"]
        assert "worker-1" in stacks["details"]["stacks"]
    assert "train.py" in audit_trail(job, "digits")[0]["details"]["stacks"]


def audit_trail(job, name):
    """Return what is recorded of a Trainer, in order."""
    of_namespace = f"spec.objectRef.namespace={job.namespace}"
    records = job.world.get("auditlogs", "-n", "kubeflow-audit", "--field-selector", of_namespace)["items"]
    return [each["spec"] for each in records if each["spec"]["objectRef"]["name"] == name]


def stories(job):
    events = job.world.get("events", "-n", job.namespace)["items"]
    return [(each["involvedObject"]["name"], each["reason"], each["message"]) for each in events]


def test_an_elastic_trainer_goes_on_smaller_and_grows_when_there_is_room_again(job, until):
    """ME3, ME6, ME7: a worker finds no node; the others train on, and it joins without a lost step."""
    digits = job.digits(epochs=LONG, elastic={"minWorkers": 1})
    digits.wait_committed()
    nodes = [node["metadata"]["name"] for node in job.world.get("nodes")["items"]]
    job.world.kubectl("cordon", *nodes)
    try:
        job.world.kubectl("delete", "pod", "digits-worker-1", "-n", job.namespace, "--wait=false")
        until(
            lambda: (
                digits.status()["membership"]["members"] == "worker:0"
                and digits.status()["membership"]["phase"] == "Active"
            ),
            90,
            "an epoch of one",
            tell=digits.status,
        )
        status = digits.wait_trains_on()
        degraded = next(c for c in status["conditions"] if c["type"] == "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "MembersMissing")
        assert "ContinuingSmaller" in digits.events()
    finally:
        job.world.kubectl("uncordon", *nodes)
    rollbacks = digits.status().get("rollbacks", 0)
    until(
        lambda: (
            digits.status()["membership"]["members"] == "worker:0-1"
            and digits.status()["membership"]["phase"] == "Active"
        ),
        90,
        "an epoch of both",
        tell=digits.status,
    )
    status = digits.wait_trains_on()
    assert status.get("rollbacks", 0) == rollbacks
    assert status["failures"] == 0
