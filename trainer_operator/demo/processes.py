"""The training processes on this machine, found in the process table.

Pods run in PID namespaces of their own, so the IDs in their logs mean nothing out here. An agent marks the process
that it starts by the environment; its own environment lacks the mark.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainer_operator.demo.timeline import ProcessId

_MARK = "TRAINER_AGENT_SOCK"


def training_processes(trainer_uid: str, *, proc: Path = Path("/proc")) -> dict[str, ProcessId]:
    """Return the training process of each member of a Trainer that has one.

    Guarantees: only processes of pods of this Trainer are found; a process that ends meanwhile is left out.
    """
    found: dict[str, ProcessId] = {}
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environ = _environ((entry / "environ").read_bytes())
            if environ.get("TRAINER_UID") != trainer_uid or _MARK not in environ:
                continue
            started = _start_time((entry / "stat").read_text())
        except (OSError, ValueError):
            continue  # not ours to read, or it has ended
        member = f"{environ.get('TRAINER_ROLE')}-{environ.get('TRAINER_INDEX')}"
        process = (int(entry.name), started)
        # A data loader inherits the mark; the process that the agent started is the oldest.
        if member not in found or (started, process[0]) < (found[member][1], found[member][0]):
            found[member] = process
    return found


def is_alive(process: ProcessId, *, proc: Path = Path("/proc")) -> bool:
    """Tell whether this very process, not a later one of the same ID, still runs."""
    try:
        return _start_time((proc / str(process[0]) / "stat").read_text()) == process[1]
    except (OSError, ValueError):
        return False


def kill(process: ProcessId, number: int, *, proc: Path = Path("/proc")) -> bool:
    """Send a signal to a process; false when it has ended."""
    if not is_alive(process, proc=proc):
        return False
    try:
        os.kill(process[0], number)
    except ProcessLookupError:
        return False
    return True


def _environ(raw: bytes) -> Mapping[str, str]:
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs}


def _start_time(stat: str) -> int:
    """Return field 22; the name in field 2 may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    if fields[0] == "Z":
        raise ValueError("it has ended and waits for its parent")
    return int(fields[19])
