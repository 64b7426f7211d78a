"""What the training process prints passes through the agent: whole, in order, at once, whoever reads it (AG1, AG5)."""

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WATCHED = """
import os, sys
from trainer_operator.agent.launcher.process import Process
ended, steps = [], []
process = Process(sys.argv[1:], environment=dict(os.environ), on_exit=lambda _p, *how: ended.append(how), on_step=steps.append)
process.watch()
process.wait()
with open(os.environ["RESULT"], "w") as file:
    file.write("%s %s" % (ended[0], steps[-1:]))
"""


@pytest.fixture
def start(tmp_path):
    """Start a program of its own that watches a process as the agent does; its standard output is the test's."""
    started = []

    def start(program, **streams):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "RESULT": str(tmp_path / "result")}
        command = [sys.executable, "-c", WATCHED, sys.executable, "-c", program]
        watcher = subprocess.Popen(command, env=environment, **{"stdout": subprocess.PIPE, **streams})
        started.append(watcher)
        return watcher

    yield start
    for watcher in started:
        if watcher.stdout is not None:
            watcher.stdout.close()
        watcher.wait(60)


def result(tmp_path, watcher):
    assert watcher.wait(60) == 0
    return (tmp_path / "result").read_text()


def test_all_output_arrives_in_order(start, tmp_path):
    """AG5: 10 MB in lines of all lengths; the last step is known."""
    program = "for n in range(200000): print('step %d' % n, 'x' * (n % 97))"
    whole = "".join(f"step {n} {'x' * (n % 97)}\n" for n in range(200000)).encode()
    watcher = start(program)
    got = watcher.stdout.read()
    assert result(tmp_path, watcher) == "(0, 0) [199999]"
    assert (len(got), hashlib.sha256(got).digest()) == (len(whole), hashlib.sha256(whole).digest())


def test_output_waits_for_nothing(start, tmp_path):
    """AG5: half a line is passed on while the process goes on."""
    enough = tmp_path / "enough"
    watcher = start(
        "import os, sys, time; sys.stdout.write('half'); sys.stdout.flush()\n"
        f"while not os.path.exists({str(enough)!r}): time.sleep(0.01)"
    )
    assert watcher.stdout.read(4) == b"half"
    assert watcher.poll() is None
    enough.touch()
    assert result(tmp_path, watcher) == "(0, 0) []"


def test_output_that_nobody_takes_holds_the_process_and_loses_nothing(start, tmp_path):
    """AG5: as a pipe would, on which it wrote itself."""
    marker = tmp_path / "written"
    program = f"import sys; sys.stdout.write('x' * 2000000); sys.stdout.flush(); open({str(marker)!r}, 'w')"
    watcher = start(program)
    time.sleep(1.0)  # it would have written all of it in a hundredth of that
    assert not marker.exists()
    assert len(watcher.stdout.read()) == 2000000
    assert result(tmp_path, watcher) == "(0, 0) []"
    assert marker.exists()


def test_a_reader_that_leaves_ends_nothing(start, tmp_path):
    """AG5: the process hears nothing of it, and its steps are still known."""
    watcher = start("for n in range(100000): print('step', n)")
    watcher.stdout.read(10)
    watcher.stdout.close()
    assert result(tmp_path, watcher) == "(0, 0) [99999]"


def test_a_closed_standard_output_is_nobody_else_s(start, tmp_path):
    """AG5: its number may be a connection's by now."""
    watcher = start("print('step 5')", stdout=None, preexec_fn=lambda: os.close(1))
    assert result(tmp_path, watcher) == "(0, 0) [5]"


def test_a_stream_that_another_program_made_non_blocking_loses_nothing(start, tmp_path):
    """AG5: the flag belongs to the pipe, which others have open, too."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    watcher = start("import sys; sys.stdout.write('x' * 2000000)", stdout=write)
    os.close(write)
    time.sleep(0.5)  # it is full by now
    with os.fdopen(read, "rb") as stream:
        assert len(stream.read()) == 2000000
    assert result(tmp_path, watcher) == "(0, 0) []"
