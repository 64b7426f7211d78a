"""Requests to the hub, and to where it redirects them; an answer is a status, headers and a body that is read in parts.

    GET, with the token ──▶ the hub ──redirect, three at most──▶ the hub ──redirect──▶ its storage, without the token

The token goes to the hub's own host, scheme and port, and never again once a redirect has left them (NE4): who sends
us back must not choose what it is shown to. Links to storage are signed, so no URL is ever part of a message.
"""

from __future__ import annotations

import http.client
import re
import ssl
from contextlib import contextmanager
from typing import Iterator, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import urljoin, urlsplit

from trainer_operator.agent.hub.errors import (
    AccessDenied,
    BadAnswer,
    FileNotFound,
    HubError,
    HubThrottled,
    HubUnreachable,
    RepositoryNotFound,
    RevisionNotFound,
)
from trainer_operator.agent.hub.reach import Inwardness, Refused, connect

TIMEOUT = 30.0
"""Seconds without a byte after which a connection is given up, and the rest is asked for anew."""
MAX_REDIRECTS = 3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_BAD = re.compile(r"[\x00-\x20\x7f-\uffff]")
_LONGEST_PAUSE = 60.0


class Origin(NamedTuple):
    """Whom a connection is made to, and who may see the token."""

    secure: bool
    host: str
    port: int


class Answer:
    """What came back. Read it inside the `with` that gave it."""

    def __init__(self, response: http.client.HTTPResponse, origin: Origin) -> None:
        self._response, self._origin = response, origin
        self.status = response.status

    def header(self, name: str) -> str:
        """Return a header; empty when there is none."""
        return self._response.getheader(name) or ""

    def read(self, size: int) -> bytes:
        """Return what has come, at most so many bytes; none at the end, also when the connection was cut.

        Raises: HubUnreachable.
        """
        try:
            return self._response.read1(size)
        except (OSError, http.client.HTTPException) as error:
            raise HubUnreachable(
                "the connection to %s broke: %s" % (self._origin.host, _words(error))
            ) from error


class Hub:
    """One hub, asked with one token or none; usable from several threads.

    Guarantees: the token is sent to the hub alone; nothing is repeated here.
    """

    def __init__(self, address: str, *, token: str = "", timeout: float = TIMEOUT) -> None:
        """`address` is like https://huggingface.co; plain http is for a hub that the administrator chose so."""
        self.address = address.rstrip("/")
        self._origin = _origin(self.address)
        self._token, self._timeout = token, timeout
        self._tls = ssl.create_default_context()

    @property
    def host(self) -> str:
        """The hub's name in messages."""
        return urlsplit(self.address).netloc

    @contextmanager
    def get(self, path: str, *, headers: Optional[Mapping[str, str]] = None) -> Iterator[Answer]:
        """Get a path of the hub, over redirects; an answer of any status.

        Raises: HubUnreachable; BadAnswer for a redirect that is not followed, or a certificate that is not trusted.
        """
        url, ours = self.address + path, True
        most: Optional[Inwardness] = None
        for _ in range(MAX_REDIRECTS + 1):
            origin = _origin(url)
            if self._origin.secure and not origin.secure:
                raise BadAnswer("%s redirects from https to http, which is not followed" % self.host)
            ours = ours and origin == self._origin
            connection, place = self._connect(origin, most=most)
            most = place if most is None else most
            try:
                response = self._ask(connection, origin, url, headers=headers or {}, ours=ours)
                if response.status not in _REDIRECTS:
                    yield Answer(response, origin)
                    return
                url = urljoin(url, response.getheader("Location") or "")
            finally:
                connection.close()
        raise BadAnswer("%s redirects more than %d times" % (self.host, MAX_REDIRECTS))

    def problem(self, answer: Answer, *, repo: str, what: str) -> Optional[HubError]:
        """Say what an answer's status means for a request of this repository; None when it was granted."""
        status, code = answer.status, answer.header("X-Error-Code")
        if status in (200, 206):
            return None
        if answer._origin != self._origin:  # a link to storage that ran out, say: the hub gives a new one
            return HubUnreachable(
                "%s, where %s keeps its files, answered %d" % (answer._origin.host, self.host, status)
            )
        if status == 429:
            return HubThrottled(
                "%s wants fewer requests" % self.host, pause=_pause(answer.header("Retry-After"))
            )
        if status >= 500 or status == 408:
            return HubUnreachable("%s answered %d" % (self.host, status))
        if status in (401, 403):
            return AccessDenied(self._denied(repo, gated=code == "GatedRepo"))
        if status == 404:
            return _missing(code, repo=repo, what=what)
        return BadAnswer("%s answered %d when asked for %s of %s" % (self.host, status, what, repo))

    def _denied(self, repo: str, *, gated: bool) -> str:
        if gated and self._token:
            return (
                "%s is gated, and the account of the token in credentialsSecret has no access: ask for it on its page"
                % repo
            )
        if gated:
            return (
                "%s is gated: name a Secret with HF_TOKEN, of an account that has access, in credentialsSecret"
                % repo
            )
        if self._token:
            return "%s does not show %s to the token in credentialsSecret" % (self.host, repo)
        return (
            "%s does not show %s without a token: it is private or does not exist; name a Secret with HF_TOKEN in "
            "credentialsSecret" % (self.host, repo)
        )

    def _connect(
        self, origin: Origin, *, most: Optional[Inwardness]
    ) -> Tuple[http.client.HTTPConnection, Inwardness]:
        """Connect, at an address that is no further inside than the hub's own."""
        kind = http.client.HTTPSConnection if origin.secure else http.client.HTTPConnection
        connection = kind(origin.host, origin.port)
        try:
            plain, place = connect(origin.host, origin.port, timeout=self._timeout, most=most)
            connection.sock = plain
            if origin.secure:
                connection.sock = self._tls.wrap_socket(plain, server_hostname=origin.host)
        except Refused as error:
            raise BadAnswer(
                "%s redirects to a private or local address, which is not followed" % self.host
            ) from error
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise BadAnswer(
                "the certificate of %s is not trusted: %s" % (origin.host, error.verify_message)
            ) from error
        except (OSError, UnicodeError) as error:  # names that are no host names fail to be encoded
            connection.close()
            raise HubUnreachable("no connection to %s: %s" % (origin.host, _words(error))) from error
        return connection, place

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        origin: Origin,
        url: str,
        *,
        headers: Mapping[str, str],
        ours: bool,
    ) -> http.client.HTTPResponse:
        own = {"Authorization": "Bearer " + self._token} if ours and self._token else {}
        parts = urlsplit(url)
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        sent = {"User-Agent": "trainer-operator", "Accept-Encoding": "identity", **headers, **own}
        try:
            connection.request("GET", target, headers=sent)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise HubUnreachable("no answer from %s: %s" % (origin.host, _words(error))) from error


def _origin(url: str) -> Origin:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or _BAD.search(url):
        raise BadAnswer("the hub's address, or one that it redirects to, is not like https://host/path")
    secure = parts.scheme == "https"
    return Origin(secure, parts.hostname, port or (443 if secure else 80))


def _missing(code: str, *, repo: str, what: str) -> HubError:
    if code == "RevisionNotFound":
        return RevisionNotFound("%s has no revision %s" % (repo, what))
    if code == "EntryNotFound":
        return FileNotFound("%s has no file %s" % (repo, what))
    return RepositoryNotFound("the hub has no repository %s, or nothing of it as %s" % (repo, what))


def _pause(header: str) -> float:
    return min(float(header), _LONGEST_PAUSE) if re.match(r"^\d{1,6}\Z", header) else 1.0


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def content_range(header: str) -> Tuple[int, Optional[int]]:
    """Read where a partial answer begins, and how long the whole is; (-1, None) for what is no range."""
    found = re.match(r"^bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)\Z", header)
    if found is None:
        return -1, None
    return int(found.group(1)), None if found.group(2) == "*" else int(found.group(2))
