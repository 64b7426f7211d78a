"""A store in a bucket of S3, or of what speaks its protocol (BK).

    create        PUT with If-None-Match: *        412 is "exists", 409 is "try again" (DE2)
    get, list     GET; ListObjectsV2, which shows every write that was answered
    delete_many   DeleteObjects, 1,000 keys in a request

Before the first create, and once a day, two creates of one key are tried; a store that lets both succeed knows no
conditions, and then nothing is decided in it (BK2). One client in 300 lines of the standard library: ADR 0007.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import secrets
import threading
import time
import xml.etree.ElementTree as ET
from typing import Callable, List, Optional, Sequence, Tuple
from urllib.parse import unquote_plus
from xml.sax.saxutils import escape

from trainer_operator.agent.backends.access import REGION
from trainer_operator.agent.backends.errors import (
    BadAddress,
    Conflict,
    Exists,
    Full,
    NoConditionalWrites,
    NoRights,
    NotFound,
    StoreError,
    Throttled,
    TooLarge,
    Unreachable,
)
from trainer_operator.agent.backends.http import Answer, SignedClient
from trainer_operator.agent.backends.protocol import (
    PAGE,
    Content,
    Entry,
    Page,
    check_key,
    check_keys,
    check_prefix,
)

PROBE_FOLDER = "probe"
PROBE_INTERVAL = 24 * 3600.0
_MAX_REPLY = 8 * 1024 * 1024
"""A page of a listing: 1,000 keys of at most 1,024 bytes, each encoded in up to three."""


class S3Store:
    """Objects as keys below a prefix of a bucket."""

    def __init__(
        self,
        client: SignedClient,
        *,
        bucket: str,
        prefix: str,
        page: int = PAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._bucket = client, bucket
        self._prefix = prefix + "/" if prefix else ""
        self._page, self._clock = page, clock
        self._lock = threading.Lock()
        self._proved_at: Optional[float] = None

    @property
    def address(self) -> str:
        """The bucket and the prefix in it."""
        return "s3://%s/%s" % (self._bucket, self._prefix)

    def create(self, key: str, data: Content) -> None:
        """Create an object.

        Raises: Exists, Full, NoConditionalWrites.
        """
        check_key(key)
        self._prove_conditions()
        self._create(key, data)

    def put(self, key: str, data: bytes) -> None:
        """Set or replace an object."""
        self._call("PUT", check_key(key), body=data)

    def get(self, key: str, *, limit: int) -> bytes:
        """Read an object of at most `limit` bytes."""
        return self._call("GET", check_key(key), limit=limit).body

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Read a part of an object."""
        if length <= 0:
            return b""
        header = ("Range", "bytes=%d-%d" % (start, start + length - 1))
        answer = self._call("GET", check_key(key), header=header, limit=length, also=(416,))
        return b"" if answer.status == 416 else answer.body

    def list(self, prefix: str, *, cursor: str = "", shallow: bool = False) -> Page:
        """List keys, 1,000 at a time."""
        query = [
            ("list-type", "2"),
            ("prefix", self._prefix + check_prefix(prefix)),
            ("max-keys", str(self._page)),
            ("encoding-type", "url"),
        ]
        if shallow:
            query.append(("delimiter", "/"))
        if cursor:
            query.append(("continuation-token", cursor))
        tree = self._xml(self._call("GET", "", query=query, limit=_MAX_REPLY))
        cut = len(self._prefix)
        try:
            entries = tuple(
                Entry(_text(item, "Key")[cut:], int(_text(item, "Size")))
                for item in _children(tree, "Contents")
            )
        except ValueError as error:
            raise Unreachable("%s sent a listing without sizes" % self.address) from error
        folders = tuple(_text(item, "Prefix")[cut:] for item in _children(tree, "CommonPrefixes"))
        more = _raw(tree, "IsTruncated") == "true"
        return Page(entries, folders, _raw(tree, "NextContinuationToken") if more else "")

    def delete_many(self, keys: Sequence[str]) -> int:
        """Delete objects; the store does not tell which of them were there.

        Raises: NoRights when it refused any.
        """
        checked = check_keys(keys)
        for start in range(0, len(checked), self._page):
            self._delete(checked[start : start + self._page])
        return len(checked)

    def sweep(self, prefix: str) -> None:
        """Do nothing: an upload that did not end leaves nothing behind."""
        check_prefix(prefix)

    def _create(self, key: str, data: Content) -> None:
        self._call("PUT", key, header=("If-None-Match", "*"), body=data)

    def _prove_conditions(self) -> None:
        """Create one key twice; the second must fail (BK2).

        Raises: NoConditionalWrites.
        """
        with self._lock:
            now = self._clock()
            if self._proved_at is not None and now - self._proved_at < PROBE_INTERVAL:
                return
            key = "%s/%s" % (PROBE_FOLDER, secrets.token_hex(8))
            try:
                self._create(key, b"first\n")
                self._create(key, b"second\n")
            except Exists:
                self._proved_at = now
            else:
                raise NoConditionalWrites(
                    "%s ignores If-None-Match, so that two writers could decide differently; use a store that "
                    "honours conditional writes" % self.address
                )
            finally:
                with contextlib.suppress(StoreError):  # a store without the right to delete is still a store
                    self._delete((key,))

    def _delete(self, keys: Sequence[str]) -> None:
        names = "".join("<Object><Key>%s</Key></Object>" % escape(self._prefix + key) for key in keys)
        body = ("<Delete><Quiet>true</Quiet>%s</Delete>" % names).encode()
        digest = base64.b64encode(hashlib.md5(body).digest()).decode()  # noqa: S324 - the protocol asks for it
        answer = self._call(
            "POST", "", query=[("delete", "")], header=("Content-MD5", digest), body=body, limit=_MAX_REPLY
        )
        for error in _children(self._xml(answer), "Error") if answer.body else ():
            code, key = _text(error, "Code"), _text(error, "Key")
            if code == "AccessDenied":
                raise NoRights("%s does not allow to delete %s" % (self.address, key))
            if code != "NoSuchKey":
                raise Unreachable("%s did not delete %s: %s" % (self.address, key, code))

    def _call(
        self,
        method: str,
        key: str,
        *,
        query: Sequence[Tuple[str, str]] = (),
        header: Optional[Tuple[str, str]] = None,
        body: Content = b"",
        limit: int = _MAX_REPLY,
        also: Tuple[int, ...] = (),
    ) -> Answer:
        """Send a request and return an answer of success, or one of the statuses `also`."""
        full, what = (self._prefix + key if key else ""), key or "the answer"
        # An answer that reports an error may be longer than the content that was asked for.
        answer = self._client.send(
            method,
            full,
            query=query,
            headers=dict([header] if header else []),
            body=body,
            limit=max(limit, 65536),
        )
        if 200 <= answer.status < 300 and len(answer.body) > limit:
            raise TooLarge("%s has more than %d bytes" % (what, limit))
        if answer.status in also or 200 <= answer.status < 300:
            return answer
        raise self._meaning(answer, key)

    def _meaning(self, answer: Answer, key: str) -> StoreError:
        """Say what a refusal means for the store."""
        code, text = _error_of(answer)
        status, what = answer.status, key or "a listing"
        if status == 404 and code != "NoSuchBucket":
            return NotFound("%s does not exist in %s" % (what, self.address))
        if status == 404:
            return BadAddress("bucket %s does not exist" % self._bucket)
        if status == 412:
            return Exists("%s exists with another content" % what)
        if status == 409:
            return Conflict("another request for %s was under way; neither is known to have won" % what)
        if status in (429, 503) or code in ("SlowDown", "RequestLimitExceeded"):
            return Throttled("%s asks for fewer requests" % self.address)
        if status == 507 or code in ("QuotaExceeded", "XMinioStorageFull"):
            return Full("%s has no room for %s; free space or raise its quota" % (self.address, what))
        if status in (301, 307, 308) or code in ("AuthorizationHeaderMalformed", "PermanentRedirect"):
            region = answer.headers.get("x-amz-bucket-region", "")
            found = " is %s" % region if region else " is another one"
            return BadAddress(
                "the region of bucket %s%s; set %s in the Secret" % (self._bucket, found, REGION)
            )
        if code == "RequestTimeTooSkewed":
            return NoRights(
                "the clock of this node is more than 15 minutes off, so %s refuses it" % self.address
            )
        if status in (401, 403):
            return NoRights(
                "%s refuses %s (%s); check the keys in the Secret" % (self.address, what, code or status)
            )
        if status == 501 or code == "NotImplemented":
            return NoConditionalWrites(
                "%s does not know conditional writes: %s" % (self.address, text or code)
            )
        return Unreachable("%s answered %d %s for %s" % (self.address, status, code or text, what))

    def _xml(self, answer: Answer) -> ET.Element:
        try:
            return ET.fromstring(answer.body)  # noqa: S314 - bounded, and from the store that holds our data
        except ET.ParseError as error:
            raise Unreachable("%s sent something that is not XML" % self.address) from error


def _error_of(answer: Answer) -> Tuple[str, str]:
    """Return code and message of an error's body, empty when it has none."""
    try:
        tree = ET.fromstring(answer.body)  # noqa: S314
    except ET.ParseError:
        return "", ""
    return _raw(tree, "Code")[:64], _raw(tree, "Message")[:160]


def _children(tree: ET.Element, name: str) -> List[ET.Element]:
    """Return the elements of that name, with or without S3's namespace."""
    return [child for child in tree if child.tag.rpartition("}")[2] == name]


def _raw(tree: ET.Element, name: str) -> str:
    return next((child.text or "" for child in _children(tree, name)), "")


def _text(tree: ET.Element, name: str) -> str:
    return unquote_plus(_raw(tree, name))
