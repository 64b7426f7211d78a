"""Hand-made audit logs: a life without fault is clean, and each invariant is broken once in each of its ways."""

import copy

import pytest

from trainer_operator.api.names import pod_labels, pod_name
from trainer_operator.demo.invariants import (
    ALLOWED,
    FINAL,
    FORWARD,
    ONE_COUNT,
    ONE_POD,
    QUIET,
    REST_SLACK,
    check,
)
from trainer_operator.devcluster.auditlog import AuditEvent, Caller, Outcome, Target

OPERATOR, USER, KUBELET = "the-operator", "somebody", "system:node:node-0"


class Log:
    """An API server reduced to the log of its answers."""

    def __init__(self):
        self.events = []
        self.version = 10
        self.trainer = {}

    def add(self, verb, resource, body, *, code=200, user=OPERATOR, sub="", message=""):
        name = (body or {}).get("metadata", {}).get("name", "")
        self.events.append(
            AuditEvent(
                verb=verb,
                user=Caller(user),
                object_ref=Target(resource=resource, namespace="ns", name=name, subresource=sub),
                response_status=Outcome(code, message),
                response_object=copy.deepcopy(body),
            )
        )

    def create(self, workers=2, **spec):
        self.version += 1
        metadata = {"name": "t", "namespace": "ns", "uid": "uid-t", "resourceVersion": str(self.version)}
        topology = {"workers": workers}
        self.trainer = {"kind": "Trainer", "metadata": metadata, "spec": {"topology": topology, **spec}}
        self.add("create", "trainers", self.trainer, code=201, user=USER)
        return self

    def edit(self, **spec):
        self._write("spec", {**self.trainer["spec"], **spec}, user=USER, verb="patch")
        return self

    def status(self, *, user=OPERATOR, **changes):
        """Write these fields of the status; members as {"worker-1": {...}}."""
        members = changes.pop("members", None)
        status = {**self.trainer.get("status", {}), **changes}
        if members is not None:
            status["members"] = [
                {"role": key.split("-")[0], "index": int(key.split("-")[1]), **entry}
                for key, entry in members.items()
            ]
        self._write("status", status, user=user, verb="update", sub="status")
        return self

    def again(self):
        """Write the status as it is: the API server keeps the version."""
        self.add("update", "trainers", self.trainer, sub="status")
        return self

    def _write(self, part, value, **how):
        self.version += 1
        self.trainer = copy.deepcopy(self.trainer)
        self.trainer[part] = value
        self.trainer["metadata"]["resourceVersion"] = str(self.version)
        self.add(how.pop("verb"), "trainers", self.trainer, **how)

    def child(self, resource, name, labels):
        self.version += 1
        owner = {"uid": "uid-t", "kind": "Trainer", "controller": True}
        metadata = {"name": name, "resourceVersion": str(self.version), "labels": labels}
        self.add("create", resource, {"metadata": {**metadata, "ownerReferences": [owner]}}, code=201)
        return self

    def pod(self, index, attempt=0, role="worker"):
        return self.child("pods", pod_name("t", role, index, attempt), pod_labels("t", role, index, attempt))

    def gone(self, name):
        self.add("delete", "pods", {"metadata": {"name": name}}, user=KUBELET)
        return self

    def broken(self):
        return [violation.sentence for violation in check(self.events, operator=OPERATOR)]


def running():
    """Two workers train at step 10."""
    log = Log().create().status(phase="Pending").pod(0).pod(1)
    return log.status(phase="Running", globalStep=10, membership={"epoch": 1}, failures=0, disruptions=0)


def crashed(log=None):
    """The process of worker 1 ended, and the epoch goes back to step 8."""
    return (log or running()).status(
        phase="Recovering",
        failures=1,
        restarts=1,
        members={"worker-1": {"failures": 1, "handled": "0/boot/1", "attempt": 0}},
        globalStep=8,
        rollbacks=1,
        lastRollback={"from": 11, "to": 8},
        membership={"epoch": 2},
    )


def pod_deleted():
    """The pod of worker 1 was deleted, and the next attempt is named."""
    member = {"disruptions": 1, "handled": "0/pod", "attempt": 1}
    return running().gone("t-worker-1").status(disruptions=1, restarts=1, members={"worker-1": member})


def test_a_life_with_failures_suspension_and_scaling_is_clean():
    """TR01, TR02, TR17, ME7."""
    log = crashed(running())
    members = {
        "worker-0": {"disruptions": 1, "handled": "0/pod", "attempt": 1},
        "worker-1": {"failures": 1, "handled": "0/boot/1"},
    }
    log.gone("t-worker-0").status(disruptions=1, restarts=2, members=members).pod(0, attempt=1)
    log.status(phase="Running", globalStep=30)
    log.edit(suspend=True).status(phase="Suspended", membership={"epoch": 3})
    log.gone("t-worker-0-a1").gone("t-worker-1").status(workers=0)
    log.edit(suspend=False).status(phase="Pending").pod(0, attempt=1).pod(1)
    log.edit(topology={"workers": 1}).gone("t-worker-1").edit(topology={"workers": 2}).pod(1)
    log.status(phase="Succeeded", globalStep=40, reason="Completed", completionTime="now")
    log.status(workers=0).gone("t-worker-1")
    assert log.broken() == []


def test_a_gang_that_was_released_may_have_pods_of_the_same_names_again():
    """GS2, ME4: but not while it waits for nothing."""
    log = running().gone("t-worker-1").pod(1)
    assert log.broken() == [ONE_POD]
    released = running().status(phase="Pending", gang={"tries": 1, "notBefore": "later"})
    assert released.gone("t-worker-1").status(gang={"tries": 1}).pod(1).broken() == []


def test_what_began_before_the_slice_is_left_alone():
    log = running().status(phase="Succeeded").status(phase="Running")
    del log.events[0]
    assert log.broken() == []


@pytest.mark.parametrize(
    "change",
    [{"phase": "Running"}, {"reason": "Other"}, {"failures": 1, "members": {"worker-0": {"handled": "k"}}}],
)
def test_a_terminal_state_that_changes_is_found(change):
    """TR02."""
    ended = running().status(phase="Failed", reason="BackoffLimitExceeded", completionTime="now")
    assert set(ended.status(**change).broken()) == {FINAL}


def test_a_finished_trainer_that_makes_a_pod_or_a_checkpoint_is_found():
    """TR05."""
    ended = running().edit(topology={"workers": 3}).status(phase="Succeeded")
    assert ended.pod(2).broken() == [FINAL]
    assert ended.child("checkpoints", "t-c00001", {}).broken() == [FINAL, FINAL]


def test_two_pods_of_one_attempt_are_found():
    """R1, ME4, TR24."""
    assert running().gone("t-worker-1").pod(1).broken() == [ONE_POD]


def test_a_pod_whose_attempt_status_did_not_name_first_is_found():
    """RC4: the decision is stored before the action."""
    assert running().gone("t-worker-1").pod(1, attempt=1).broken() == [ONE_POD]
    assert pod_deleted().pod(1, attempt=1).broken() == []


def test_a_write_that_changes_nothing_is_found():
    """TR17."""
    assert running().again().broken() == [QUIET]


def test_writes_without_a_cause_for_a_suspended_trainer_are_found():
    """TR06, TR17."""
    log = running().edit(suspend=True).status(phase="Suspended")
    for number in range(REST_SLACK):
        log.status(workers=number)
    assert log.broken() == []
    assert log.status(workers=99).broken() == [QUIET]


def test_writes_at_rest_that_follow_from_pods_are_allowed():
    log = running().edit(suspend=True).status(phase="Suspended")
    for number in range(2 * REST_SLACK):
        log.gone("t-worker-1").status(workers=number)
    log.gone("t-worker-1")
    assert log.broken() == []


def test_a_refused_right_is_found_and_a_namespace_on_its_way_out_is_no_refusal():
    """RB5, TR41."""
    log = Log()
    log.add("create", "pods", None, code=403, message="ns is forbidden because it is being terminated")
    log.add("create", "pods", None, code=403, message="pods is forbidden", user=USER)
    assert log.broken() == []
    log.add("create", "pods", None, code=403, message="pods is forbidden: User cannot create")
    assert log.broken() == [ALLOWED]


def test_a_failure_that_is_counted_a_second_time_is_found():
    """RC4, TR01."""
    member = {"failures": 2, "handled": "0/boot/1"}
    assert ONE_COUNT in crashed().status(failures=2, restarts=2, members={"worker-1": member}).broken()


def test_a_key_that_comes_back_is_the_same_failure():
    """RC4: handled, forgotten, and counted again."""
    log = crashed().status(members={"worker-1": {"failures": 1, "handled": ""}})
    log.status(failures=2, members={"worker-1": {"failures": 2, "handled": "0/boot/1"}})
    assert ONE_COUNT in log.broken()


def test_a_count_without_any_failure_is_found():
    """RC3."""
    assert running().status(failures=1).broken() == [ONE_COUNT]


def test_a_group_that_failed_together_is_counted_once():
    """RC1."""
    both = {name: {"failures": 1, "handled": "0/b/1"} for name in ("worker-0", "worker-1")}
    assert running().status(failures=1, restarts=1, members=both).broken() == []
    assert running().status(failures=2, restarts=1, members=both).broken() == [ONE_COUNT]


@pytest.mark.parametrize("name", ["failures", "disruptions", "restarts", "rollbacks", "checkpointSequence"])
def test_a_counter_that_falls_is_found(name):
    """RC4."""
    log = Log().create().status(**{name: 1}, members={"worker-0": {"handled": "k"}})
    assert ONE_COUNT in log.status(**{name: 0}).broken()


def test_a_step_that_falls_without_a_rollback_is_found():
    """ME7."""
    assert running().status(globalStep=9).broken() == [FORWARD]


@pytest.mark.parametrize("rollback", [{"from": 9, "to": 8}, {"from": 10, "to": 9}])
def test_a_rollback_that_explains_only_a_part_is_found(rollback):
    """ME7."""
    log = running().status(globalStep=8, rollbacks=1, lastRollback=rollback)
    assert log.broken() == [FORWARD]


def test_an_old_rollback_explains_no_new_fall():
    """ME7."""
    assert crashed().status(globalStep=7).broken() == [FORWARD]


def test_states_are_ordered_by_version_and_not_by_the_end_of_their_requests():
    log = running().status(globalStep=20)
    log.events[-1], log.events[-2] = log.events[-2], log.events[-1]
    assert log.broken() == []


def test_a_violation_tells_the_sentence_and_the_requests():
    (violation,) = check(running().status(globalStep=9).events, operator=OPERATOR)
    assert FORWARD in str(violation)
    assert "ns/t went from step 10 to 9" in str(violation)
    assert str(violation).count("update trainers/status ns/t -> 200") == 2
