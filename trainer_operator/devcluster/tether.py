"""Run a program that is killed when its parent dies: ``python -I -S tether.py PARENT_PID PROGRAM ARGUMENT...``.

Started as a script, not imported: it must be up within milliseconds and so uses the standard library only. The
kernel delivers the signal when the *thread* that started us ends, so callers start programs from a thread that
lives as long as the program (`process.Process` insists on the main thread). The setting survives the exec.

A wrapper and not a `preexec_fn`: Python code between fork and exec can deadlock where other threads hold locks.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT_START = 127


def main(arguments: list[str]) -> int:
    """Tie this process to its parent and become the program."""
    parent, program = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        print(f"cannot tie {program[0]} to its parent: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return CANNOT_START
    if os.getppid() != parent:  # the parent died before the line above: nobody would end us any more
        return CANNOT_START
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    try:
        os.execvp(program[0], program)  # noqa: S606 - there is no shell to be wanted
    except OSError as error:
        print(f"cannot start {program[0]}: {error.strerror}", file=sys.stderr)
    return CANNOT_START


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
