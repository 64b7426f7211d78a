"""Why a store did not do what it was asked (BK). Every message is one sentence, and says what would help if we know it.

    StoreError
    ├── BadAddress            the text names no store that this agent can use
    ├── BadKey                a key that could climb out of the store
    ├── Exists                another content has the key already
    ├── NotFound              nothing has the key
    ├── TooLarge              more bytes than the caller reads
    ├── NoRights              the credentials or the file's mode do not allow it
    ├── Full                  no space, or a quota is used up
    ├── NoConditionalWrites   two creates of one key both succeeded (BK2)
    ├── StoreChanged          another store than before answers at this address (CK7)
    └── Passing               may go by itself; the same call may be repeated
        ├── Conflict          two writers met and neither won: HTTP 409, never "exists" (DE2)
        ├── Throttled         the store asks for fewer requests
        └── Unreachable       no answer, or a broken one: nobody knows whether it was done

The class names are told to the operator as reasons of conditions, so they are part of the interface.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that a store or the layout in it refuses; the message is one sentence."""

    @property
    def told(self) -> str:
        """The error as the operator gets it: reason and sentence."""
        return "%s: %s" % (type(self).__name__, self)


class BadAddress(StoreError):
    """The text names no store that this agent can use."""


class BadKey(StoreError):
    """A key is empty, too long, or could leave the store (TN10)."""


class Exists(StoreError):
    """The key has another content already, and keeps it."""


class NotFound(StoreError):
    """Nothing has the key."""


class TooLarge(StoreError):
    """The object has more bytes than the caller is ready to read (CK5)."""


class NoRights(StoreError):
    """The credentials, or the modes of files, do not allow the call."""


class Full(StoreError):
    """The store has no room, or a quota is used up."""


class NoConditionalWrites(StoreError):
    """The store lets two writers create one key, so that no decision in it would hold (BK2)."""


class StoreChanged(StoreError):
    """The address leads to another store than before: wrong, stale or empty (CK7)."""


class Passing(StoreError):
    """Something that may go by itself; the call may be repeated."""


class Conflict(Passing):
    """Two writers met at one key; whether one of them won is not known from this answer."""


class Throttled(Passing):
    """The store asks for fewer requests."""


class Unreachable(Passing):
    """There was no usable answer: the call may have had its effect, or may still have it."""
