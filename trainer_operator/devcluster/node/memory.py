"""How much memory a container's processes hold, read from `/proc`.

Without cgroups of our own the limit is watched instead of enforced: once a second the private memory of the process
tree is summed up. Mapped files and shared memory are not counted, for every process would count them again.
"""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def private_bytes(pid: int, *, proc: str = "/proc") -> int:
    """Return the private memory of a process and all its descendants; 0 when it is gone."""
    total = 0
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            with open(f"{proc}/{current}/statm", encoding="ascii") as file:
                _, resident, shared, *_ = file.read().split()
            total += (int(resident) - int(shared)) * _PAGE
            for thread in os.listdir(f"{proc}/{current}/task"):
                with open(f"{proc}/{current}/task/{thread}/children", encoding="ascii") as file:
                    waiting.extend(int(child) for child in file.read().split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended meanwhile
    return total
