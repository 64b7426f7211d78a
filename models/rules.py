"""The rules that the model follows, each of which can be weakened by itself."""

from dataclasses import dataclass
from enum import Enum, auto


class Pin(Enum):
    """How long a base waits for the attempt that builds on it (GC2, GC3)."""

    UNTIL_OUTCOME = auto()
    """Until the attempt's object shows an outcome, or is gone."""
    UNTIL_ACKED = auto()
    """Until all data is stored."""
    NEVER = auto()


class Look(Enum):
    """How a collection learns who lives (GC4)."""

    UNTIL_NOTHING_NEW = auto()
    """One checkpoint after the other, again and again until a whole look finds nothing new."""
    ONCE = auto()
    """One checkpoint after the other."""
    FROM_OBJECTS = auto()
    """At one instant, those whose objects say Committed."""


class Purge(Enum):
    """When the records of a checkpoint go that has no data any more (DE4)."""

    NEVER = auto()
    DECISION_FIRST = auto()
    """Once nobody can be held up any more who began before: DECISION, then the tombstone."""
    TOMBSTONE_FIRST = auto()
    AT_ONCE = auto()
    """Though somebody may still be held up."""
    WITH_DATA = auto()
    """Though data lies there that others refer to, or did."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Ours by default."""

    pin: Pin = Pin.UNTIL_OUTCOME
    look: Look = Look.UNTIL_NOTHING_NEW
    purge: Purge = Purge.NEVER
    own_keys: bool = True
    """The key of a piece names the checkpoint that wrote it; else equal content has one key."""
    looks_again: bool = True
    """Who lives is read anew when the index of one that lived is being deleted."""
    settles_orphans: bool = True
    """An undecided attempt whose base does not live is aborted before anything is deleted."""
    sweep_keeps_decision: bool = True
    collection_keeps_records: bool = True
    mark_is_cas: bool = True
    """A checkpoint is marked only if nobody pinned it since it was read."""
    looks_first: bool = False
    """Who lives is read before the mark and not after it."""
    objects_vanish: bool = False
    """People delete objects of attempts that are under way."""
    overlap: bool = False
    """The second attempt does not wait for the end of the first."""
    behind: bool = False
    """The second attempt refers to what is shared, and its base is C2 although that is the newest no more, as a cache
    that is behind may have a leader choose; the first attempt refers to nothing of others then."""
