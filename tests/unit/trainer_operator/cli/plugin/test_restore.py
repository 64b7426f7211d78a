"""Going back to an older checkpoint: what is refused, and what would be deleted."""

import pytest

from trainer_operator.cli.plugin.checkpoints import restorable
from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.restore import choose, newer
from trainersample import checkpoint, trainer


def named(step, *, spec=None, **status):
    made = checkpoint(step)
    made["spec"] |= spec or {}
    made["status"] |= status
    return made


def name_of(obj):
    return obj["metadata"]["name"]


def test_all_committed_ones_after_it_are_deleted_and_nothing_else():
    """CK6: those that were given up count for nothing, and those that were discarded are on their way."""
    chosen, later, open_one = named(20), named(30), named(50, state="Staging")
    found = [open_one, named(40, spec={"discard": True}), later, chosen, named(10)]
    assert choose(trainer(phase="Running"), found, name_of(chosen)) is chosen
    assert newer(found, chosen) == [later]


def test_a_restart_takes_the_one_that_it_went_back_to():
    """RS1, CK6."""
    chosen = named(20)
    assert restorable([named(30, spec={"discard": True}), chosen]) is chosen


@pytest.mark.parametrize(
    ("found", "phase", "sentence", "code"),
    [
        ([named(20)], "Succeeded", "has succeeded", ExitCode.NOT_NOW),
        (
            [named(30)],
            "Running",
            "has no Checkpoint .*: committed are digits-000000000030",
            ExitCode.NOT_FOUND,
        ),
        ([], "Running", "committed are none", ExitCode.NOT_FOUND),
        ([named(20, state="Staging")], "Running", "is Staging: only committed", ExitCode.NOT_NOW),
        ([named(20, spec={"discard": True})], "Running", "is discarded", ExitCode.NOT_NOW),
        ([named(20, health="Corrupt")], "Running", "is Corrupt: choose another", ExitCode.NOT_NOW),
        ([named(30, spec={"hold": True}), named(20)], "Running", "newer ones are held", ExitCode.NOT_NOW),
    ],
)
def test_what_cannot_be_gone_back_to_is_refused_before_anything_is_changed(found, phase, sentence, code):
    """CL1, GC1."""
    with pytest.raises(Complaint, match=sentence) as told:
        choose(trainer(phase=phase), found, name_of(named(20)))
    assert told.value.code is code
