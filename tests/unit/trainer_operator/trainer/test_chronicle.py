"""What of a Trainer's decisions goes into the audit trail, and when."""

import pytest

from trainer_operator.api.trainer import Trainer
from trainer_operator.audit.chain import LONGEST_DETAIL
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.chronicle import NAMED, Chronicle, restart_entry, stacks_text
from trainer_operator.trainer.draft import EmitEvent, RecordStacks

W = [MemberId("worker", number) for number in range(2000)]


class Records:
    """Takes entries, and remembers whether they were owed."""

    def __init__(self):
        self.taken = []

    def record(self, entry, *, owed=False):
        self.taken.append((entry.id, owed))


def trainer(**status):
    return Trainer.read(
        {
            "metadata": {
                "name": "t",
                "namespace": "team",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"epochs": 1, "image": "x", "topology": {"workers": 2}},
            "status": status,
        }
    )


def restarted(number, reason="Crashed", **status):
    recovery = {
        "reason": reason,
        "message": "worker-1 ended with code 1",
        "members": ["worker-1", "worker-2"],
        "detectedAt": "2026-01-01T00:00:09Z",
        "step": 7,
    }
    return trainer(restarts=number, failures=number, recovery=recovery, **status)


@pytest.fixture
def records():
    return Records()


def test_an_undisturbed_trainer_records_nothing(records):
    """AU2: nor does one that succeeds."""
    chronicle = Chronicle(records)
    for status in ({}, {"phase": "Running", "globalStep": 9}, {"phase": "Succeeded"}):
        chronicle.follow(trainer(**status), [EmitEvent("Normal", "Started", "it runs")])
    assert records.taken == []


def test_each_restart_and_the_failure_are_told_once(records):
    """AU2, RC8."""
    chronicle = Chronicle(records)
    for each in (
        trainer(),
        restarted(1),
        restarted(1, globalStep=10),
        restarted(2),
        restarted(2, phase="Failed", reason="BackoffLimitExceeded", completionTime="2026-01-01T00:01:00Z"),
        restarted(2, phase="Failed", reason="BackoffLimitExceeded", completionTime="2026-01-01T00:01:00Z"),
    ):
        chronicle.follow(each)
    assert records.taken == [("u/restart/1", False), ("u/restart/2", False), ("u/fail", False)]


def test_a_new_leader_tells_what_may_be_owed_and_only_once(records):
    """RC8: the one before may have died between the status and the record."""
    failed = restarted(3, phase="Failed", completionTime="2026-01-01T00:01:00Z")
    chronicle = Chronicle(records)
    chronicle.follow(failed)
    chronicle.follow(failed)
    assert records.taken == [("u/restart/3", True), ("u/fail", True)]
    assert restart_entry(failed) == restart_entry(restarted(3)), "whoever tells it, and however late"


def test_stacks_come_before_the_restart_that_needs_them(records):
    """SL4."""
    chronicle = Chronicle(records)
    chronicle.follow(trainer())
    chronicle.follow(restarted(1, "Stalled"), [RecordStacks(1, W[0], {W[0]: "stack"})])
    assert [each for each, _ in records.taken] == ["u/stacks/1", "u/restart/1"]
    assert restart_entry(restarted(1, "Stalled")).needs == "u/stacks/1"
    assert restart_entry(restarted(1)).needs == ""


def test_a_restart_says_who_and_why():
    """AU1."""
    entry = restart_entry(restarted(1))
    assert (entry.chain, entry.time, entry.actor) == ("team", "2026-01-01T00:00:09Z", "trainer-operator")
    assert entry.object == {
        "apiVersion": "trainer.operator.kubeflow.org/v1alpha1",
        "kind": "Trainer",
        "namespace": "team",
        "name": "t",
        "uid": "u",
    }
    assert entry.details["members"] == "worker-1,worker-2"
    assert entry.details["message"] == "worker-1 ended with code 1"


def test_the_suspects_stack_comes_first_and_what_is_alike_is_written_once():
    text = stacks_text(W[1], {W[0]: "in recv", W[1]: "in load", W[2]: "in recv", W[3]: ""})
    assert text == (
        "worker-1 stands at:\nin load\nworker-0, worker-2 stand at:\nin recv\nno stack of worker-3\n"
    )


def test_stacks_of_thousands_of_members_fit_into_a_record():
    """AU9: what is left out is said."""
    alike = stacks_text(W[3], {**dict.fromkeys(W, "in recv"), W[3]: "in load"})
    assert f"and {1999 - NAMED} more stand at:\nin recv" in alike
    apart = stacks_text(W[3], {member: f"{member} in f" + "x" * 500 for member in W})
    assert apart.startswith("worker-3 stands at:\n")
    assert len(apart) <= LONGEST_DETAIL
    assert apart.endswith(" more members are left out\n")


def test_of_a_long_stack_the_end_is_kept_which_is_the_training_thread():
    text = stacks_text(W[0], {W[0]: "Thread 1\n" + "x" * 9000 + "\ntrain.py"})
    assert text.endswith("train.py\n")
    assert "characters are left out" in text
    assert len(text) <= LONGEST_DETAIL


def test_that_nobody_could_give_a_stack_is_recorded_too():
    assert stacks_text(W[0], {W[0]: "", W[1]: ""}) == "no stack of worker-0, worker-1\n"
    assert stacks_text(W[0], {}) == "no member gave a stack\n"
