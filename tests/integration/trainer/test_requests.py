"""What users and queues ask for, on a real API server: suspend with changes, other managers, names, a namespace's end."""

import json

SLEEP = ["python3", "-c", "import time; time.sleep(3600)"]


def service_of(made):
    found = made.world.kubectl(
        "get", "service", f"trainer-{made.name}", "-n", made.namespace, "-o", "json", "--ignore-not-found"
    )
    return json.loads(found) if found.strip() else None


def scheduled(job):
    conditions = job.status().get("conditions") or ()
    return next((each["reason"] for each in conditions if each["type"] == "Scheduled"), "")


def test_changes_that_come_with_the_resume_reach_the_new_pods(job, until):
    """TR35: one request lifts the suspension and brings all that a queue says of a role; labels are merged."""
    queued = job.make("queued", command=SLEEP, suspend=True)
    queued.wait_phase("Suspended", 60)
    assert queued.pods() == {}
    gate, toleration = "kueue.x-k8s.io/topology", {"key": "spot", "operator": "Exists"}
    placement = {
        "nodeSelector": {"pool": "spot"},
        "tolerations": [toleration],
        "labels": {"kueue.x-k8s.io/podset": "worker"},
        "annotations": {"kueue.x-k8s.io/workload": "trainer-queued"},
        "schedulingGates": [{"name": gate}],
    }
    topology = {"roles": {"worker": placement}, "podSpec": {"labels": {"team": "vision"}}}
    queued.patch({"suspend": False, "topology": topology})
    until(lambda: "queued-worker-0" in queued.pods(), 60, "the pod", tell=queued.status)
    pod = queued.pods()["queued-worker-0"]
    assert pod["spec"]["nodeSelector"] == {"pool": "spot"}
    assert toleration in pod["spec"]["tolerations"]
    assert pod["spec"]["schedulingGates"] == [{"name": gate}]
    labels = {"team": "vision", "trainer-name": "queued", "kueue.x-k8s.io/podset": "worker"}
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "trainer-queued"
    until(lambda: scheduled(queued) == "SchedulingGated", 60, "the condition", tell=queued.status)


def test_a_pattern_that_the_api_server_cannot_check_is_told_in_a_condition(job, until):
    """TR30: accepted, not started, and started once it is corrected."""
    made = job.make("rules", command=SLEEP, failureRules=[{"messagePattern": "(", "action": "Ignore"}])

    def told():
        rows = made.status().get("conditions") or ()
        return next((each["message"] for each in rows if each["type"] == "FailureRulesValid"), "")

    assert "messagePattern '(' is no regular expression" in until(told, 60, "the condition", tell=made.status)
    assert made.pods() == {}
    made.patch({"failureRules": [{"messagePattern": "NCCL", "action": "Ignore"}]})
    until(made.pods, 60, "the pod", tell=made.status)


def test_every_member_has_a_name_below_the_trainers_service(job, until):
    """TR22, TR24, TR40: headless, owned, there before a pod is ready, and back when somebody deleted it."""
    named = job.make("7b", command=SLEEP)
    service = until(lambda: service_of(named), 60, "the Service", tell=named.status)
    assert (service["spec"]["clusterIP"], service["spec"]["publishNotReadyAddresses"]) == ("None", True)
    (owner,) = service["metadata"]["ownerReferences"]
    assert owner["uid"] == named.object()["metadata"]["uid"]
    named.world.kubectl("delete", "service", "trainer-7b", "-n", named.namespace)
    until(lambda: service_of(named), 60, "a Service again", tell=named.status)
    pod = named.pods()["7b-worker-0"]
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("7b-worker-0", "trainer-7b")


def test_a_trainer_of_another_manager_is_not_touched(job, until):
    """TR36: no status, no finalizer, no pod, no event, while one made after it gets its pod."""
    theirs = job.make("theirs", command=SLEEP, managedBy="kueue.x-k8s.io/multikueue")
    ours = job.make("ours", command=SLEEP)
    until(ours.pods, 60, "the pod of ours", tell=ours.status)
    found = theirs.object()
    assert "status" not in found
    assert "finalizers" not in found["metadata"]
    assert (theirs.pods(), service_of(theirs)) == ({}, None)
    events = theirs.world.get("events", "-n", theirs.namespace)["items"]
    assert [event for event in events if event["involvedObject"]["name"] == "theirs"] == []


def test_a_namespace_with_a_trainer_is_deleted_and_nothing_is_asked_for_there_again_and_again(job, until):
    """EC7: creation is skipped for good after the first refusals; no back-off loop."""
    ending = job.make("ending", command=SLEEP)
    until(ending.pods, 60, "the pod", tell=ending.status)
    world, namespace = ending.world, ending.namespace
    mark = world.audit.mark()
    world.kubectl("delete", "namespace", namespace, "--wait=false")
    until(
        lambda: not world.kubectl("get", "namespace", namespace, "--ignore-not-found").strip(),
        110,
        "the end of the namespace",
    )
    asked = [
        str(event)
        for event in world.audit.since(mark)
        if event.verb == "create"
        and event.object_ref.namespace == namespace
        and event.object_ref.resource in {"pods", "services", "checkpoints"}
        and event.response_status.code == 403
        and "trainer-operator" in event.user.username
    ]
    assert len(asked) <= 2, asked
