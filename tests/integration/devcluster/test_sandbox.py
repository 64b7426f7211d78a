"""The sandbox script by itself: namespaces, mounts, signals and refusals, with and without the rights of root."""

import contextlib
import json
import marshal
import os
import subprocess
import sys
import time

import pytest

from trainer_operator.devcluster.node import sandbox

AS_WE_ARE = ""
WITHOUT_RIGHTS = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # drop CAP_SYS_ADMIN from what exec may give back
os.execv(sys.argv[1], sys.argv[1:])
"""
WITHOUT_NAMESPACES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
uid, gid = os.geteuid(), os.getegid()
assert libc.unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
libc.prctl(24, 21, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def run(tmp_path):
    """Run a command in a sandbox; return its reports and its output."""

    def run(argv, *, wrapper=AS_WE_ARE, mounts=(), cwd="/", **order):
        base = tmp_path / "base"
        base.mkdir(exist_ok=True)
        control, end = os.pipe()
        launcher = [sys.executable, "-I", "-S", sandbox.__file__, str(end)]
        if wrapper:
            launcher = [sys.executable, "-I", "-S", "-c", wrapper, *launcher]
        body = {
            "mode": "run",
            "parent": os.getpid(),
            "argv": argv,
            "env": {"PATH": os.defpath},
            "cwd": cwd,
            "hostname": "pod-name",
            "base": str(base),
            "mounts": [{"source": str(s), "target": t, "read_only": r} for s, t, r in mounts],
        } | order
        process = subprocess.Popen(
            launcher, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[end]
        )
        os.close(end)
        with os.fdopen(control) as reports:
            out, err = process.communicate(marshal.dumps(body), timeout=30)
            return reports.read().splitlines(), out.decode(), err.decode()

    return run


rights = pytest.mark.parametrize("wrapper", [AS_WE_ARE, WITHOUT_RIGHTS], ids=["as we are", "without rights"])


@rights
def test_command_is_process_one_of_its_own_namespace(run, wrapper):
    reports, out, err = run(["sh", "-c", "echo $$; hostname; ls /proc | grep -c '^[0-9]'"], wrapper=wrapper)
    assert err == ""
    number, hostname, processes = out.split()
    assert (number, hostname) == ("1", "pod-name")
    assert int(processes) <= 4
    assert reports[1] == "exited 0"


@rights
def test_volumes_appear_where_the_host_has_no_such_path_and_the_host_stays_as_it_is(run, wrapper, tmp_path):
    volume, file = tmp_path / "volume", tmp_path / "file"
    volume.mkdir()
    file.write_text("content")
    before = {path: sorted(os.listdir(path)) for path in ("/", "/usr", "/etc")}
    script = (
        "cat /usr/missing/file /etc/no-such-file; echo made > /nowhere/at/all/made; ls /usr/bin/env /dev/null"
    )
    reports, out, err = run(
        ["sh", "-c", script],
        wrapper=wrapper,
        mounts=[
            (volume, "/nowhere/at/all", False),
            (file, "/usr/missing/file", False),
            (file, "/etc/no-such-file", False),
        ],
    )
    assert err == ""
    assert reports[1] == "exited 0"
    assert out == "contentcontent/dev/null\n/usr/bin/env\n"
    assert (volume / "made").read_text() == "made\n"
    assert {path: sorted(os.listdir(path)) for path in before} == before


@rights
def test_volume_can_lie_in_another_volume_and_in_a_replaced_folder(run, wrapper, tmp_path):
    outer, inner, other = (tmp_path / name for name in ("outer", "inner", "other"))
    for folder in (outer, inner, other):
        folder.mkdir()
        (folder / "name").write_text(folder.name)
    _, out, err = run(
        ["sh", "-c", "cat /usr/x/name /usr/x/deep/name /usr/share/y/name"],
        wrapper=wrapper,
        mounts=[(inner, "/usr/x/deep", False), (other, "/usr/share/y", False), (outer, "/usr/x", False)],
    )
    assert err == ""
    assert out == "outerinnerother"


@rights
def test_read_only_mount_cannot_be_written(run, wrapper, tmp_path):
    reports, _, err = run(["touch", "/ro/x"], wrapper=wrapper, mounts=[(tmp_path, "/ro", True)])
    assert "Read-only file system" in err
    assert reports[1] == "exited 256"


def test_signals_have_their_defaults_again(run):
    """As in the background of a shell, which has what it starts ignore SIGINT and SIGQUIT."""
    ignoring = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGQUIT, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""
    _, out, _ = run(["grep", "^SigIgn", "/proc/self/status"], wrapper=ignoring)
    of_the_c_library = (
        0b11 << 31
    )  # signals 32 and 33: no program can set them, some shells hand them down ignored
    assert int(out.split()[1], 16) & ~of_the_c_library == 0


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["no-such-program"], 'exec: "no-such-program": executable file not found in $PATH'),
        (["/no/such/program"], 'exec: "/no/such/program": no such file or directory'),
        (["/etc/passwd"], 'exec: "/etc/passwd": permission denied'),
    ],
)
def test_what_cannot_be_executed_is_reported_and_never_started(run, argv, sentence):
    assert run(argv)[0] == [f"error exec {sentence}"]


def test_missing_working_folder_is_named(run):
    reports, _, _ = run(["true"], cwd="/no/such/folder")
    assert reports == ["error exec working folder /no/such/folder: No such file or directory"]


@pytest.mark.parametrize("target", ["/", "/proc/x", "/sys/y"])
def test_some_mount_paths_are_refused(run, tmp_path, target):
    reports, _, _ = run(["true"], mounts=[(tmp_path, target, False)])
    assert reports == [f"error mount mount path {target}: not allowed"]


def test_file_over_folder_is_refused(run, tmp_path):
    (tmp_path / "f").write_text("")
    reports, _, _ = run(["true"], mounts=[(tmp_path / "f", "/usr", False)])
    assert reports[0].startswith("error mount mount path /usr: a file cannot be mounted on a folder")


def test_machine_without_namespaces_is_refused_with_what_to_do(run):
    reports, _, _ = run(["true"], wrapper=WITHOUT_NAMESPACES)
    assert reports[0].startswith("error sandbox this machine does not let the cluster make mount")
    assert "run it as root, or allow unprivileged user namespaces" in reports[0]


def test_stale_order_is_not_carried_out(run, tmp_path):
    """A sandbox whose node died before it began does nothing."""
    reports, _, _ = run(["touch", str(tmp_path / "done")], parent=1 << 22)
    assert reports == []
    assert not (tmp_path / "done").exists()


@rights
def test_everything_dies_with_the_parent(wrapper, tmp_path):
    """Power loss: the sandbox and all that it runs are killed by the kernel."""
    (tmp_path / "base").mkdir()
    mark = f"7{time.monotonic_ns()}"
    order = {
        "mode": "run",
        "argv": ["sh", "-c", f"sleep {mark} & sleep {mark} & wait"],
        "env": {"PATH": os.defpath},
        "cwd": "/",
        "hostname": "h",
        "base": str(tmp_path / "base"),
        "mounts": [],
    }
    node = """
import json, marshal, os, subprocess, sys
order = json.loads(sys.argv[1]) | {"parent": os.getpid()}
control, end = os.pipe()
subprocess.Popen(json.loads(sys.argv[2]) + [str(end)], stdin=subprocess.PIPE, pass_fds=[end]).communicate(
    marshal.dumps(order))
"""
    launcher = [sys.executable, "-I", "-S", sandbox.__file__]
    if wrapper:
        launcher = [sys.executable, "-I", "-S", "-c", wrapper, *launcher]
    process = subprocess.Popen([sys.executable, "-c", node, json.dumps(order), json.dumps(launcher)])
    try:
        wait_for(lambda: len(processes_with(mark)) >= 2)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not processes_with(mark))


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def processes_with(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[:2] == [b"sleep", mark.encode()]:
                found.append(pid)
    return found
