"""A process that exits whenever it is started: what counts, and that the program does it."""

import subprocess
import sys

from benchmarks.stock.scenarios import processes
from benchmarks.stock.scenarios.processes import Line, read
from benchmarks.stock.scenarios.processloop import starts

TIMEOUT = 60.0


def test_starts_count_from_the_cause_until_the_time_is_up():
    lines = [Line(1.0, "start", "a"), Line(5.0, "cause", "a")]
    lines += [Line(at, "start", str(at)) for at in (6.0, 7.0, 9.0)]
    assert starts(lines, until=8.0) == 2
    assert starts(lines[:1], until=8.0) == 0


def test_one_process_exits_as_ordered_and_all_that_are_started_later_do_a_step_after_their_start(tmp_path):
    program = [sys.executable, "-I", str(processes._PROGRAM), str(tmp_path)]
    (tmp_path / "loop").touch()
    codes = [subprocess.run(program, check=False, timeout=TIMEOUT).returncode for _ in range(3)]
    assert codes == [137] * 3
    assert [line.event for line in read(tmp_path / "log")] == ["start", "cause", "start", "start"]
