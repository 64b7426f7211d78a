"""Our rules, and weakened ones, each by itself."""

from dataclasses import dataclass

from models.rules import Look, Pin, Purge, Rules


@dataclass(frozen=True, slots=True)
class Variant:
    """Rules, and whether they hold."""

    name: str
    rules: Rules
    is_safe: bool = False
    is_wide: bool = False
    """It takes more than some seconds, so that only `make models` explores it."""


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
