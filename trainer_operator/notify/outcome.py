"""What became of one try to send, as a small sum type."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainer_operator.notify.message import Message


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination took it."""


@dataclass(frozen=True, slots=True)
class Later:
    """Not now: the destination is away, busy or asked for time; nothing goes to it before `after` seconds."""

    why: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The destination will never take this message."""

    why: str


Outcome = Delivered | Later | Refused
Send = Callable[[Message], Awaitable[Outcome]]
MALFORMED = frozenset({400, 413, 422})
LONGEST_PAUSE = 3600.0


def of_http(status: int, retry_after: str | None) -> Outcome:
    """Judge an HTTP answer: what is wrong with the message will not get better, all else may (NT4)."""
    if 200 <= status < 300:
        return Delivered()
    if status in MALFORMED:
        return Refused(f"the destination answers {status}")
    return Later(f"the destination answers {status}", _seconds(retry_after))


def _seconds(text: str | None) -> float:
    """Read Retry-After in seconds; a date, which no destination of ours sends, counts as none."""
    if text is None or not text.strip().isdecimal():
        return 0.0
    return min(float(text.strip()), LONGEST_PAUSE)
