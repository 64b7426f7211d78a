"""The decisions of list and watch, without any I/O (W1).

`step` takes the state, what happened and the time, and answers with the next state and the actions to carry out in
order. The last action is always the one whose outcome is the next input. Every failure has exactly one next state::

    state      input                      next       actions
    ---------  -------------------------  ---------  ------------------------------------------------
    Empty      Started                    Listing    List("0")
    Empty      Started, streaming         Initial    WatchInitial                                (W13)
    Initial    InitialEnd                 Watching   Publish                                     (W6, W13)
    Initial    UNREACHABLE, THROTTLED     Initial    Report, BackOff, WatchInitial
    Initial    UNAUTHORIZED               Initial    Report, RefreshCredentials, BackOff, WatchInitial
    Initial    STALLED, first time        Initial    Report, WatchInitial                        (W13)
    Initial    other, first time          Initial    Report, BackOff, WatchInitial
    Initial    any of those, second time  Listing    Report, AbandonStreaming, List("0")         (W13)
    Initial    REJECTED, FORBIDDEN, …     Listing    Report, AbandonStreaming, List("0")         (W13)
    Listing    Listed, not older          Watching   Publish, Watch
    Listing    Listed, older than seen    Listing    Report, BackOff, List("")                   (W2)
    Listing    EXPIRED, TOO_LARGE         Listing    Report, BackOff, List("")                   (W2)
    Listing    REJECTED, nothing listed   Refused    GiveUp                                      (S8)
    Listing    UNAUTHORIZED               Listing    Report, RefreshCredentials, BackOff, List(same)
    Listing    any other failure          Listing    Report, BackOff, List(same)
    Watching   Progress                   Watching   -
    Watching   Closed                     Watching   Report, Watch                               (W4)
    Watching   Closed, short and empty    Watching   Report, BackOff, Watch                      (W10)
    Watching   EXPIRED, TOO_LARGE         Listing    Report, BackOff, List("")                   (W7)
    Watching   THROTTLED, UNREACHABLE     Watching   Report, BackOff, Watch                      (W8, W9)
    Watching   CUT, SILENT, FORBIDDEN     Watching   Report, BackOff, Watch                      (W8, W11)
    Watching   UNAUTHORIZED               Watching   Report, RefreshCredentials, BackOff, Watch  (W8)
    Watching   SERVER, for up to 30 s     Watching   Report, BackOff, Watch                      (W8)
    Watching   SERVER, longer             Listing    Report, BackOff, List(seen)                 (W8)
    Watching   OVERSIZE, UNKNOWN, …       Listing    Report, BackOff, List(seen)                 (W8, W12)

Initial is the state InitialWatch: the first content arrives as a stream, which goes on as the watch. Lists that are
needed later are ordinary ones, so that only the first watch of a cache asks for initial events. A stall is retried at
once, for its 30 s were the pause; and a streaming list that fails twice is given up for the whole process.

After Expired too the list waits for the backoff: a server that answers every watch with 410 would otherwise be listed
in a tight loop. The store goes on answering from its last content meanwhile.
"""

from dataclasses import dataclass, replace
from enum import Enum

from runtime.client.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    InternalError,
    ServerTimeout,
    ServiceUnavailable,
    TooManyRequests,
    TransportError,
    TransportFault,
    Unauthorized,
)
from runtime.client.stream import LineTooLong, WatchSilent
from runtime.errors import RuntimeFault
from runtime.resourceversion import compare, newer

__all__ = [
    "AbandonStreaming",
    "Action",
    "BackOff",
    "Cause",
    "Closed",
    "Empty",
    "Failed",
    "GiveUp",
    "InitialEnd",
    "InitialWatch",
    "Input",
    "Known",
    "List",
    "Listed",
    "Listing",
    "Progress",
    "Publish",
    "RefreshCredentials",
    "Refused",
    "Report",
    "Started",
    "State",
    "Watch",
    "WatchInitial",
    "Watching",
    "cause_of",
    "step",
]

_SERVER_ERROR_PATIENCE = 30.0
_SHORT_WATCH = 1.0
_INITIAL_ATTEMPTS = 2


class Cause(Enum):
    """Why a list or a watch ended; the values are the `reason` labels of metrics."""

    CLOSED = "closed"
    SHORT = "short"
    STALE = "stale"
    EXPIRED = "expired"
    TOO_LARGE = "version_too_large"
    THROTTLED = "throttled"
    UNREACHABLE = "unreachable"
    CUT = "cut_off"
    SILENT = "silent"
    STALLED = "stalled"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    SERVER = "server_error"
    OVERSIZE = "oversize"
    REJECTED = "rejected"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


# What is remembered from one state to the next


@dataclass(frozen=True, slots=True)
class Known:
    """What a reflector has learned of its collection so far."""

    seen: str = ""
    """The newest version that events, bookmarks and lists have brought."""
    published: bool = False
    """Whether the store has ever been filled."""
    paged: bool = False
    """Whether the server cuts lists into pages (W3)."""
    failing_since: float | None = None
    """When the server errors without any event in between began."""


# States


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing is known."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list is under way that asked for `version`; "" means the newest, by quorum."""

    known: Known
    version: str


@dataclass(frozen=True, slots=True)
class InitialWatch:
    """The first content is being streamed into a temporary store; nothing of it has a version yet (W6, W13)."""

    known: Known
    failures: int
    """How many attempts have broken off so far."""


@dataclass(frozen=True, slots=True)
class Watching:
    """A watch is under way, or will be after a backoff, from `known.seen`.

    While not `settled` the stream is a burst of additions in no order, whose versions mean nothing (W6).
    """

    known: Known
    settled: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The server does not serve this selection; final."""


State = Empty | Listing | InitialWatch | Watching | Refused


# Inputs


@dataclass(frozen=True, slots=True)
class Started:
    """The reflector begins; `streaming` when it may ask for a streaming list."""

    streaming: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A list ended well, with the list's own version."""

    version: str
    paged: bool


@dataclass(frozen=True, slots=True)
class InitialEnd:
    """The bookmark came that ends the initial events: all of the collection at this version has arrived."""

    version: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Events or bookmarks were applied up to a version; `only_added` when all of them were additions."""

    version: str
    only_added: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the watch in order."""

    lasted: float
    heard: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The list or the watch failed."""

    cause: Cause
    retry_after: float = 0.0


Input = Started | Listed | InitialEnd | Progress | Closed | Failed


# Actions


@dataclass(frozen=True, slots=True)
class List:
    """List; page only if `paged`. The outcome is Listed or Failed."""

    version: str
    paged: bool


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the store what the list, or the stream of initial events, said."""

    version: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch from a version. The outcome is any number of Progress, then Closed or Failed."""

    version: str


@dataclass(frozen=True, slots=True)
class WatchInitial:
    """Watch and ask for the initial events. The outcome is Failed or Closed, or InitialEnd and then as of Watch."""


@dataclass(frozen=True, slots=True)
class AbandonStreaming:
    """Ask for no streaming list again in this process."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class BackOff:
    """Wait, growing from one failure to the next, but no less than the server asked for."""

    at_least: float = 0.0


@dataclass(frozen=True, slots=True)
class RefreshCredentials:
    """Drop the credentials that were refused."""


@dataclass(frozen=True, slots=True)
class Report:
    """Count and tell what happened and whether a list follows."""

    cause: Cause
    relist: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Fail the start."""

    cause: Cause


Action = (
    List | Publish | Watch | WatchInitial | AbandonStreaming | BackOff | RefreshCredentials | Report | GiveUp
)


def step(state: State, event: Input, now: float) -> tuple[State, tuple[Action, ...]]:
    """Decide what follows; see the table above.

    Raises: ValueError for an input that cannot occur in the state, which is a defect of the caller.
    """
    match state, event:
        case Empty(), Started(streaming):
            return (InitialWatch(Known(), 0), (WatchInitial(),)) if streaming else _relist(Known(), "0")
        case InitialWatch(known), InitialEnd(version):
            # The list's rules hold: the version is the stream's own, never that of an object in it.
            return Watching(replace(known, seen=version, published=True), settled=True), (Publish(version),)
        case InitialWatch(), Closed():
            return _after_failed_initial(state, Failed(Cause.CLOSED))
        case InitialWatch(), Failed():
            return _after_failed_initial(state, event)
        case Listing(known), Listed():
            return _after_list(known, asked=state.version, listed=event)
        case Listing(known), Failed():
            return _after_failed_list(known, asked=state.version, failure=event)
        case Watching(), Progress():
            return _after_progress(state, event), ()
        case Watching(), Closed():
            short = event.lasted < _SHORT_WATCH and not event.heard
            return _rewatch(state, Cause.SHORT, BackOff()) if short else _rewatch(state, Cause.CLOSED)
        case Watching(), Failed():
            return _after_failed_watch(state, event, now)
        case _:
            raise ValueError(f"{type(event).__name__} cannot happen in state {type(state).__name__}")


def _after_list(known: Known, *, asked: str, listed: Listed) -> tuple[State, tuple[Action, ...]]:
    known = replace(known, paged=known.paged or listed.paged)
    # A quorum answer is taken as it is: were it older, the server's history itself went back (a restored backup).
    if asked and compare(listed.version, known.seen) == -1:
        return _relist(known, "", Report(Cause.STALE, relist=True), BackOff())
    known = replace(known, seen=listed.version, published=True, failing_since=None)
    settled = listed.version not in ("", "0")
    return Watching(known, settled), (Publish(listed.version), Watch(listed.version))


def _after_failed_list(known: Known, *, asked: str, failure: Failed) -> tuple[State, tuple[Action, ...]]:
    report, pause = Report(failure.cause, relist=True), BackOff(failure.retry_after)
    match failure.cause:
        case Cause.EXPIRED | Cause.TOO_LARGE:
            return _relist(known, "", report, pause)
        case Cause.REJECTED if not known.published:
            return Refused(), (GiveUp(failure.cause),)
        case Cause.UNAUTHORIZED:
            return _relist(known, asked, report, RefreshCredentials(), pause)
        case _:
            return _relist(known, asked, report, pause)


def _after_failed_initial(state: InitialWatch, failure: Failed) -> tuple[State, tuple[Action, ...]]:
    cause, report = failure.cause, Report(failure.cause, relist=False)
    pause: tuple[Action, ...] = (BackOff(failure.retry_after),)
    failures = state.failures + 1
    match cause:
        case Cause.UNREACHABLE | Cause.THROTTLED:  # says nothing about streaming: a list would fare no better
            return state, (report, *pause, WatchInitial())
        case Cause.UNAUTHORIZED:
            return state, (report, RefreshCredentials(), *pause, WatchInitial())
        case Cause.REJECTED | Cause.FORBIDDEN | Cause.UNSUPPORTED | Cause.UNKNOWN:
            failures = _INITIAL_ATTEMPTS
        case Cause.STALLED:
            pause = ()
    if failures < _INITIAL_ATTEMPTS:
        return replace(state, failures=failures), (report, *pause, WatchInitial())
    return _relist(state.known, "0", report, AbandonStreaming(cause))


def _after_progress(state: Watching, event: Progress) -> Watching:
    if not state.settled and event.only_added:
        return state
    # `newer` because a version never moves back; of incomparable ones the later in the stream counts.
    seen = newer(state.known.seen, event.version) if event.version else state.known.seen
    return Watching(replace(state.known, seen=seen, failing_since=None), settled=True)


def _after_failed_watch(state: Watching, failure: Failed, now: float) -> tuple[State, tuple[Action, ...]]:
    known, cause, pause = state.known, failure.cause, BackOff(failure.retry_after)
    match cause:
        case Cause.EXPIRED | Cause.TOO_LARGE:
            return _relist(known, "", Report(cause, relist=True), pause)
        case Cause.THROTTLED | Cause.UNREACHABLE | Cause.CUT | Cause.SILENT | Cause.FORBIDDEN:
            return _rewatch(state, cause, pause)
        case Cause.UNAUTHORIZED:
            return _rewatch(state, cause, RefreshCredentials(), pause)
        case Cause.SERVER:
            since = now if known.failing_since is None else known.failing_since
            if now - since <= _SERVER_ERROR_PATIENCE:
                patient = Watching(replace(known, failing_since=since), state.settled)
                return _rewatch(patient, cause, pause)
    return _relist(known, known.seen, Report(cause, relist=True), pause)


def _relist(known: Known, version: str, *before: Action) -> tuple[State, tuple[Action, ...]]:
    # With a set version the limit makes an older server read from etcd instead of its cache, so it is only sent to
    # servers that have shown to page (W3).
    paged = known.paged or version in ("", "0")
    known = replace(known, failing_since=None)
    return Listing(known, version), (*before, List(version, paged))


def _rewatch(state: Watching, cause: Cause, *before: Action) -> tuple[State, tuple[Action, ...]]:
    return state, (Report(cause, relist=False), *before, Watch(state.known.seen))


def cause_of(error: RuntimeFault) -> Failed:
    """Name the cause of a failed list or watch, whichever of its shapes it came in (W7, W8)."""
    match error:
        case ApiError():
            return Failed(_cause_of_api_error(error), error.retry_after or 0.0)
        case TransportError(fault=TransportFault.RESET):
            return Failed(Cause.CUT)
        case TransportError():
            return Failed(Cause.UNREACHABLE)
        case WatchSilent():
            return Failed(Cause.SILENT)
        case LineTooLong():
            return Failed(Cause.OVERSIZE)
        case _:
            return Failed(Cause.UNKNOWN)


def _cause_of_api_error(error: ApiError) -> Cause:
    match error:
        case Gone():
            return Cause.EXPIRED
        case ServerTimeout() if error.has_cause("ResourceVersionTooLarge") or (
            "too large resource version" in error.message.lower()
        ):
            return Cause.TOO_LARGE
        case TooManyRequests():
            return Cause.THROTTLED
        case ServiceUnavailable():
            return Cause.UNREACHABLE
        case InternalError() | ServerTimeout():
            return Cause.SERVER
        case Unauthorized():
            return Cause.UNAUTHORIZED
        case Forbidden():
            return Cause.FORBIDDEN
        case BadRequest():
            return Cause.REJECTED
        case _:
            return Cause.UNKNOWN
