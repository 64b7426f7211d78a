"""Tenants' text, made harmless for the channel that it goes to (NT5, UC1). Pure."""

import unicodedata
from collections.abc import Callable, Mapping

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control and format characters: line ends, escapes, and what turns the direction of text."""
_CARD = str.maketrans(
    {"<": "‹", ">": "›", "[": "［", "]": "］", "`": "'", "*": "∗", "_": "＿", "~": "∼", "#": "＃", "\\": "＼"}
)


def one_line(text: str, longest: int) -> str:
    """Return the text on one line, without control characters, shortened."""
    shown = "".join(" " if unicodedata.category(each) in _HIDDEN else each for each in text)
    line = " ".join(shown.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def for_card(text: str) -> str:
    """Escape a card's markup: mentions, links and emphasis; cards know no escapes, so look-alikes stand for them."""
    return text.translate(_CARD)


def as_is(text: str) -> str:
    """Leave the text: the channel takes it as plain, or its library escapes it."""
    return text


ESCAPES: Mapping[str, Callable[[str], str]] = {"workflows": for_card, "slack": as_is, "mailtos": as_is}
