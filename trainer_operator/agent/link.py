"""The way to the operator: one kept-alive connection that is held, and short ones for urgent news (TX, AG8).

    answer                    what follows
    200 and a reply           go on with this address
    503, 429                  not the leader, or too fast: next address, no sooner than Retry-After allows
    401, 403                  read the token again; 1 s doubling to 15 s, full jitter
    anything else             next address; 0.2 s doubling to 5 s, full jitter

A connection that was used before may have been closed meanwhile, which shows only when a beat is posted: that is no
failure, and the beat is posted again at once, on a new connection to the same address. The server knows a beat that it
has taken already by its `seq` (TX7).

No failure here ever reaches the training process.
"""

from __future__ import annotations

import http.client
import random
import ssl
import threading
from typing import Callable, List, Optional, Tuple
from urllib.parse import urlsplit

from trainer_operator.agent import beats

PATH = "/v1/agents/beat"
ANSWER_TIME = 10.0
"""Seconds beyond the hold that an answer may take (AA7)."""
_TOGETHER = 0.01
"""Seconds in which news travels together: a spawn and the result of its Go are one beat, not two of few tokens."""
_LONGEST_RETRY_AFTER = 15.0
_CLOSED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a connection says that the server had closed; `RemoteDisconnected` is a ConnectionError."""
Clock = Callable[[], float]


class NoAnswer(Exception):
    """The operator could not be reached, or what came back is no reply."""


class NotServing(NoAnswer):
    """The replica does not lead, or asks for patience."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Refused(NoAnswer):
    """The token is missing or not accepted."""


class Addresses:
    """The operator's addresses, and which of them answered last."""

    def __init__(self, urls: Tuple[str, ...]) -> None:
        self._urls = urls
        self._current = 0
        self._failed = 0

    def __len__(self) -> int:
        return len(self._urls)

    @property
    def current(self) -> str:
        """The address to use now."""
        return self._urls[self._current % len(self._urls)]

    def works(self) -> None:
        """Stay with the current address."""
        self._failed = 0

    def turn(self) -> bool:
        """Go to the next address; true when each has failed since the last answer, so that a wait is due."""
        self._current = (self._current + 1) % len(self._urls)
        self._failed += 1
        if self._failed >= len(self._urls):
            self._failed = 0
            return True
        return False


class Backoff:
    """Full jitter: the n-th delay is uniform between `base` and `base * 2^n`, capped."""

    def __init__(self, base: float, cap: float, *, rng: random.Random) -> None:
        self._base, self._cap, self._rng = base, cap, rng
        self._count = 0

    def next(self) -> float:
        """Return the next delay."""
        self._count = min(self._count + 1, 16)
        return self._rng.uniform(self._base, min(self._cap, self._base * 2.0**self._count))

    def reset(self) -> None:
        """Start over after a success."""
        self._count = 0


class Bucket:
    """A token bucket below the operator's own, 2 a second and burst 10 (AA7), shared by all connections."""

    def __init__(self, clock: Clock, *, rate: float = 1.9, burst: float = 8.0) -> None:
        self._clock, self._rate, self._burst = clock, rate, burst
        self._lock = threading.Lock()
        self._tokens, self._at = burst, clock()

    def take(self) -> float:
        """Take a token and return how long to wait before using it."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1
            self._at = now
            return max(0.0, -self._tokens / self._rate)


class Connection:
    """One connection to one address; opens itself, with the token as it is then (AA1)."""

    def __init__(self, url: str, *, context: ssl.SSLContext, token_file: str) -> None:
        self.url = url
        self._context, self._token_file = context, token_file
        self._connection: Optional[http.client.HTTPSConnection] = None
        self._token = ""

    def post(self, body: bytes, *, hold: float) -> beats.Reply:
        """Post a beat and return the reply.

        Raises: NoAnswer or one of its kinds; the connection is then closed.
        """
        was_open = self._connection is not None
        try:
            try:
                return self._post(body, hold + ANSWER_TIME)
            except _CLOSED:
                if not was_open:
                    raise
                self.close()
                return self._post(body, hold + ANSWER_TIME)
        except NoAnswer:
            self.close()
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise NoAnswer("%s: %s" % (self.url, error or type(error).__name__)) from error

    def close(self) -> None:
        """Close it; the next post opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes, timeout: float) -> beats.Reply:
        if self._connection is None:
            self._token = read_token(self._token_file)
            parts = urlsplit(self.url)
            self._connection = http.client.HTTPSConnection(
                parts.hostname or "", parts.port or 443, timeout=timeout, context=self._context
            )
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + self._token}
        self._connection.request("POST", PATH, body=body, headers=headers)
        response = self._connection.getresponse()
        raw = response.read(beats.MAX_REPLY_BYTES + 1)
        if response.status == 200:
            try:
                return beats.parse_reply(raw)
            except beats.MalformedReply as error:
                raise NoAnswer("%s: %s" % (self.url, error)) from error
        message = "%s answered %d" % (self.url, response.status)
        if response.status in (429, 503):
            raise NotServing(message, _seconds(response.getheader("Retry-After")))
        if response.status in (401, 403):
            raise Refused("%s: %s" % (message, raw[:200].decode("utf-8", "replace")))
        raise NoAnswer(message)


def tls_context(ca: str) -> ssl.SSLContext:
    """Trust the operator's authority only, and check the host's name.

    Raises: ValueError when the text is not PEM.
    """
    try:
        return ssl.create_default_context(cadata=ca) if ca else ssl.create_default_context()
    except ssl.SSLError as error:
        raise ValueError("TRAINER_OPERATOR_CA is not the PEM text of a certificate") from error


def read_token(path: str) -> str:
    """Read the projected token.

    Raises: Refused when it is missing, empty or no header value.
    """
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(65536).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("the token file %s cannot be read: %s" % (path, error)) from error
    if not token or not token.isprintable():
        raise Refused("the token file %s holds no token" % path)
    return token


class Link:
    """The two loops that talk to the operator.

    Guarantees: at most one beat is held at a time; urgent news goes beside it (TX6); nothing but `stop` ends the
    loops.
    """

    def __init__(
        self,
        addresses: Addresses,
        *,
        connect: Callable[[str], Connection],
        make_beat: Callable[[float], Tuple[bytes, List[str]]],
        on_reply: Callable[[beats.Reply, List[str]], None],
        wait_news: Callable[[float], bool],
        log: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._addresses, self._connect = addresses, connect
        self._make_beat, self._on_reply, self._wait_news = make_beat, on_reply, wait_news
        self._log, self._rng = log, rng
        self._bucket = Bucket(clock)
        self._stopped = threading.Event()
        self._lost = False

    def start(self) -> None:
        """Start both loops in daemon threads."""
        for name, loop in (("hold", self._hold_loop), ("urgent", self._urgent_loop)):
            threading.Thread(target=loop, name=name, daemon=True).start()

    def stop(self) -> None:
        """End the loops at their next turn."""
        self._stopped.set()

    def post_once(self, timeout: float) -> None:
        """Post one last beat, or give up quietly."""
        body, reported = self._make_beat(0.0)
        connection = self._connect(self._addresses.current)
        try:
            self._on_reply(connection.post(body, hold=timeout - ANSWER_TIME), reported)
        except NoAnswer as error:
            self._log("the last beat was not delivered: %s" % error)
        finally:
            connection.close()

    def _hold_loop(self) -> None:
        connection: Optional[Connection] = None
        transport = Backoff(0.2, 5.0, rng=self._rng)
        refusals = Backoff(1.0, 15.0, rng=self._rng)
        hold = 0.0
        while not self._stopped.wait(self._bucket.take()):
            if connection is None or connection.url != self._addresses.current:
                if connection is not None:
                    connection.close()
                connection = self._connect(self._addresses.current)
            body, reported = self._make_beat(hold)
            try:
                reply = connection.post(body, hold=hold)
            except NoAnswer as error:
                hold = 0.0
                self._note(error)
                self._stopped.wait(self._after(error, transport, refusals))
                continue
            self._addresses.works()
            transport.reset()
            refusals.reset()
            self._note(None)
            hold = reply.hb * self._rng.uniform(0.9, 1.0)
            self._on_reply(reply, reported)

    def _urgent_loop(self) -> None:
        backoff = Backoff(0.2, 5.0, rng=self._rng)
        again = False
        while not self._stopped.is_set():
            if not self._wait_news(1.0) and not again:
                continue
            again = False
            self._stopped.wait(max(_TOGETHER, self._bucket.take()))
            self._wait_news(0.0)  # news since then is in this beat too
            body, reported = self._make_beat(0.0)
            connection = self._connect(self._addresses.current)
            try:
                reply = connection.post(body, hold=0.0)
            except NoAnswer:  # the hold loop finds the address that answers; this one only tries again
                again = True
                self._stopped.wait(backoff.next())
                continue
            finally:
                connection.close()
            backoff.reset()
            self._on_reply(reply, reported)

    def _after(self, error: NoAnswer, transport: Backoff, refusals: Backoff) -> float:
        if isinstance(error, Refused):
            self._addresses.turn()
            return refusals.next()
        all_failed = self._addresses.turn()
        if isinstance(error, NotServing):
            return max(error.retry_after, transport.next()) if all_failed else 0.0
        return transport.next() if all_failed else 0.0

    def _note(self, error: Optional[NoAnswer]) -> None:
        """Log when contact is lost and when it is back, not every try."""
        if error is not None and not self._lost:
            self._log("no answer from the operator, training goes on: %s" % error)
        elif error is None and self._lost:
            self._log("the operator answers again")
        self._lost = error is not None


def _seconds(text: Optional[str]) -> float:
    try:
        return min(_LONGEST_RETRY_AFTER, max(0.0, float(text or 0)))
    except ValueError:
        return 0.0
