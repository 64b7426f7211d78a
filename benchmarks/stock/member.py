"""The training program of the comparison on process nodes: `python3 member.py FOLDER`, the same for all arms.

It takes a step every 0.2 s and writes each into FOLDER/log, a line `SECONDS EVENT PROCESS`. Whichever process finds
FOLDER/exit or FOLDER/hang first takes it away, and exits as if killed, or hangs without using the processor. Who takes
FOLDER/loop away exits, and leaves FOLDER/looping, at which all that start later exit when their first step ends. Where
the agent of this operator is, it is told the steps, as training code does; nobody else asks for them. It stands alone.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

STEP = 0.2
KILLED = 137


def main(folder: str) -> None:
    """Train until told to fail."""
    job = _job()
    _tell(folder, "start")
    step = 0
    is_loop = os.path.exists(os.path.join(folder, "looping"))
    while True:
        time.sleep(STEP)
        if is_loop:
            os._exit(KILLED)
        if _takes(folder, "loop"):
            os.close(os.open(os.path.join(folder, "looping"), os.O_CREAT | os.O_WRONLY))
            _tell(folder, "cause")
            os._exit(KILLED)
        if _takes(folder, "hang"):
            _tell(folder, "cause")
            while True:
                time.sleep(3600)
        if _takes(folder, "exit"):
            _tell(folder, "cause")
            os._exit(KILLED)
        step += 1
        _tell(folder, "step")
        if job is not None:
            job.step(step)


def _job() -> Any:  # Any: what the agent brings
    try:
        import trainer_sdk
    except ImportError:
        return None
    return trainer_sdk.init()


def _takes(folder: str, order: str) -> bool:
    """Take an order; of several processes that see it, one gets it."""
    try:
        os.unlink(os.path.join(folder, order))
    except FileNotFoundError:
        return False
    return True


_NAME = os.urandom(4).hex()


def _tell(folder: str, event: str) -> None:
    line = f"{time.clock_gettime(time.CLOCK_REALTIME):.6f} {event} {_NAME}\n"
    with open(os.path.join(folder, "log"), "a") as log:  # one write, which is whole however many write
        log.write(line)


if __name__ == "__main__":
    main(sys.argv[1])
