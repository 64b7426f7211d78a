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


class Counted(Enum):
    """How many copies a commit takes (QR2)."""

    MAJORITY_OF_EACH = auto()
    """More than half of the copies of every shard."""
    MINORITY_OF_EACH = auto()
    """One less."""
    MAJORITY_OF_ALL = auto()
    """More than half of all copies together."""
    MAJORITY_OF_ONE = auto()
    """More than half of the copies of some shard."""


@dataclass(frozen=True, slots=True)
class QuorumRules:
    """Ours by default, for the model of shards and copies."""

    shards: int = 2
    copies: int = 3
    counted: Counted = Counted.MAJORITY_OF_EACH
    is_decided_once: bool = True
    """DECISION is created if it is absent, and never changed."""
    records_aborts: bool = True
    """An abort is the same DECISION; else the object of the checkpoint says so alone."""
    reads_back: bool = True
    """Who decided reads what holds, and does not take its own word for it (DE2)."""
    acks_last: bool = True
    """A copy is acknowledged when all of it is durable (QR3, IV11)."""
    believes_members: bool = False
    """What members say is counted, and not what the store shows (DE3)."""
    sweep_keeps_decision: bool = True
    pin: Pin = Pin.UNTIL_OUTCOME
    """Of the base, where there is one, as are the following."""
    mark_is_cas: bool = True
    looks_first: bool = False
    settles_orphans: bool = True
    spares_lost: bool = True
    """What a copy refers to that DECISION names stays even if its index is lost: a repair needs it (GC5)."""
    spares_other_copies: bool = True
    """What a copy refers to stays if any copy of its shard has an index: the prober may be about to complete it."""
