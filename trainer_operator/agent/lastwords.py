"""Last words: why the process ended, for people and for the operator (AG6, RC5).

The stderr tail gives a fingerprint, exception type and innermost frames without line numbers, so that the same
mistake has the same name in every attempt. A bare exit code has none.
"""

from __future__ import annotations

import json
import re
from typing import Iterable, Mapping, Optional

from trainer_operator.agent.beats import shorten
from trainer_operator.agent.state import Exit

MAX_BYTES = 4096
_FRAME = re.compile(r'^  File "([^"]+)", line \d+, in (.+)$')
_RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.IGNORECASE)
_BEARER = re.compile(r"(?i)(bearer\s+)[\w.~+/=-]{8,}")


def fingerprint(stderr: str) -> Optional[str]:
    """Name the last traceback in a text as `Type@file:function<file:function`, or None without one."""
    start = stderr.rfind("Traceback (most recent call last):")
    if start < 0:
        return None
    frames = []
    raised = None
    for line in stderr[start:].splitlines()[1:]:
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append("%s:%s" % (frame.group(1).rsplit("/", 1)[-1], frame.group(2)))
        elif not line.startswith(" ") and raised is None:
            found = _RAISED.match(line)
            raised = found.group(1) if found is not None else None
    if raised is None:
        return None
    return shorten("%s@%s" % (raised, "<".join(reversed(frames[-3:]))), 256)


def redact(text: str, environment: Mapping[str, str], *, marker: str = "[redacted]") -> str:
    """Replace the values of secret-looking variables, and bearer tokens, in a text."""
    for value in _secrets(environment):
        text = text.replace(value, marker)
    return _BEARER.sub(r"\1" + marker, text)


def last_words(ended: Optional[Exit]) -> bytes:
    """Write how the process ended as JSON of at most 4 KiB."""
    if ended is None:
        return b'{"exit":null}'
    tail = ended.tail
    while True:
        words = {
            "exit": ended.code,
            "sig": ended.sig,
            "step": ended.step,
            "fingerprint": ended.fingerprint,
            "tail": tail,
        }
        raw = json.dumps(words, separators=(",", ":")).encode()
        if len(raw) <= MAX_BYTES or not tail:
            return raw
        tail = tail[len(tail) // 4 + 1 :]


def _secrets(environment: Mapping[str, str]) -> Iterable[str]:
    found = (
        value
        for name, value in environment.items()
        if _SECRET_NAME.search(name) and not name.endswith("_FILE")
    )
    return sorted((value for value in found if len(value) >= 6), key=len, reverse=True)
