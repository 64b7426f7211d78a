"""Training processes in the process table; the table here is a folder."""

import os
import signal
import subprocess
import sys

import pytest

from trainer_operator.demo.processes import is_alive, kill, training_processes

UID = "1b2c"


class Table:
    """A process table."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "self").mkdir()
        (folder / "meminfo").write_text("")

    def add(self, pid, *, started=5, state="S", name="python3", **environ):
        entry = self.folder / str(pid)
        entry.mkdir()
        pairs = [f"{key}={value}".encode() for key, value in environ.items()]
        (entry / "environ").write_bytes(b"\0".join(pairs) + b"\0")
        (entry / "stat").write_text(f"{pid} ({name}) {state} {' '.join(['0'] * 18)} {started} 0 0\n")

    def add_member(self, pid, role, index, *, uid=UID, **changes):
        environ = {"TRAINER_UID": uid, "TRAINER_ROLE": role, "TRAINER_INDEX": index}
        self.add(pid, **{**environ, "TRAINER_AGENT_SOCK": "/trainer/agent/sock", **changes})


@pytest.fixture
def table(tmp_path):
    return Table(tmp_path)


def test_training_processes_are_found_by_their_environment(table):
    table.add_member(10, "worker", 0)
    table.add_member(11, "ps", 0, started=6, name="a) (b")
    table.add_member(12, "worker", 1, uid="another")
    table.add(13, TRAINER_UID=UID, TRAINER_ROLE="worker", TRAINER_INDEX=2)  # the agent
    table.add(14)
    assert training_processes(UID, proc=table.folder) == {"worker-0": (10, 5), "ps-0": (11, 6)}


def test_the_oldest_of_a_member_is_its_process(table):
    """A data loader inherits the environment."""
    table.add_member(30, "worker", 0, started=7)
    table.add_member(31, "worker", 0, started=5)
    table.add_member(32, "worker", 0, started=6)
    assert training_processes(UID, proc=table.folder) == {"worker-0": (31, 5)}


def test_a_process_that_waits_for_its_parent_has_ended(table):
    table.add_member(10, "worker", 0, state="Z")
    assert training_processes(UID, proc=table.folder) == {}


def test_a_process_that_ends_meanwhile_is_left_out(table):
    table.add_member(10, "worker", 0)
    (table.folder / "10" / "stat").unlink()
    table.add_member(11, "worker", 1)
    (table.folder / "11" / "environ").unlink()
    assert training_processes(UID, proc=table.folder) == {}


def test_a_later_process_of_the_same_id_is_another(table):
    table.add_member(10, "worker", 0, started=9)
    assert is_alive((10, 9), proc=table.folder)
    assert not is_alive((10, 5), proc=table.folder)
    assert not kill((10, 5), signal.SIGKILL, proc=table.folder)


def test_the_real_process_table_is_read_and_the_right_process_killed():
    environ = {**os.environ, "TRAINER_UID": f"test-{os.getpid()}", "TRAINER_AGENT_SOCK": "x"}
    environ |= {"TRAINER_ROLE": "worker", "TRAINER_INDEX": "3"}
    child = subprocess.Popen([sys.executable, "-c", "input()"], env=environ, stdin=subprocess.PIPE)
    try:
        found = training_processes(environ["TRAINER_UID"])
        while not found:  # between fork and exec it still has our environment
            found = training_processes(environ["TRAINER_UID"])
        assert found["worker-3"][0] == child.pid
        assert kill(found["worker-3"], signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not kill(found["worker-3"], signal.SIGKILL)
    finally:
        child.kill()
        child.communicate()
