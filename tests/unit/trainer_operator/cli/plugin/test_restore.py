"""Going back to another checkpoint: what is refused, what counts afterwards, and how the list shows it."""

import pytest

from trainer_operator.cli.plugin.checkpoints import restorable, table
from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.restore import choose
from trainersample import NOW, checkpoint, trainer


def named(step, *, spec=None, **status):
    made = checkpoint(step)
    made["spec"] |= spec or {}
    made["status"] |= status
    return made


def name_of(obj):
    return obj["metadata"]["name"]


def gone_back(step):
    """A Trainer that went back to a step once."""
    made = trainer(phase="Running")
    made["status"]["timelines"] = [{"number": 1, "parent": 0, "step": step}]
    return made


def test_any_sound_one_can_be_gone_back_to_also_one_that_was_left():
    """CK6."""
    chosen, left = named(20), named(30)
    assert choose(gone_back(20), [left, chosen], name_of(chosen)) is chosen
    assert choose(gone_back(20), [left, chosen], name_of(left)) is left


def test_a_restart_takes_the_highest_step_of_the_path_and_not_of_all():
    """RS1, CK6, IV4."""
    chosen, left = named(20), named(30)
    assert restorable(trainer(phase="Running"), [left, chosen]) is left
    assert restorable(gone_back(20), [left, chosen]) is chosen
    later = named(25, timeline=1)
    assert restorable(gone_back(20), [left, later, chosen]) is later
    assert restorable(gone_back(20), [named(25, timeline=1, health="Corrupt"), chosen]) is chosen


def test_the_list_shows_the_timeline_and_what_was_left():
    """CK6: only where there is more than one."""
    found = [named(30), named(25, timeline=1), named(20)]
    plain = [line.plain for line in table(trainer(phase="Running"), found, NOW)]
    assert "TIMELINE" not in plain[0]
    header, *rows = [line.plain for line in table(gone_back(20), found, NOW)]
    column = header.index("TIMELINE")
    assert [row[column : column + 8].strip() for row in rows] == ["0 (left)", "1", "0"]
    assert ["next" in row for row in rows] == [False, True, False]


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
    ],
)
def test_what_cannot_be_gone_back_to_is_refused_before_anything_is_changed(found, phase, sentence, code):
    """CL1, GC1."""
    with pytest.raises(Complaint, match=sentence) as told:
        choose(trainer(phase=phase), found, name_of(named(20)))
    assert told.value.code is code
