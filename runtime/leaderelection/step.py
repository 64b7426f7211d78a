"""The election as a pure state machine (L1-L7).

::

    state       event                          next state   actions
    Candidate   Woken                          Candidate    Read
                Found, held by another         Candidate    Sleep until retry or expiry, whichever comes first
                Found, absent, free, expired   Candidate*   Write(ours)
                Written                        Leader       Extend(sent + deadline), Sleep
                Failed                         Candidate    Sleep
                Stopped                        Ended        Shut; but Candidate* goes to Releasing with Shut, Read
    Leader      Woken                          Leader       Write at the remembered version
                Written                        Leader       Extend(sent + deadline), Sleep
                Failed, first                  Leader slow  Read
                Failed, again                  Leader slow  Sleep, then Read
                Found, ours or absent          Leader slow  Write
                Found, not ours                Ended lost   Shut
                any, at or after valid_until   Ended lost   Shut
                Refused                        Ended lost   Shut
                Stopped                        Releasing    Shut, Read
    Releasing   Found, ours                    Releasing    Write(nobody's, 1 s)
                Found, not ours                Ended
                Written                        Ended
                Failed by conflict             Releasing    Read
                Failed otherwise               Releasing    Sleep, then Read; after five tries Ended

(* has sent a write whose outcome may be unknown.)

Two rules make it safe. A candidate waits the record's whole duration from when *it saw* the last change, on its own
monotonic clock; it compares no remote time (L2). A leader's permission ends a renew deadline after it *sent* the last
renewal that succeeded (L6). Whatever the clocks show, the second ends before the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime.errors import ConfigurationInvalid
from runtime.leaderelection.record import Lease, recorded_duration

__all__ = [
    "JITTER",
    "Action",
    "Candidate",
    "Ended",
    "Event",
    "Extend",
    "Failed",
    "Follow",
    "Found",
    "Leader",
    "Read",
    "Refused",
    "Releasing",
    "Shut",
    "Sighting",
    "Sleep",
    "State",
    "Stopped",
    "Terms",
    "Woken",
    "Write",
    "Written",
    "step",
]

JITTER = 1.2
"""A retry comes after the retry period times a factor from 1 to this (L1)."""

RELEASE_TRIES = 5
RELEASE_PAUSE = 0.2
"""Seconds between tries; a release that fails costs the rival the lease duration, not safety."""

RELEASED_DURATION = 1.0
"""Seconds, written with a release; the API does not accept zero."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Who runs for election, and the durations in seconds.

    Raises: ConfigurationInvalid unless lease > deadline > retry x jitter (L1).
    """

    identity: str
    lease_duration: float = 15.0
    """For how long after the last renewal nobody else may take the lease; client-go's default."""
    renew_deadline: float = 10.0
    """For how long after sending the last successful renewal this process may write."""
    retry_period: float = 2.0
    """Pause between two attempts."""

    def __post_init__(self) -> None:
        if not self.identity:
            raise ConfigurationInvalid("the identity of a leader candidate must not be empty")
        if not self.lease_duration > self.renew_deadline > self.retry_period * JITTER > 0:
            raise ConfigurationInvalid(
                "leader election needs lease duration > renew deadline > retry period x "
                f"{JITTER}, got {self.lease_duration}, {self.renew_deadline}, {self.retry_period}"
            )

    @property
    def in_flight_grace(self) -> float:
        """Seconds after the right to write has ended in which no rival can have it yet (L6).

        A rival waits for the duration in the record, which is in whole seconds, from when it saw the renewal, and
        that is no earlier than it was sent.
        """
        lease = min(self.lease_duration, recorded_duration(self.lease_duration))
        return max(0.0, lease - self.renew_deadline)


# States


@dataclass(frozen=True, slots=True)
class Sighting:
    """A lease, and when this process first saw that version of it."""

    lease: Lease
    at: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """Waits for the lease to become free."""

    seen: Sighting | None = None
    claimed: bool = False
    """Whether a write was sent whose outcome is unknown: the lease may be ours."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Holds the lease."""

    lease: Lease
    valid_until: float
    slow: bool = False
    """Whether the last renewal failed, so that the lease must be read first (L3)."""


@dataclass(frozen=True, slots=True)
class Releasing:
    """Gives the lease back; the fence is shut."""

    tries: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """Takes no further part; there is no re-election in one process."""

    reason: str
    lost: bool


State = Candidate | Leader | Releasing | Ended


# Events


@dataclass(frozen=True, slots=True)
class Woken:
    """A sleep is over, or the election begins."""


@dataclass(frozen=True, slots=True)
class Found:
    """The lease was read; None if it does not exist."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Written:
    """The API server took the write that was sent at `sent_at`."""

    lease: Lease
    sent_at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """A read or write failed, or its outcome is unknown."""

    conflict: bool = False
    """Whether another party wrote in between."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Everything the fence guards has ended; the lease can be given back."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The fence did not let itself be extended: it has expired since the step before."""


Event = Woken | Found | Written | Failed | Stopped | Refused


# Actions


@dataclass(frozen=True, slots=True)
class Read:
    """Read the lease; answers with Found or Failed."""


@dataclass(frozen=True, slots=True)
class Write:
    """Create the lease, or update it at its version; answers with Written or Failed."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Sleep:
    """Come back with Woken after so many seconds, jitter not included."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Extend:
    """Open the fence, or extend it."""

    valid_until: float


@dataclass(frozen=True, slots=True)
class Shut:
    """Shut the fence for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Tell the log that another process leads."""

    holder: str


Action = Read | Write | Sleep | Extend | Shut | Follow


def step(terms: Terms, state: State, event: Event, *, now: float) -> tuple[State, tuple[Action, ...]]:
    """Return what follows from an event at monotonic time `now`.

    Guarantees: at most one of the actions waits (Read, Write, Sleep), and it comes last.
    """
    match state:
        case Candidate():
            return _as_candidate(terms, state, event, now)
        case Leader():
            return _as_leader(terms, state, event, now)
        case Releasing():
            return _as_releasing(terms, state, event)
        case Ended():
            return state, ()


def _as_candidate(
    terms: Terms, state: Candidate, event: Event, now: float
) -> tuple[State, tuple[Action, ...]]:
    match event:
        case Woken():
            return state, (Read(),)
        case Found(lease):
            return _judge(terms, state, lease, now)
        case Written(lease, sent_at):
            valid_until = sent_at + terms.renew_deadline
            if now >= valid_until:  # we were stalled; the lease is ours but too old to be used
                return Candidate(Sighting(lease, now), claimed=True), (Read(),)
            return Leader(lease, valid_until), (Extend(valid_until), Sleep(terms.retry_period))
        case Failed():
            return state, (Sleep(terms.retry_period),)
        case Refused():
            return _lose("the fence had been shut before the lease was acquired")
        case Stopped():
            reason = "stopped before leading"
            if state.claimed:
                return Releasing(), (Shut(reason), Read())
            return Ended(reason, lost=False), (Shut(reason),)


def _judge(
    terms: Terms, state: Candidate, lease: Lease | None, now: float
) -> tuple[State, tuple[Action, ...]]:
    """Decide whether the lease that was read may be taken."""
    if lease is None:
        return Candidate(None, claimed=True), (Write(_ours(terms, Lease(), since=None)),)
    if lease.holder == terms.identity:  # a write of ours took effect although its answer was lost
        return Candidate(None, claimed=True), (Write(_ours(terms, lease, since=lease)),)
    seen = state.seen
    is_new = seen is None or seen.lease.version != lease.version
    if seen is None or is_new:
        seen = Sighting(lease, now)
    expires = seen.at + (lease.duration or terms.lease_duration)
    if not lease.holder or now >= expires:
        return Candidate(seen, claimed=True), (Write(_ours(terms, lease, since=None)),)
    has_new_holder = state.seen is None or state.seen.lease.holder != lease.holder
    waiting = Candidate(seen)  # a claim of ours that had taken effect would have shown
    pause = Sleep(min(terms.retry_period, expires - now))
    return waiting, (Follow(lease.holder), pause) if has_new_holder else (pause,)


def _as_leader(terms: Terms, state: Leader, event: Event, now: float) -> tuple[State, tuple[Action, ...]]:
    if now >= state.valid_until:
        return _lose(f"the lease was not renewed within {terms.renew_deadline:g} s")
    match event:
        case Woken():
            if state.slow:
                return state, (Read(),)
            return state, (Write(_ours(terms, state.lease, since=state.lease)),)
        case Written(lease, sent_at):
            valid_until = max(state.valid_until, sent_at + terms.renew_deadline)
            return Leader(lease, valid_until), (Extend(valid_until), Sleep(terms.retry_period))
        case Failed():
            if state.slow:
                return state, (Sleep(min(terms.retry_period, state.valid_until - now)),)
            return replace(state, slow=True), (Read(),)
        case Found(found):
            # Deleted while we hold it: create it anew. Whoever creates it first holds it.
            lease = found if found is not None else replace(state.lease, version="", origin={})
            if lease.holder != terms.identity:
                return _lose(f"{lease.holder or 'nobody'} holds the lease")
            return replace(state, slow=True), (Write(_ours(terms, lease, since=lease)),)
        case Refused():
            return _lose("the fence expired while a renewal arrived")
        case Stopped():
            return Releasing(), (Shut("stopping"), Read())


def _as_releasing(terms: Terms, state: Releasing, event: Event) -> tuple[State, tuple[Action, ...]]:
    match event:
        case Woken() | Stopped() | Refused():
            return state, (Read(),)
        case Found(Lease(holder=terms.identity) as lease):
            return state, (Write(replace(lease, holder="", duration=RELEASED_DURATION, acquired=None)),)
        case Found():
            return Ended("another process holds the lease already", lost=False), ()
        case Written():
            return Ended("released", lost=False), ()
        case Failed(conflict):
            tries = state.tries + 1
            if tries >= RELEASE_TRIES:
                return Ended("the lease could not be released and will expire", lost=False), ()
            return Releasing(tries), (Read(),) if conflict else (Sleep(RELEASE_PAUSE),)


def _lose(reason: str) -> tuple[State, tuple[Action, ...]]:
    return Ended(reason, lost=True), (Shut(reason),)


def _ours(terms: Terms, lease: Lease, *, since: Lease | None) -> Lease:
    """Return the lease with us as holder; `since` is the lease as we held it already."""
    changed_hands = since is None and lease.version != ""
    return replace(
        lease,
        holder=terms.identity,
        duration=terms.lease_duration,
        transitions=lease.transitions + 1 if changed_hands else lease.transitions,
        acquired=since.acquired if since is not None else None,
        renewed=None,
    )
