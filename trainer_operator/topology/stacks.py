"""Where a process stands: its training thread's stack, as evidence of a stall (SL3, SL4). Pure.

A member is looked at twice while its step is overdue. The same stack both times is a sign of a stall; and when the
others wait for one another, the only one that stands elsewhere is the one that they wait for.

What faulthandler prints is read. It lists threads newest first, so the last one is the main thread, which trains:

    Current thread 0x00007f… (most recent call first):
      File "/app/train.py", line 41 in step
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

Member = TypeVar("Member")

_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):$")
_FRAME = re.compile(r'  File "([^"\n]*)", line (\d+) in (.+)$')
_MORE_THREADS = "..."
_WAITS = re.compile(
    r"all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|barrier|sync_?global_?devices|recv", re.IGNORECASE
)
"""Functions that wait for other members, whatever framework they are of."""
_WAITING_FILE = "/distributed_c10d.py"
"""All of torch's collectives; names such as `broadcast` and `reduce` alone would be anybody's."""
TOP = 8
"""Frames in which a wait is looked for: a function further below is one that computes between its waits."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function[:80]} ({self.file.rpartition('/')[2][:80]}:{self.line})"


Trace = tuple[Frame, ...]
"""The calls of the training thread, the most recent one first; empty where it printed nothing."""


@dataclass(frozen=True, slots=True)
class Look:
    """Where a process stood, `age` seconds after its last step."""

    step: int
    age: float
    trace: Trace


def read_look(value: Any) -> Look | None:  # Any: what an agent sent, or one that is too old for this
    """Read the result of an order to dump stacks; None if it doesn't say when that was."""
    if not isinstance(value, dict):
        return None
    step, age, stacks = value.get("step"), value.get("age"), value.get("stacks")
    if not isinstance(step, int) or not isinstance(age, int | float) or not isinstance(stacks, str):
        return None
    return Look(step, float(age), parse(stacks)) if math.isfinite(age) else None


def parse(text: str) -> Trace:
    """Return the training thread's calls; nothing if its stack is not in the text, or not whole."""
    lines = [line.rstrip() for line in text.splitlines()]
    begin = max((number for number, line in enumerate(lines) if _THREAD.match(line)), default=None)
    if begin is None:
        return ()
    trace = []
    for line in lines[begin + 1 :]:
        found = _FRAME.match(line)
        if found is None:
            if line == _MORE_THREADS:
                return ()  # of very many threads the first ones are left out, and ours is among them
            break
        trace.append(Frame(found[1], int(found[2]), found[3]))
    return tuple(trace)


def waits(trace: Trace) -> bool:
    """Whether it stands in a call that waits for other members."""
    return any(_WAITS.search(frame.function) or frame.file.endswith(_WAITING_FILE) for frame in trace[:TOP])


def outsider(traces: Mapping[Member, Trace]) -> Member | None:
    """Return the member that the others wait for; None if the stacks don't tell.

    It is the only one that prints no stack, or the only one that is in no wait, or, where all wait or no wait is known,
    the only one of three or more that does not stand where all others do.
    """
    mute = [member for member, trace in traces.items() if not trace]
    if mute:
        return mute[0] if len(mute) == 1 < len(traces) else None
    working = [member for member, trace in traces.items() if not waits(trace)]
    if 0 < len(working) < len(traces):
        return working[0] if len(working) == 1 else None
    ((common, count), *others) = Counter(traces.values()).most_common() or [((), 0)]
    if count < 2 or len(others) != 1 or others[0][1] != 1:
        return None
    return next(member for member, trace in traces.items() if trace != common)
