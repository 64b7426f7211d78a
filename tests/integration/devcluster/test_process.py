"""Child processes end with us, whatever ends us."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from trainer_operator.devcluster.process import Process

PARENT = """
import sys, time
from pathlib import Path
from trainer_operator.devcluster.process import Process
child = Process("child", ["sleep", "600"], log=Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, what, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_child_ends_with_its_parent_whatever_ends_the_parent(tmp_path, number):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        child = int(parent.stdout.readline())
        wait_until(lambda: command_of(child) == "sleep", "the wrapper has not become the program")
        parent.send_signal(number)
    wait_until(lambda: not is_alive(child), "the child outlived its parent")


def command_of(pid):
    with open(f"/proc/{pid}/comm") as stream:
        return stream.read().strip()


def test_process_id_is_that_of_the_program(tmp_path):
    process = Process("sleeper", ["sleep", "600"], log=tmp_path / "log")
    try:
        wait_until(lambda: command_of(process.pid) == "sleep", "the wrapper has not become the program")
        assert os.getsid(process.pid) == process.pid, "Ctrl-C in our terminal would reach it"
    finally:
        process.kill()
    assert process.exit_code() == -signal.SIGKILL


def test_program_that_does_not_exist_ends_with_a_sentence_in_its_log(tmp_path):
    process = Process("nothing", ["/no/such/program"], log=tmp_path / "deep" / "log")
    wait_until(lambda: process.exit_code() is not None, "it did not end")
    assert process.exit_code() == 127
    assert process.tail() == "cannot start /no/such/program: No such file or directory"


async def test_stop_lets_a_program_end_by_itself(tmp_path):
    script = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    process = Process("polite", ["sh", "-c", script], log=tmp_path / "log")
    wait_until(lambda: "up" in process.tail(), "it did not start")
    await process.stop(grace=10)
    assert process.exit_code() == 3
    assert process.tail(lines=1) == "bye"


async def test_stop_kills_a_program_that_does_not_end_by_itself(tmp_path):
    process = Process("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 600"], log=tmp_path / "log")
    wait_until(lambda: "up" in process.tail(), "it did not start")
    await process.stop(grace=0.1)
    assert process.exit_code() == -signal.SIGKILL


async def test_cancelled_stop_kills_at_once(tmp_path):
    process = Process("stubborn", ["sh", "-c", "trap '' TERM; echo up; sleep 600"], log=tmp_path / "log")
    wait_until(lambda: "up" in process.tail(), "it did not start")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await process.stop(grace=600)
    assert process.exit_code() == -signal.SIGKILL


def test_thread_that_may_end_before_the_program_is_refused(tmp_path):
    failures = []

    def start():
        try:
            Process("thread's", ["true"], log=tmp_path / "log")
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert failures == [
        "start thread's from the main thread: the kernel ends it with the thread that started it"
    ]


def test_untethered_program_goes_on_and_can_be_ended(tmp_path):
    process = Process("supervisor", ["sleep", "600"], log=tmp_path / "log", tethered=False)
    assert process.exit_code() is None
    process.kill()
    assert process.exit_code() == -signal.SIGKILL
