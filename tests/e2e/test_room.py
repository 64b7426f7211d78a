"""The room of a real node is gone with whoever made it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from pathlib import Path
from trainer_operator.devcluster.realnode.room import run_in_room
stray = "(setsid sleep 601 >/dev/null 2>&1 &)"
script = f"mount -t tmpfs mine /mnt && ip link add inside0 type bridge && {stray} && echo made && exec sleep 600"
folder = Path(sys.argv[1])
sys.exit(run_in_room(["sh", "-c", script], folder / "room", groups=folder))
"""


@pytest.fixture
def room(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_killed_launcher_takes_the_room_with_it(room, tmp_path, until, number):
    """What was in the room, mounts and a bridge, was never outside of it, and its processes are gone."""
    assert room.stdout.readline() == "made\n"
    assert inside(tmp_path), "the room's processes are found by the folder that their environment names"
    assert not Path("/sys/class/net/inside0").exists()
    assert "mine /mnt" not in Path("/proc/mounts").read_text()
    room.send_signal(number)
    room.wait(timeout=60)
    until(lambda: not inside(tmp_path), "the room's processes to be gone")


def test_killed_command_takes_the_room_and_what_it_had_started_with_it(room, tmp_path, until):
    """What a SIGKILL of pytest does in `make e2e`: the launcher tells the exit code and leaves nothing."""
    assert room.stdout.readline() == "made\n"
    until(lambda: inside(tmp_path, command="sleep 601"), "a stray process, in a session of its own")
    (command,) = until(lambda: inside(tmp_path, command="sleep 600"), "the command")
    os.kill(int(command), signal.SIGKILL)
    assert room.wait(timeout=60) == 128 + signal.SIGKILL
    until(lambda: not inside(tmp_path), "the room's processes to be gone")


def test_interrupt_from_the_terminal_reaches_the_command_and_ends_the_room_with_it(room, tmp_path, until):
    """Ctrl-C goes to the whole group: only the command may end by it, since it has to clean up."""
    assert room.stdout.readline() == "made\n"
    os.killpg(room.pid, signal.SIGINT)
    assert room.wait(timeout=60) == 128 + signal.SIGINT
    until(lambda: not inside(tmp_path), "the room's processes to be gone")


def inside(folder, *, command=""):
    """Return the processes of a room, this one's children aside; of one command if it is named."""
    mark = f"TRAINER_OPERATOR_REAL_NODE={folder / 'room'}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            lines = (entry / "environ").read_bytes().split(b"\0")
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
        except OSError:
            continue
        if mark in lines and int(entry.name) != os.getpid() and (not command or words == command):
            found.append(entry.name)
    return found
