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
script = "mount -t tmpfs mine /mnt && ip link add inside0 type bridge && echo made && sleep 600"
folder = Path(sys.argv[1])
sys.exit(run_in_room(["sh", "-c", script], folder / "room", groups=folder))
"""


@pytest.fixture
def room(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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


def inside(folder):
    """Return the processes of a room, this one's children aside."""
    mark = f"TRAINER_OPERATOR_REAL_NODE={folder / 'room'}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            lines = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in lines and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found
