"""Regular expressions that users write: RE2's, the ones of CEL and of Go (docs/adr/0011).

An engine that tries every way through a pattern can take longer for one line than the operator will live, and all
trainings wait for it. RE2 takes a time that grows with pattern times text, and needs no bound of our own for that.
"""

from functools import lru_cache

import re2

MAX_MEMORY = 256 * 1024
"""Bytes of a compiled pattern: nested repetitions that need more are refused, since each takes its time with each letter."""


def fault(pattern: str) -> str:
    """Say why a pattern is no regular expression; empty when it is one."""
    found = _compiled(pattern)
    return found if isinstance(found, str) else ""


def is_found(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text, which one that is no regular expression never is."""
    found = _compiled(pattern)
    return not isinstance(found, str) and found.search(_bytes(text)) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> "re2._Regexp | str":
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False  # it would write them to our own stderr
    try:
        return re2.compile(_bytes(pattern), options)
    except re2.error as error:
        reason = error.args[0]
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
