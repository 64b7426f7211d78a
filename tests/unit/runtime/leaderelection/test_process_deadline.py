"""A process ends when the kernel says so, whatever its threads are doing."""

import signal
import subprocess
import sys
import time

import pytest

from runtime.leaderelection.deadline import EXIT_CODE

BEGINNING = """
import ctypes, os, signal, sys, threading, time
from runtime.leaderelection.deadline import ProcessDeadline
deadline = ProcessDeadline()
assert deadline.is_kept
def say(what):
    print(what, flush=True)
"""


def started(program):
    return subprocess.Popen([sys.executable, "-c", BEGINNING + program], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "standing_still",
    [
        "time.sleep(60)",
        "ctypes.PyDLL(None).sleep(60)",  # keeps the interpreter's lock
        "while True: pass",
        "threading.Thread(target=ctypes.PyDLL(None).sleep, args=(60,)).start(); time.sleep(60)",
    ],
)
def test_a_process_that_stands_still_ends_at_its_deadline(standing_still):
    """L9: no thread of it has to run for that."""
    with started(f"deadline.extend(time.monotonic() + 0.3)\n{standing_still}\n") as process:
        assert process.wait(100) == EXIT_CODE


def test_a_stopped_process_does_not_carry_out_its_next_instruction():
    """L6: the deadline passes while it is stopped; waking up, it ends before it says anything."""
    program = """
moment = time.monotonic() + 5
deadline.extend(moment)
say(moment)
os.kill(os.getpid(), signal.SIGSTOP)
say("woke")
time.sleep(60)
"""
    with started(program) as process:
        moment = float(process.stdout.readline())
        until_stopped(process)
        while (left := moment - time.monotonic()) >= 0:  # one clock for all processes
            time.sleep(left + 0.01)
        process.send_signal(signal.SIGCONT)
        assert process.wait(100) == EXIT_CODE
        assert process.stdout.read() == ""


def test_without_a_deadline_a_stopped_process_goes_on_where_it_was():
    """L6: what the test above would see if nobody ended the process."""
    program = "os.kill(os.getpid(), signal.SIGSTOP)\nsay('woke')\n"
    with started(program) as process:
        until_stopped(process)
        process.send_signal(signal.SIGCONT)
        assert process.stdout.read() == "woke\n"
        assert process.wait(100) == 0


def test_an_extended_deadline_replaces_the_one_before():
    """L6."""
    program = """
deadline.extend(time.monotonic() + 4)
deadline.extend(time.monotonic() + 3600)
time.sleep(5)
say("lives")
"""
    with started(program) as process:
        assert process.stdout.read() == "lives\n"
        assert process.wait(100) == 0


def test_a_deadline_that_was_called_off_stays_off():
    """L7: the elector's thread may renew once more while the main one gives the lease back."""
    program = """
deadline.extend(time.monotonic() + 4)
deadline.call_off()
deadline.extend(time.monotonic() + 0.1)
deadline.call_off()
time.sleep(5)
say("lives")
"""
    with started(program) as process:
        assert process.stdout.read() == "lives\n"
        assert process.wait(100) == 0


def test_a_deadline_that_has_passed_ends_the_process_at_once():
    """L6."""
    with started("deadline.extend(time.monotonic() - 1)\nsay('lives')\n") as process:
        assert process.stdout.read() == ""
        assert process.wait(100) == EXIT_CODE


def until_stopped(process):
    """Wait until the kernel says that a process is stopped."""
    deadline = time.monotonic() + 100
    while True:
        with open(f"/proc/{process.pid}/stat") as status:
            if status.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        assert time.monotonic() < deadline, "the process was never stopped"
        time.sleep(0.01)
