"""A chain of records, each of which holds the hash of the one before it (AU4). Pure, standard library only.

There is one chain for each namespace that records are about. A record's name is that of its chain and its number, so the
API server lets nobody write a number twice, and a gap is seen:

    team-a-000000000001 <── team-a-000000000002 <── team-a-000000000003
    hash = SHA-256(hash of the one before it + all other fields as JSON of RFC 8785)

The oldest records are removed at times. A record `Pruned`, written before, keeps the hash of the newest one that goes. The
anchor, kept beside the records, says how far the chain had come, or nobody would miss the newest ones (AU5).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

HASH_VERSION = 1
GENESIS = "0" * 64
"""What stands in the place of the hash before the first record."""
DIGITS = 12
LONGEST_DETAIL = 8192
"""Characters of one detail, as the schema has it."""
PRUNED = "Pruned"
RECORDS_LOST = "RecordsLost"

_CONTROL = {number: None for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}


@dataclass(frozen=True, slots=True)
class Head:
    """How far a chain has come."""

    sequence: int = 0
    hash: str = GENESIS


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be recorded, before it has its place in a chain."""

    id: str
    """What happened, the same whoever writes it: it is recorded once. `<uid>/<what>/<number>` where things are counted."""
    time: str
    actor: str
    action: str
    object: Mapping[str, str]
    """apiVersion, kind, namespace, name and uid of what it is about."""
    details: Mapping[str, str]
    needs: str = ""
    """Id of the entry that comes first; a record says so if it was lost."""

    @property
    def chain(self) -> str:
        """Return the chain that it belongs to."""
        return self.object["namespace"]


def name_of(chain: str, sequence: int) -> str:
    """Return the name of a record."""
    return f"{chain}-{sequence:0{DIGITS}d}"


def place_of(name: str) -> tuple[str, int] | None:
    """Return chain and number of a record; None if nothing of ours has such a name."""
    chain, _, number = name.rpartition("-")
    if not chain or len(number) < DIGITS or not (number.isascii() and number.isdecimal()):
        return None
    return chain, int(number)


def series_of(entry_id: str) -> tuple[str, int] | None:
    """Return what an id counts and its number in that; None if it counts nothing."""
    series, _, number = entry_id.rpartition("/")
    return (series, int(number)) if series and number.isascii() and number.isdecimal() else None


def seal(entry: Entry, head: Head) -> dict[str, Any]:
    """Return the `spec` of the record that follows the head."""
    spec: dict[str, Any] = {
        "sequence": head.sequence + 1,
        "auditID": entry.id,
        "time": entry.time,
        "actor": entry.actor,
        "action": entry.action,
        "objectRef": dict(entry.object),
        "details": {name: clean(text)[:LONGEST_DETAIL] for name, text in entry.details.items()},
        "previousHash": head.hash,
        "hashVersion": HASH_VERSION,
    }
    return {**spec, "hash": hash_of(spec)}


def clean(text: str) -> str:
    """Return text without control characters and without what is no character."""
    return text.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def hash_of(spec: Mapping[str, Any]) -> str:
    """Return the hash that a record must have (AU4)."""
    rest = {name: value for name, value in spec.items() if name not in {"previousHash", "hash"}}
    return hashlib.sha256(str(spec.get("previousHash", "")).encode() + canonical(rest)).hexdigest()


def canonical(value: Any) -> bytes:  # Any: JSON
    """Write JSON as RFC 8785 does, of text, whole numbers and objects with ASCII names: nothing else is in a record."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """The first place at which a chain does not hold."""

    sequence: int
    reason: str


@dataclass(slots=True)
class Verdict:
    """What was found out about one chain."""

    chain: str
    records: int = 0
    first: int = 0
    head: Head = field(default_factory=Head)
    fault: Fault | None = None


def verify(
    objects: Iterable[Mapping[str, Any]], anchors: Mapping[str, str] | None = None
) -> tuple[Verdict, ...]:
    """Follow every chain from its first record to its anchor, up to the first fault (ATK15)."""
    chains: dict[str, list[tuple[int, Mapping[str, Any]]]] = {chain: [] for chain in anchors or {}}
    strangers = []
    for each in objects:
        name = str(each["metadata"]["name"])
        place = place_of(name)
        if place is None:
            strangers.append(Verdict(name, 1, fault=Fault(0, f"{name} is no name of a record")))
        else:
            chains.setdefault(place[0], []).append((place[1], each["spec"]))
    found = [
        _follow(chain, sorted(records, key=lambda record: record[0]), (anchors or {}).get(chain))
        for chain, records in sorted(chains.items())
    ]
    return (*found, *strangers)


def _follow(chain: str, records: list[tuple[int, Mapping[str, Any]]], anchor: str | None) -> Verdict:
    verdict = Verdict(chain, len(records), records[0][0] if records else 0)
    removed = _removed([spec for _, spec in records])
    hashes: dict[int, str] = {}
    for sequence, spec in records:
        before = hashes.get(sequence - 1) if hashes else _before_first(sequence, removed)
        reason = _fault(chain, sequence, spec, before)
        if reason:
            verdict.fault = Fault(sequence if before is not None else verdict.head.sequence + 1, reason)
            return verdict
        hashes[sequence] = str(spec["hash"])
        verdict.head = Head(sequence, hashes[sequence])
    verdict.fault = _anchor_fault(anchor, verdict, hashes)
    return verdict


def _removed(specs: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Return the hashes of the records up to which was removed, as `Pruned` ones say."""
    told = {}
    for spec in specs:
        details = spec.get("details") or {}
        through = str(details.get("through", ""))
        if spec.get("action") == PRUNED and through.isascii() and through.isdecimal():
            told[int(through)] = str(details.get("hash", ""))
    return told


def _before_first(sequence: int, removed: Mapping[int, str]) -> str | None:
    """Return the hash before the first record that is left; "" where its removal did not come to its end."""
    if sequence == 1:
        return GENESIS
    if sequence - 1 in removed:
        return removed[sequence - 1]
    return "" if any(through >= sequence for through in removed) else None


def _fault(chain: str, sequence: int, spec: Mapping[str, Any], before: str | None) -> str:
    if before is None:
        return "records are missing"
    if spec.get("sequence") != sequence or (spec.get("objectRef") or {}).get("namespace") != chain:
        return "the record has another name than its content says"
    if spec.get("hashVersion") != HASH_VERSION:
        return f"hashVersion {spec.get('hashVersion')} is not known: use a newer kubectl trainer"
    if before and spec.get("previousHash") != before:
        return "it does not follow the record before it"
    if spec.get("hash") != hash_of(spec):
        return "its content was changed: the hash does not fit"
    return ""


def write_anchor(head: Head) -> str:
    """Return how an anchor is written."""
    return f"{head.sequence}:{head.hash}"


def read_anchor(text: str) -> Head | None:
    """Return what an anchor says; None if it says nothing."""
    number, _, hash_ = text.partition(":")
    return Head(int(number), hash_) if number.isascii() and number.isdecimal() and len(hash_) == 64 else None


def _anchor_fault(anchor: str | None, verdict: Verdict, hashes: Mapping[int, str]) -> Fault | None:
    if anchor is None:
        return None
    known = read_anchor(anchor)
    if known is None:
        return Fault(verdict.head.sequence, f"the anchor {anchor[:80]!r} is none")
    if known.sequence > verdict.head.sequence:
        return Fault(
            verdict.head.sequence + 1,
            f"records are missing: the anchor says that there were {known.sequence}",
        )
    if known.sequence in hashes and hashes[known.sequence] != known.hash:
        return Fault(known.sequence, "it has another hash than the anchor says")
    return None
