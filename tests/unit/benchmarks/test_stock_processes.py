"""A training on process nodes has recovered when as many processes as before take steps after the last start."""

import subprocess
import sys
import time

import pytest

from benchmarks.stock.plan import ARMS, new_arm
from benchmarks.stock.scenarios import processes
from benchmarks.stock.scenarios.processes import Line, Recovery, read, recovery, trained, with_command

PATIENCE = 60.0
BEFORE = [Line(1.0, "start", "a"), Line(1.0, "start", "b"), Line(9.0, "step", "a"), Line(9.0, "step", "b")]
CAUSE = [*BEFORE, Line(10.0, "cause", "b")]


def test_others_that_go_on_are_no_recovery():
    assert recovery(BEFORE, size=2) is None
    assert recovery([*CAUSE, Line(11.0, "step", "a")], size=2) is None


def test_a_process_that_comes_in_place_of_the_failed_one_takes_the_next_step():
    lines = [*CAUSE, Line(12.0, "start", "c"), Line(12.5, "step", "c")]
    assert recovery(lines, size=2) is None
    assert recovery([*lines, Line(12.6, "step", "a")], size=2) == Recovery(2.0, 2.5, 1)


def test_all_that_are_started_anew_count_and_the_last_of_them_ends_the_recovery():
    lines = [*CAUSE, Line(12.0, "start", "c"), Line(12.1, "step", "c"), Line(13.0, "start", "d")]
    assert recovery([*lines, Line(13.5, "step", "d")], size=2) is None
    assert recovery([*lines, Line(13.5, "step", "d"), Line(13.6, "step", "c")], size=2) == Recovery(
        3.0, 3.5, 2
    )


def test_only_steps_since_the_last_start_count_as_training():
    assert trained(BEFORE, steps=1) == 2
    assert trained([*BEFORE, Line(9.5, "start", "c"), Line(9.6, "step", "a")], steps=1) == 1
    assert trained([], steps=1) == 0


def test_a_line_that_is_half_written_is_left_for_later(tmp_path):
    log = tmp_path / "log"
    assert read(log) == []
    log.write_text("1.5 start a\n2.5 st")
    assert read(log) == [Line(1.5, "start", "a")]


@pytest.mark.parametrize("name", [name for name in ARMS if name != "raw"])
def test_every_arm_runs_the_same_program(name):
    job = new_arm(name).job("some", pods=3)
    text = str(with_command(job, ["python3", "member.py"]))
    assert "['python3', 'member.py']" in text
    assert "train.py" not in text
    assert "train.py" in str(job)


@pytest.mark.parametrize(("order", "code"), [("exit", 137), ("hang", None)])
def test_the_program_fails_as_it_is_told_and_only_once(tmp_path, order, code):
    program = [sys.executable, "-I", str(processes._PROGRAM), str(tmp_path)]
    with subprocess.Popen(program) as first, subprocess.Popen(program) as second:
        try:
            wait(lambda: {line.event for line in read(tmp_path / "log")} >= {"start", "step"})
            (tmp_path / order).touch()
            wait(lambda: any(line.event == "cause" for line in read(tmp_path / "log")))
            lines = read(tmp_path / "log")
            (failed,) = (line.process for line in lines if line.event == "cause")
            wait(lambda: is_followed(read(tmp_path / "log"), failed))
            after = [line for line in read(tmp_path / "log") if line.process == failed]
            assert after[-1].event == "cause"
            if code is not None:
                wait(lambda: code in {first.poll(), second.poll()})
            assert None in {first.poll(), second.poll()}
        finally:
            first.kill()
            second.kill()


def is_followed(lines, failed):
    """Return whether the other process took two steps after the failure, in which the failed one would have had one."""
    (cause,) = (line.at for line in lines if line.event == "cause")
    return sum(line.at > cause and line.event == "step" and line.process != failed for line in lines) >= 2


def wait(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
