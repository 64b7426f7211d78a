"""What can go wrong between a client and an API server, as values (P4).

A :class:`Rule` says which requests a fault befalls and how often; the fault proxy looks through its rules in the
order in which they were given and carries out the first that applies. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = [
    "Asked",
    "Cut",
    "Delay",
    "EndAtOnce",
    "Expire",
    "Expired",
    "Fault",
    "HideBookmarks",
    "Refuse",
    "Rewind",
    "Rule",
    "Stall",
    "Twice",
]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it arrived."""

    verb: str
    """LIST, WATCH, GET, POST, PUT, PATCH or DELETE."""
    path: str
    query: Mapping[str, str]
    agent: str
    """The User-Agent, which tells clients apart."""
    at: float
    """When it came, on the event loop's clock."""
    connection: int
    """The client's port: equal for requests on one connection."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error and do not ask the server."""

    status: int
    reason: str = ""
    retry_after: int | None = None
    """Seconds, for the header of that name."""


@dataclass(frozen=True, slots=True)
class EndAtOnce:
    """Answer a watch with an orderly end before its first event (RT3)."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Forward later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Stall:
    """Never answer; the connection stays open and its peer answers keepalive probes."""

    reaches_server: bool = False
    """Whether the server gets the request, so that it takes effect."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Break the connection off instead of answering."""

    reaches_server: bool = False
    """Whether the server gets the request, so that it takes effect."""


class Expired(Enum):
    """The three shapes in which a server says that a version is too old (W7)."""

    STATUS = "the answer's status is 410"
    BODY = "the answer is 200 and its whole body is a Status of 410"
    EVENT = "the stream holds an ERROR event with a Status of 410"


@dataclass(frozen=True, slots=True)
class Expire:
    """Answer that the version asked for is too old."""

    shape: Expired


@dataclass(frozen=True, slots=True)
class Rewind:
    """Ask the server for another version than the client did; the server's answer is its own."""

    version: str


@dataclass(frozen=True, slots=True)
class Twice:
    """Send the request over two connections, one after the other, and pass on the second answer."""


@dataclass(frozen=True, slots=True)
class HideBookmarks:
    """Pass a watch on without its bookmarks."""


Fault = Refuse | EndAtOnce | Delay | Stall | Cut | Expire | Rewind | Twice | HideBookmarks


@dataclass(slots=True)
class Rule:
    """A fault, the requests it befalls, and how many of them."""

    fault: Fault
    verbs: frozenset[str] = frozenset()
    """Empty for all."""
    path: str = ""
    """A part of the path."""
    agent: str = ""
    """A part of the User-Agent."""
    times: int | None = None
    """None for as long as the rule is not withdrawn."""
    spare: int = 0
    """How many requests that it applies to still pass before it befalls one."""
    hits: int = field(default=0, init=False)
    """How many requests it has befallen."""

    def applies(self, asked: Asked) -> bool:
        """Tell whether the fault befalls this request."""
        return (
            (self.times is None or self.hits < self.times)
            and (not self.verbs or asked.verb in self.verbs)
            and self.path in asked.path
            and self.agent in asked.agent
        )

    def withdraw(self) -> None:
        """Let the fault befall no further request; those it befell stay as they are. Idempotent."""
        self.times = self.hits
