"""Run one container's command in namespaces of its own; a script that knows nothing of the rest of the project.

A process node starts `python -I -S sandbox.py FD` once per container (and once per exec probe). It is a
program of its own because `fork` and `unshare` do not belong in a process that has threads and an event loop. A
pod's start waits for it, so it does with two imports beyond what the interpreter has loaded: 15 ms instead of 34
with json, typing, signal and contextlib.

The model:

* Standard input carries the order, one marshalled dictionary (`container.Order` writes it; both sides are the same
  interpreter). The file descriptor FD carries the reports, one a line: `started PID`, then `exited WAIT-STATUS`; or
  `error STAGE TEXT` and nothing more, with the stage `sandbox`, `mount` or `exec`.
* The command becomes process 1 of a new PID namespace, as in a container: when it ends, the kernel ends
  everything it started. Both it and this script ask for SIGKILL on their parent's death, so a node process that
  is killed takes all its pods' processes with it, as a power cut does.
* Its root is assembled as bubblewrap does: a tmpfs into which every folder of the host's root is bound, a small
  `/dev` and its own `/proc`, then the volumes at their mount paths. A host folder that lacks a mount point is
  replaced by a tmpfs with the same entries bound into it, so the host itself is never written to.
* Without root all of it happens in a user namespace that maps the caller to itself; the command then has no
  more rights than the caller.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_NOATIME = 0x400
MS_NODIRATIME = 0x800
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000
MS_RELATIME = 0x200000
ST_RELATIME = 0x1000
MNT_DETACH = 0x2
PR_SET_PDEATHSIG = 1
SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ = 1, 2, 3, 9, 13, 15, 25
SIG_DFL, SIG_IGN = 0, 1

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
MAX_SYMBOLIC_LINKS = 40
OLD, NEW = "/oldroot", "/newroot"

HINT = (
    "this machine does not let the cluster make mount and PID namespaces ({}); run it as root, or allow "
    "unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces above 0)"
)


class Refused(Exception):
    """The container cannot be started; `stage` says what was being done."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Carry out the order on standard input and report to the file descriptor named by the first argument."""
    control = int(arguments[0])
    os.set_inheritable(control, False)
    order: dict[str, Any] = marshal.load(sys.stdin.buffer)  # noqa: S302 - from the node that started us
    _die_with_parent(order["parent"])
    # A Ctrl-C in the terminal, or a SIGTERM to a whole process group, is for the node to act upon.
    _set_signals(SIG_IGN, SIGINT, SIGTERM, SIGHUP)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        if order["mode"] == "exec":
            _enter(order["pid"])
        else:
            _leave_namespaces()
        child, problem = _start(order)
    except Refused as refusal:
        _report(control, f"error {refusal.stage} {refusal}")
        return 1
    if problem:
        os.waitpid(child, 0)
        _report(control, problem)
        return 1
    _report(control, f"started {child}")
    _, status = os.waitpid(child, 0)
    _report(control, f"exited {status}")
    return 0


def _report(control: int, message: str) -> None:
    try:
        os.write(control, message.replace("\n", " ").encode() + b"\n")
    except BrokenPipeError:
        pass  # a vanished reader is a vanished node, which ends this process anyway


def _set_signals(disposition: int, *numbers: int) -> None:
    for number in numbers:
        _libc.signal(number, ctypes.c_void_p(disposition))


def _die_with_parent(expected: int | None) -> None:
    _libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if expected is not None and os.getppid() != expected:
        os._exit(1)  # it died before the request was in place


def _leave_namespaces() -> None:
    """Unshare mounts, PIDs and the host name, through a user namespace where the caller has no right to."""
    parent, uid, gid = os.getppid(), os.geteuid(), os.getegid()
    wanted = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS
    try:
        _call("unshare", wanted)
    except OSError as refusal:
        if refusal.errno != errno.EPERM:
            raise Refused("sandbox", HINT.format(f"unshare: {refusal.strerror}")) from None
        try:
            _call("unshare", wanted | CLONE_NEWUSER)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        except OSError as second:
            raise Refused("sandbox", HINT.format(f"unshare: {second.strerror}")) from None
    # Entering a user namespace changes credentials, which clears the request made before.
    _die_with_parent(parent)


def _enter(pid: int) -> None:
    """Join the namespaces of a running container's process 1."""
    parent = os.getppid()
    try:
        kinds = [("user", CLONE_NEWUSER), ("uts", CLONE_NEWUTS), ("pid", CLONE_NEWPID), ("mnt", CLONE_NEWNS)]
        handles = [
            (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), flag) for name, flag in kinds
        ]
        same_user = os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user")
        for handle, flag in handles:
            if flag != CLONE_NEWUSER or not same_user:
                _call("setns", handle, flag)
    except OSError as failure:
        raise Refused("sandbox", f"the container's namespaces are gone: {failure.strerror}") from None
    _die_with_parent(parent)


def _start(order: dict[str, Any]) -> tuple[int, str]:
    """Fork process 1; return its PID, and what went wrong if it did not get as far as running the command."""
    alive_read, alive_write = os.pipe()
    report_read, report_write = os.pipe()
    try:
        child = os.fork()
    except OSError as failure:
        raise Refused("sandbox", f"fork: {failure.strerror}") from None
    if child == 0:
        os.close(alive_write)
        os.close(report_read)
        _be_process_one(order, alive_read, report_write)
    os.close(alive_read)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as reports:
        # The end of the file without a word means: the command runs, exec closed the descriptor.
        return child, reports.read().decode()


def _be_process_one(order: dict[str, Any], alive: int, report: int) -> NoReturn:
    try:
        _die_with_parent(None)
        if select.select([alive], [], [], 0)[0]:
            os._exit(1)  # the other end is closed: this script died before the request was in place
        os.setsid()
        if order["mode"] != "exec":
            name = os.fsencode(order["hostname"])[:63]
            _call("sethostname", name, len(name))
            _assemble(order["base"], order["mounts"])
        _execute(order["argv"], order["env"], order["cwd"])
    except Refused as refusal:
        problem = f"error {refusal.stage} {refusal}"
    except OSError as failure:
        where = f" {failure.filename}" if failure.filename else ""
        problem = f"error sandbox {HINT.format(f'{failure.strerror}{where}')}"
    os.write(report, problem.encode())
    os._exit(1)


def _execute(argv: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    try:
        os.chdir(cwd)
    except OSError as failure:
        raise Refused("exec", f"working folder {cwd}: {failure.strerror}") from None
    # The interpreter ignores some for itself, a shell others for what it runs in the background.
    _set_signals(SIG_DFL, SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ)
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 - a container's command is no shell text
    except FileNotFoundError:
        where = "no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        raise Refused("exec", f'exec: "{argv[0]}": {where}') from None
    except OSError as failure:
        raise Refused("exec", f'exec: "{argv[0]}": {str(failure.strerror).lower()}') from None


# --- the root ---------------------------------------------------------------------------------------------


def _assemble(base: str, mounts: list[dict[str, Any]]) -> None:
    """Make the host's folders with the volumes in them this process's root, and forget the old root."""
    _mount(None, "/", None, MS_REC | MS_SLAVE)  # nothing mounted here is seen outside
    _mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    os.chdir(base)
    os.mkdir("oldroot")
    os.mkdir("newroot")
    _call("pivot_root", b".", b"oldroot", syscall=155)
    os.chdir("/")
    _mount("tmpfs", NEW, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    _mirror("/", skip=("dev", "proc"))
    _make_devices()
    _make_proc()
    _mount_volumes(mounts)
    os.chdir(NEW)
    _call("pivot_root", b".", b".", syscall=155)
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def _mirror(folder: str, skip: tuple[str, ...] = ()) -> None:
    """Bind each entry of a host folder into the same folder of the new root, which is an empty tmpfs."""
    with os.scandir(OLD + folder) as entries:
        for entry in entries:
            target = os.path.join(NEW + folder, entry.name)
            if entry.name in skip:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
                continue
            try:
                _make_mount_point(target, folder=entry.is_dir())
                _mount(entry.path, target, None, MS_BIND | MS_REC)
            except (PermissionError, FileNotFoundError):
                pass  # another user's FUSE folder, a file just deleted: it is not there for the container either


def _make_devices() -> None:
    os.mkdir(NEW + "/dev")
    _mount("tmpfs", NEW + "/dev", "tmpfs", MS_NOSUID, "mode=0755")
    present = [name for name in os.listdir(OLD + "/dev") if name in DEVICES or name.startswith("nvidia")]
    for name in present:
        _make_mount_point(f"{NEW}/dev/{name}", folder=os.path.isdir(f"{OLD}/dev/{name}"))
        _mount(f"{OLD}/dev/{name}", f"{NEW}/dev/{name}", None, MS_BIND | MS_REC)
    for name, number in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{number}", f"{NEW}/dev/{name}")
    shared = f"{NEW}/dev/shm"  # noqa: S108 - a fresh one, in the new root
    os.mkdir(shared, 0o1777)
    _mount("tmpfs", shared, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    os.mkdir(NEW + "/dev/pts")
    os.symlink("pts/ptmx", NEW + "/dev/ptmx")
    try:
        _mount(
            "devpts", NEW + "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
        )
    except OSError:
        _mount(OLD + "/dev/pts", NEW + "/dev/pts", None, MS_BIND | MS_REC)


def _make_proc() -> None:
    os.mkdir(NEW + "/proc")
    try:
        _mount("proc", NEW + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except OSError:
        # Inside an outer container whose /proc is partly masked the kernel refuses a fresh one.
        _mount(OLD + "/proc", NEW + "/proc", None, MS_BIND | MS_REC)


def _mount_volumes(mounts: list[dict[str, Any]]) -> None:
    ordered = sorted(mounts, key=lambda entry: entry["target"].rstrip("/").count("/"))
    targets = [resolve(OLD, entry["target"]) for entry in ordered]
    # All replacements come before all volumes: replacing a folder later would hide what is mounted in it.
    for folder in replaced_folders(OLD, targets):
        _mount("tmpfs", NEW + folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        _mirror(folder)
    for entry in ordered:
        source, target = OLD + entry["source"], NEW + resolve(NEW, entry["target"])
        is_folder = os.path.isdir(source)
        try:
            _make_mount_point(target, folder=is_folder)
            _mount(source, target, None, MS_BIND | MS_REC)
            if entry["read_only"]:
                _mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | _mount_flags(target))
        except OSError as failure:
            raise Refused("mount", f"mount path {entry['target']}: {failure.strerror}") from None


def replaced_folders(root: str, targets: list[str]) -> list[str]:
    """Name the host folders that lack a mount point, outermost first; a pure function of what `root` holds."""
    found: set[str] = set()
    for position, target in enumerate(targets):
        if target == "/" or target.split("/")[1] in ("proc", "sys"):
            raise Refused("mount", f"mount path {target}: not allowed")
        if any(target.startswith(outer.rstrip("/") + "/") for outer in targets[:position]):
            continue  # inside another volume: the mount point is made in that volume, as container runtimes do
        parent = target
        while not os.path.lexists(root + parent):
            parent = os.path.dirname(parent)
        if parent not in (target, "/") and parent.split("/")[1] != "dev":
            found.add(parent)
    return sorted(found, key=lambda folder: folder.count("/"))


def resolve(root: str, path: str) -> str:
    """Follow the symbolic links of an absolute path as if `root` were `/`; missing parts are kept as written."""
    done, rest, links = "", [part for part in path.split("/") if part not in ("", ".")], 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            done = os.path.dirname(done).rstrip("/")
            continue
        candidate = f"{done}/{part}"
        if not os.path.islink(root + candidate):
            done = candidate
            continue
        links += 1
        if links > MAX_SYMBOLIC_LINKS:
            raise Refused("mount", f"mount path {path}: too many symbolic links")
        value = os.readlink(root + candidate)
        if value.startswith("/"):
            done = ""
        rest = [part for part in value.split("/") if part not in ("", ".")] + rest
    return done or "/"


def _make_mount_point(path: str, *, folder: bool) -> None:
    if os.path.lexists(path):
        if os.path.isdir(path) != folder:
            raise OSError(errno.ENOTDIR, "a file cannot be mounted on a folder, nor a folder on a file")
        return
    os.makedirs(path if folder else os.path.dirname(path), exist_ok=True)
    if not folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _mount_flags(path: str) -> int:
    """Return the flags a mount has; in a user namespace a remount that drops one is refused."""
    flags = os.statvfs(path).f_flag
    kept = flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)
    return kept | (MS_RELATIME if flags & ST_RELATIME else 0)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    options = None if data is None else data.encode()
    if _libc.mount(*encoded, ctypes.c_ulong(flags), options) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)


def _call(name: str, *arguments: Any, syscall: int | None = None) -> None:
    result = _libc.syscall(_number(syscall), *arguments) if syscall else getattr(_libc, name)(*arguments)
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _number(x86_64: int) -> int:
    """Return the number of pivot_root, the one call without a wrapper in libc: 155, on arm64 and riscv64 41."""
    return x86_64 if os.uname().machine == "x86_64" else 41


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
