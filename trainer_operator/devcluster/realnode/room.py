"""A room for a real node: its mounts, processes and network are gone when its first process is, whatever ended it.

`run_in_room` starts `unshare` with new mount, process and network namespaces, and this module as the first process in
them. The kernel does the cleaning: the first process of a process namespace takes all others with it, and with the
last process go the mounts, bridges and interfaces that only these namespaces had. The launcher's death takes
`unshare`, and with it the room. Only control groups outlive it; `remove_groups` removes them, then and before the next.

What kubelet would change on the machine is kept out as well: `/run`, `/var/lib` and `/var/log` are the room's own, and
kernel settings that it would write are covered by files which say what it wants to read.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.realnode.config import CGROUP

VARIABLE = "TRAINER_OPERATOR_REAL_NODE"
"""Set inside a room, to the folder that it may use."""
_TETHER = Path(__file__).parents[1] / "tether.py"
GROUPS = Path("/sys/fs/cgroup")
"""Where the kernel's control groups are."""
_GROUP_PATIENCE = 20.0
_POLL = 0.05
_TUNABLES: Mapping[str, str] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet sets on its machine when it finds something else."""


def run_in_room(
    command: Sequence[str],
    folder: Path,
    *,
    environ: Mapping[str, str] = os.environ,
    groups: Path = GROUPS,
) -> int:
    """Run a command in a room and return its exit code.

    Guarantees: nothing of the room is left on return, nor after a SIGKILL of this process but for empty control
    groups and the folder. Ctrl-C reaches the command, which has its own way to end.
    Assumptions: called from the main thread by root; one room at a time.
    """
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--"]
    first = [sys.executable, "-m", "trainer_operator.devcluster.realnode.room", str(folder), *command]
    remove_groups(groups)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *unshare, *first],
        env={**environ, VARIABLE: str(folder)},
    )

    def end(_number: int, _frame: object) -> None:
        process.kill()

    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end)
        code = process.wait()
        return 128 - code if code < 0 else code
    finally:
        process.kill()
        process.wait()
        remove_groups(groups)
        for number, handler in before.items():
            signal.signal(number, handler)


def require_room(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the room this process is in.

    Raises: ClusterFault outside of a room, where a node would change the machine.
    """
    folder = environ.get(VARIABLE)
    if not folder:
        raise ClusterFault("a real node runs in a room of its own only: use `make e2e`")
    return Path(folder)


def remove_groups(root: Path = GROUPS, *, patience: float = _GROUP_PATIENCE) -> None:
    """Remove the control groups of an ended room; a process that is still in one is killed.

    Raises: ClusterFault when one cannot be removed.
    """
    deadline = time.monotonic() + patience
    while True:
        left = [folder for folder in (root / CGROUP, *root.glob(f"*/{CGROUP}")) if folder.is_dir()]
        for folder in left:
            _remove_tree(folder)
        left = [folder for folder in left if folder.is_dir()]
        if not left:
            return
        if time.monotonic() > deadline:
            raise ClusterFault(f"the control group {left[0]} of an earlier node cannot be removed")
        time.sleep(_POLL)


def furnish(folder: Path) -> None:
    """Make the mounts and the loopback interface of the room this process is in."""
    folder.mkdir(parents=True, exist_ok=True)
    _do("mount", "-t", "tmpfs", "-o", "mode=0755", "room", "/run")
    for shared in ("/var/lib", "/var/log"):
        changes = Path("/run/room") / shared.strip("/").replace("/", "-")
        upper, work = changes / "upper", changes / "work"
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir={shared},upperdir={upper},workdir={work}"
        _do("mount", "-t", "overlay", "-o", options, "room", shared)
    covers = Path("/run/room/sys")
    for name, value in _TUNABLES.items():
        setting, cover = Path("/proc/sys") / name, covers / name
        if setting.exists() and setting.read_text().strip() != value:
            cover.parent.mkdir(parents=True, exist_ok=True)
            cover.write_text(f"{value}\n")
            _do("mount", "--bind", str(cover), str(setting))
    _do("ip", "link", "set", "lo", "up")


def serve_as_first(command: Sequence[str]) -> int:
    """Run the command, reap whoever lost their parent, and return the command's exit code."""
    process = subprocess.Popen(command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command has it too, being in the terminal's foreground
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return 128 - process.returncode if process.returncode < 0 else process.returncode


def _remove_tree(folder: Path) -> None:
    for path, _folders, _files in os.walk(folder, topdown=False):
        with suppress(OSError):
            for pid in (Path(path) / "cgroup.procs").read_text().split():
                if int(pid) > 0:  # 0 is a process that this namespace does not see
                    os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            os.rmdir(path)


def _do(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ClusterFault(f"`{' '.join(command)}` failed: {result.stderr.strip() or result.returncode}")


def main(arguments: Sequence[str]) -> int:
    """Be the first process of a room."""
    folder, command = Path(arguments[0]), arguments[1:]
    program = shutil.which(command[0])
    if program is None:
        print(f"error: there is no program {command[0]}", file=sys.stderr)
        return 127
    try:
        furnish(folder)
    except ClusterFault as fault:
        print(f"error: the room for a real node cannot be made: {fault}", file=sys.stderr)
        return 1
    return serve_as_first([program, *command[1:]])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
