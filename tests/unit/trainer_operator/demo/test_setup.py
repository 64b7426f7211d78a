"""The steps of the set-up, and what the undisturbed training says."""

import stat

import pytest

from trainer_operator.demo.setup import Steps, parse_result, write_private
from trainer_operator.demo.verify import Reference


async def test_a_step_is_shown_from_its_begin_and_timed_at_its_end():
    now = 1.0
    steps = Steps(lambda: now)
    async with steps.step("operators") as detail:
        assert [(step.title, step.began, step.seconds) for step in steps.all] == [("operators", 1.0, None)]
        detail("starting")
        assert steps.all[0].detail == "starting"
        now = 3.5
    assert steps.all[0].seconds == 2.5


async def test_a_step_that_fails_is_never_done():
    steps = Steps(lambda: 1.0)
    with pytest.raises(RuntimeError, match="no"):
        async with steps.step("operators"):
            raise RuntimeError("no")
    assert steps.all[0].seconds is None


def test_the_result_of_the_undisturbed_training_is_read():
    assert parse_result("accuracy 0.9722 after 1150 steps") == Reference(0.9722, 1150)


@pytest.mark.parametrize(
    "line", ["", "accuracy x after 1 steps", "accuracy 0.9 after many steps", "Traceback"]
)
def test_what_is_no_result_is_none(line):
    assert parse_result(line) is None


def test_a_private_file_is_for_its_owner_only(tmp_path):
    path = tmp_path / "new" / "kubeconfig"
    write_private(path, "text")
    assert path.read_text() == "text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
