"""The ring: a parameter server's last snapshots on the pod's own volume (PSR1, ND5).

A file per snapshot, `<step:012d>-p<psEpoch>.ring` in the form of module `packed`. It survives the process, not the
pod. A rollback to step S cuts the ring there: later snapshots belong to a history that no longer happened.
"""

from __future__ import annotations

import os
import re
from typing import List, Optional, Tuple

from trainer_operator.agent import packed
from trainer_operator.agent.records import Malformed

KEEP = 3
_NAME = re.compile(r"^(\d{12})-p(\d{1,10})\.ring\Z")


def path_of(directory: str, step: int, ps_epoch: int) -> str:
    """Return where the snapshot of a step lies."""
    return os.path.join(directory, "%012d-p%d.ring" % (step, ps_epoch))


def entries(directory: str) -> List[Tuple[int, int]]:
    """Return (step, psEpoch) of the snapshots, oldest first."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = (_NAME.match(name) for name in names)
    return sorted((int(match.group(1)), int(match.group(2))) for match in found if match is not None)


def steps(directory: str) -> List[int]:
    """Return the steps that can be restored, oldest first; torn files do not count."""
    return sorted(
        {step for step, ps_epoch in entries(directory) if _is_whole(path_of(directory, step, ps_epoch))}
    )


def find(directory: str, step: int) -> Optional[packed.Packed]:
    """Return the verified snapshot of a step, of the newest psEpoch that has a good one."""
    for found, ps_epoch in reversed(entries(directory)):
        if found != step:
            continue
        try:
            snapshot = packed.read_header(path_of(directory, step, ps_epoch))
            packed.verify(snapshot)
        except (Malformed, OSError):
            continue
        return snapshot
    return None


def trim(directory: str, *, keep: int = KEEP) -> None:
    """Delete all but the newest snapshots."""
    for step, ps_epoch in entries(directory)[:-keep]:
        _remove(path_of(directory, step, ps_epoch))


def cut(directory: str, step: int) -> None:
    """Delete the snapshots after a step, on a rollback to it."""
    for found, ps_epoch in entries(directory):
        if found > step:
            _remove(path_of(directory, found, ps_epoch))


def _is_whole(path: str) -> bool:
    try:
        packed.read_header(path)
    except (Malformed, OSError):
        return False
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
