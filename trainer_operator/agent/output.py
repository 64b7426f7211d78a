"""Steps of training code without the SDK: from what it prints, or from a file that it writes (AG5).

A number is looked for in both output streams, since Python's logging writes to stderr. What is found tells only how
far training is, in the program's own count; it is coarse, so nothing but half an hour without any is judged by it.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Optional

_STEP = re.compile(rb"step[\"']?[=: \[]{1,16}(\d{1,15})(?!\d|[.,]\d)")
_OTHER = re.compile(rb"(?:(?:max|min|total|num|warmup|per|every|eval|save|log|of)[_\- ]?|/)$")
"""What stands before the word where the number is none of training: limits, rates, evaluation."""
_LOOK_BACK = 16
_LONGEST_LINE = 4096
_MOST_WORDS = 256
"""How often the word may stand in one piece without a number before the rest is let go: output must not wait for us."""
_NUMBER = re.compile(rb"\s*(\d{1,15})\s*$")


class StepReader:
    """Finds the newest step in one stream, whatever the pieces that it comes in; constant memory.

    A line counts once its end was read: half a number would be another one. Progress bars end theirs by a return.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Optional[int]:
        """Take some bytes; return the last step in the lines that they complete, None without one."""
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if end < 0:
            self._rest = (self._rest + data)[-_LONGEST_LINE:]
            return None
        lines, self._rest = self._rest + data[:end], data[end + 1 :][-_LONGEST_LINE:]
        return last_step(lines)


def last_step(lines: bytes) -> Optional[int]:
    """Return the step that was told last; looked for from the end, which is where it is in long output."""
    text = lines.lower()
    at = len(text)
    for _ in range(_MOST_WORDS):
        at = text.rfind(b"step", 0, at)
        if at < 0:
            return None
        found = _STEP.match(text, at)
        if found is not None and _OTHER.search(text[max(0, at - _LOOK_BACK) : at]) is None:
            return int(found.group(1))
    return None


class ProgressFile:
    """A file that holds the number of the last finished step, and nothing else."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = 0

    def clear(self) -> None:
        """Remove what an earlier process wrote."""
        self._seen = 0
        try:
            os.unlink(self.path)
        except OSError:  # there is none, or it cannot be removed: then it must change before it is read
            self._seen = self._changed()

    def read(self) -> Optional[int]:
        """Return the step if the file was written since the last look; None if not, or if it holds no number.

        What is no plain file is left alone: to open a pipe would wait for its writer.
        """
        changed = self._changed()
        if not changed or changed == self._seen:
            return None
        try:
            number = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = _NUMBER.match(os.read(number, 64))
            finally:
                os.close(number)
        except OSError:
            return None
        if found is None:
            return None  # half written: looked at again
        self._seen = changed
        return int(found.group(1))

    def _changed(self) -> int:
        try:
            seen = os.lstat(self.path)
        except OSError:
            return 0
        return seen.st_mtime_ns if stat.S_ISREG(seen.st_mode) else 0
