"""What the layout asks of a store: six calls with precise outcomes, and one that tidies up (BK)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, Protocol, Sequence, Tuple, Union

from trainer_operator.agent.backends.errors import BadKey

MAX_KEY_BYTES = 900
"""Below the 1,024 bytes of S3, with room for the prefix of a bucket."""
PAGE = 1000
Content = Union[bytes, memoryview]
"""What is written. A view is read before the call returns, and never kept: its memory is used again."""


@dataclass(frozen=True)
class Entry:
    """One object of a listing."""

    key: str
    size: int


@dataclass(frozen=True)
class Page:
    """A part of a listing; `cursor` continues it and is empty at the end."""

    entries: Tuple[Entry, ...]
    folders: Tuple[str, ...]
    """With `shallow`: what lies deeper, up to and with the next slash."""
    cursor: str


class Store(Protocol):
    """A flat map of keys to bytes. Keys are relative paths with slashes.

    Every call raises NoRights, Passing or BadKey where they apply, and nothing but StoreError.
    """

    @property
    def address(self) -> str:
        """Where the store is, as people write it."""

    def create(self, key: str, data: Content) -> None:
        """Give a free key its content for ever.

        Guarantees: whoever sees the key sees all of the content; on return it is durable; of two creates of one key
        at most one succeeds.
        Raises: Exists, also then durable; Full.
        """

    def put(self, key: str, data: bytes) -> None:
        """Set or replace a content that nobody decides by; a reader may find nothing for a moment.

        Raises: Full.
        """

    def get(self, key: str, *, limit: int) -> bytes:
        """Return a content of at most `limit` bytes.

        Raises: NotFound, TooLarge.
        """

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Return a part of a content; less than `length` where it ends, nothing behind its end.

        Raises: NotFound.
        """

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """Return the next page of the keys that begin with `prefix`, which is empty or ends in a slash."""

    def delete_many(self, keys: Sequence[str]) -> int:
        """Delete keys, present or not; return how many were deleted as far as the store tells."""

    def sweep(self, prefix: str) -> None:
        """Remove what writers that died left below `prefix` and that is no object."""


def every_entry(store: Store, prefix: str) -> Iterator[Entry]:
    """Yield all entries below a prefix, a page at a time."""
    cursor = ""
    while True:
        page = store.list(prefix, cursor=cursor)
        yield from page.entries
        cursor = page.cursor
        if not cursor:
            return


def every_folder(store: Store, prefix: str) -> Iterator[str]:
    """Yield the names of the folders right below a prefix, without the slash."""
    cursor = ""
    while True:
        page = store.list(prefix, cursor=cursor, shallow=True)
        for folder in page.folders:
            yield folder[len(prefix) : -1]
        cursor = page.cursor
        if not cursor:
            return


def check_key(key: str) -> str:
    """Return the key, if it stays inside the store (TN10).

    Raises: BadKey.
    """
    if len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES:
        raise BadKey("a key has more than %d bytes: %r" % (MAX_KEY_BYTES, key[:40]))
    if any(part in ("", ".", "..") for part in key.split("/")) or not _is_plain(key):
        raise BadKey("key %r could leave the store" % key[:80])
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix of a listing, if it is empty or a folder inside the store.

    Raises: BadKey.
    """
    if prefix:
        check_key(prefix[:-1] if prefix.endswith("/") else "")
    return prefix


def check_keys(keys: Iterable[str]) -> Tuple[str, ...]:
    """Return the keys, if all of them stay inside the store.

    Raises: BadKey.
    """
    return tuple(check_key(key) for key in keys)


def _is_plain(key: str) -> bool:
    return all(32 <= ord(character) < 127 and character != "\\" for character in key)
