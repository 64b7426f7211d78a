"""What comes of a checkpoint that was asked for, and of a verification."""

import pytest

from trainer_operator.api.checkpoint import Checkpoint
from trainer_operator.cli.plugin.asking import can_import, can_save, is_importing, manifest, saved, verified
from trainer_operator.cli.plugin.checkpoints import restorable, restore_line
from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.kinds import IMPORT_ANNOTATION
from trainer_operator.cli.plugin.words import size
from trainersample import NOW, checkpoint, trainer

READ = "2026-01-01T12:09:00Z"


def with_status(**status):
    made = checkpoint(1068)
    made["status"] |= status
    return made


def aborted(reason, message):
    return [{"type": "Aborted", "status": "True", "reason": reason, "message": message}]


def test_a_checkpoint_is_waited_for_until_it_is_committed():
    """CL1, CS3."""
    assert saved(with_status(state="Pending")) is None
    assert saved(with_status(state="Staging")) is None
    name = checkpoint(1068)["metadata"]["name"]
    assert saved(with_status()) == f"checkpoint/{name} of step 1068 is committed: 1.5 MiB"


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"conditions": aborted("Full", "no space\nleft")}, "was given up: Full: no space left"),
        ({}, "was deleted meanwhile"),
    ],
)
def test_one_that_was_given_up_ends_the_wait_with_the_reason(status, sentence):
    """CL1, CS4, ATK13."""
    with pytest.raises(Complaint, match=sentence) as told:
        saved(with_status(state="GarbageCollected", **status))
    assert told.value.code is ExitCode.FAILED


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"checkpoint": None}, "has no spec.checkpoint"),
        ({"phase": "Suspended"}, "is Suspended: nothing runs"),
        ({"phase": "Succeeded"}, "is Succeeded: nothing runs"),
    ],
)
def test_nothing_is_asked_of_a_trainer_that_cannot_save(change, sentence):
    """CL1: said at once, and not after a minute of waiting."""
    made = trainer(**{"phase": "Running", **change})
    made["spec"]["checkpoint"] = change.get("checkpoint", {"bucket": "pvc"})
    with pytest.raises(Complaint, match=sentence) as told:
        can_save(made)
    assert told.value.code is ExitCode.NOT_NOW


def test_what_is_asked_for_is_a_checkpoint_of_this_trainer_and_no_other():
    """CR8: valid to the API, owned, and never of a name that was there before."""
    made = trainer()
    asked = Checkpoint.read(manifest(made, NOW))
    assert asked.spec.trainer_ref.uid == made["metadata"]["uid"]
    assert asked.spec.reason == "OnDemand"
    assert manifest(made, NOW)["metadata"]["name"] != manifest(made, NOW)["metadata"]["name"]


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"verified": "Listed", "lastVerified": READ},
        {"verified": "Full", "lastVerified": "2026-01-01T11:00:00Z"},
    ],
)
def test_a_verification_waits_for_a_full_read_that_was_made_since(status):
    """PB1: what was listed at the commit, or read before, is no answer."""
    assert verified(with_status(**status), NOW.replace(hour=12, minute=0)) is None


def test_a_verification_tells_what_was_found():
    """PB2, PB4: damage is a failure of the command."""
    found = [{"type": "Verified", "reason": "Read", "message": "one copy was mended"}]
    full = {"verified": "Full", "lastVerified": READ, "conditions": found}
    asked = NOW.replace(hour=12, minute=0)
    assert verified(with_status(**full), asked).endswith("is Healthy: one copy was mended")
    with pytest.raises(Complaint, match="is Corrupt: one copy"):
        verified(with_status(**full, health="Corrupt"), asked)
    with pytest.raises(Complaint, match="was deleted meanwhile"):
        verified(with_status(state="GarbageCollected"), asked)


def test_a_restore_takes_the_newest_that_is_sound():
    """RS1."""
    good, bad = checkpoint(10), with_status(health="Corrupt")
    made = trainer(globalStep=11)
    assert restorable(made, [bad, good]) is good
    assert restorable(made, [bad]) is None
    assert "(1.5 MiB); 1 step would be repeated." in restore_line(made, [bad, good]).plain
    assert restore_line(made, [bad]).plain.startswith("A restart would begin at step 0")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB")]
)
def test_sizes_are_written_as_the_operator_writes_them(count, text):
    """CL1."""
    assert size(count) == text


def test_an_import_is_for_a_trainer_at_rest_and_its_failure_is_the_command_s():
    """RS6, CL1."""
    made = trainer(phase="Running")
    made["spec"]["checkpoint"] = {"bucket": "pvc"}
    with pytest.raises(Complaint, match="is Running: `kubectl trainer suspend digits` first"):
        can_import(made)
    assert not is_importing(made)
    made["metadata"]["annotations"] = {IMPORT_ANNOTATION: "2026-01-01T00:00:00Z"}
    assert is_importing(made)
    made["metadata"]["annotations"] = {IMPORT_ANNOTATION: "failed: Unreachable: no answer"}
    with pytest.raises(Complaint, match="Unreachable: no answer"):
        is_importing(made)
