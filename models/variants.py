"""Our rules, and weakened ones, each by itself."""

from dataclasses import dataclass, replace

from models.checkpoints import Checkpoints
from models.explorer import Verdict
from models.quorum import Quorum
from models.rules import Counted, Look, Pin, Purge, QuorumRules, Rules
from models.sharedbase import QuorumOnBase


@dataclass(frozen=True, slots=True)
class Variant:
    """Rules, and whether they hold."""

    name: str
    rules: Rules | QuorumRules
    is_safe: bool = False
    is_wide: bool = False
    """It takes more than some seconds, so that only `make models` explores it."""
    has_base: bool = False

    def explore(self) -> Verdict:
        """Visit every state of its model."""
        if isinstance(self.rules, Rules):
            return Checkpoints(self.rules).explore()
        return (QuorumOnBase if self.has_base else Quorum)(self.rules).explore()


OURS = (
    Variant("our rules", Rules(), is_safe=True),
    Variant(
        "our rules, records purged in the end", Rules(purge=Purge.DECISION_FIRST), is_safe=True, is_wide=True
    ),
    Variant("our rules, attempts overlap", Rules(overlap=True), is_safe=True, is_wide=True),
    Variant(
        "our rules, people delete objects of attempts", Rules(objects_vanish=True), is_safe=True, is_wide=True
    ),
    Variant("our rules, a cache is behind", Rules(behind=True), is_safe=True),
)
# Where an undecided attempt on a lost base is aborted by the collection, too, no other weakness of the pins shows:
# each is weakened without that.
WEAKENED = (
    Variant("no pin", Rules(pin=Pin.NEVER, settles_orphans=False, overlap=True)),
    Variant(
        "pin dropped before the outcome",
        Rules(pin=Pin.UNTIL_ACKED, settles_orphans=False, overlap=True),
        is_wide=True,
    ),
    Variant(
        "attempts on a lost base left undecided",
        Rules(objects_vanish=True, settles_orphans=False),
        is_wide=True,
    ),
    Variant(
        "marked though it was pinned meanwhile", Rules(mark_is_cas=False, behind=True, settles_orphans=False)
    ),
    Variant("who lives read before the mark", Rules(looks_first=True, behind=True)),
    Variant("one look at who lives", Rules(look=Look.ONCE)),
    Variant("an index that is gone is passed over", Rules(looks_again=False)),
    Variant("who lives taken from the objects", Rules(look=Look.FROM_OBJECTS)),
    Variant("equal content has one key", Rules(own_keys=False)),
    Variant("sweep deletes DECISION", Rules(sweep_keeps_decision=False)),
    Variant("collection deletes DECISION and GC", Rules(collection_keeps_records=False)),
    Variant("records purged while a commit may be held up", Rules(purge=Purge.AT_ONCE)),
    Variant("GC purged before DECISION", Rules(purge=Purge.TOMBSTONE_FIRST)),
    Variant("records purged while data is left", Rules(purge=Purge.WITH_DATA), is_wide=True),
)
QUORUM = (
    Variant("2 shards, 3 copies", QuorumRules(), is_safe=True),
    Variant("2 shards, 2 copies", QuorumRules(copies=2), is_safe=True),
    Variant("2 shards, 1 copy", QuorumRules(copies=1), is_safe=True),
    Variant("3 shards, 3 copies", QuorumRules(shards=3), is_safe=True, is_wide=True),
    Variant("a commit takes one copy less than a majority", QuorumRules(counted=Counted.MINORITY_OF_EACH)),
    Variant("a commit takes a majority of all copies together", QuorumRules(counted=Counted.MAJORITY_OF_ALL)),
    Variant("a commit takes a majority of one shard", QuorumRules(counted=Counted.MAJORITY_OF_ONE)),
    Variant("DECISION is written though it is there", QuorumRules(is_decided_once=False)),
    Variant("an abort is written into the object only", QuorumRules(records_aborts=False)),
    Variant("what was decided is not read back", QuorumRules(reads_back=False)),
    Variant("a copy is acknowledged before it is durable", QuorumRules(acks_last=False)),
    Variant("what members say is counted", QuorumRules(believes_members=True)),
    Variant("sweep deletes DECISION, several copies", QuorumRules(sweep_keeps_decision=False)),
)
_TWO_BY_TWO = QuorumRules(copies=2)
_ONE_BY_TWO = QuorumRules(shards=1, copies=2)
_TWO_BY_ONE = QuorumRules(copies=1, settles_orphans=False)
ON_BASE = tuple(
    replace(variant, has_base=True)
    for variant in (
        Variant("2 shards, 2 copies, a base", _TWO_BY_TWO, is_safe=True),
        Variant("1 shard, 3 copies, a base", QuorumRules(shards=1), is_safe=True),
        Variant("several copies, no pin", replace(_TWO_BY_ONE, pin=Pin.NEVER)),
        Variant("several copies, pin dropped before the outcome", replace(_TWO_BY_ONE, pin=Pin.UNTIL_ACKED)),
        Variant("several copies, marked though it was pinned", replace(_TWO_BY_ONE, mark_is_cas=False)),
        Variant("several copies, who lives read before the mark", replace(_TWO_BY_ONE, looks_first=True)),
        # Where another copy's index spares it as well, no single loss shows that a lost one does.
        Variant(
            "what a lost index refers to is deleted",
            replace(_ONE_BY_TWO, spares_lost=False, spares_other_copies=False),
        ),
        Variant(
            "what a copy refers to that is about to be completed is deleted",
            QuorumRules(shards=1, spares_other_copies=False),
        ),
    )
)
ALL = (*OURS, *WEAKENED, *QUORUM, *ON_BASE)
