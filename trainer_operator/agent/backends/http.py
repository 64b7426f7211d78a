"""Signed requests to one bucket over kept connections; an answer is a status, headers and a bounded body."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
from dataclasses import dataclass
from datetime import datetime
from typing import Callable, List, Mapping, Sequence, Tuple

from trainer_operator.agent.backends.access import AUTHORITY, Endpoint
from trainer_operator.agent.backends.errors import BadAddress, TooLarge, Unreachable
from trainer_operator.agent.backends.protocol import Content
from trainer_operator.agent.backends.signature import Keys, Unsigned, sign

TIMEOUT = 30.0
"""Seconds without a byte after which an answer is given up; well below the sweep grace of 10 minutes (CS9)."""


@dataclass(frozen=True)
class Answer:
    """What the store said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class SignedClient:
    """Sends signed requests; usable from several threads, each with a connection of its own.

    Guarantees: one request is sent once; nothing is repeated here, since only callers know what may be (DE2).
    """

    def __init__(self, endpoint: Endpoint, *, keys: Callable[[], Keys], now: Callable[[], datetime]) -> None:
        self._endpoint, self._keys, self._now = endpoint, keys, now
        self._lock = threading.Lock()
        self._idle: List[http.client.HTTPConnection] = []
        self._tls = _tls_context(endpoint)

    def send(
        self,
        method: str,
        key: str,
        *,
        query: Sequence[Tuple[str, str]] = (),
        headers: Mapping[str, str],
        body: Content,
        limit: int,
    ) -> Answer:
        """Send one request and read its answer.

        Raises: Unreachable when no whole answer came; TooLarge when it has more than `limit` bytes; NoRights.
        """
        endpoint = self._endpoint
        request = Unsigned(method, endpoint.netloc, endpoint.path + "/" + key, query, headers, body)
        signed = sign(request, self._keys(), region=endpoint.region, now=self._now())
        connection = self._take()
        try:
            connection.request(method, request.target, body=body or None, headers=signed)
            response = connection.getresponse()
            answer = _read(response, key, limit=limit)
            reusable = not response.will_close and response.isclosed()
        except TooLarge:
            connection.close()
            raise
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise BadAddress(
                "the certificate of %s is not trusted (%s); put the PEM of its authority into %s of the Secret"
                % (endpoint.netloc, error.verify_message, AUTHORITY)
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self.close()  # the other kept connections are as old as this one
            raise Unreachable(
                "no answer from %s: %s" % (endpoint.netloc, str(error) or type(error).__name__)
            ) from error
        if reusable:
            with self._lock:
                self._idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            with contextlib.suppress(OSError):
                connection.close()

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        endpoint = self._endpoint
        if self._tls is not None:
            return http.client.HTTPSConnection(
                endpoint.host, endpoint.port, timeout=TIMEOUT, context=self._tls
            )
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=TIMEOUT)


def _read(response: http.client.HTTPResponse, key: str, *, limit: int) -> Answer:
    """Read a whole answer.

    Raises: TooLarge; IncompleteRead when it breaks off.
    """
    data = response.read(limit + 1)
    if len(data) > limit:
        raise TooLarge("%s has more than %d bytes" % (key, limit))
    if response.length:
        raise http.client.IncompleteRead(data, response.length)
    return Answer(response.status, {name.lower(): text for name, text in response.getheaders()}, data)


def _tls_context(endpoint: Endpoint) -> "ssl.SSLContext | None":
    """Return how to check the store's certificate.

    Raises: BadAddress when the authority in the Secret is no PEM.
    """
    if not endpoint.secure:
        return None
    try:
        return ssl.create_default_context(cadata=endpoint.authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise BadAddress("%s of the Secret holds no certificate in PEM: %s" % (AUTHORITY, error)) from error
