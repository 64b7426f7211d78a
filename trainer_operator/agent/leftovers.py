"""What nobody asks for any more: data of attempts that were given up, and records that have done their duty.

    undecided a day after it began                   aborted, then swept: no leader knows of it (PB5)
    aborted, not swept a day after it began          swept (CS4); the leader asks for most sweeps itself, and sooner
    buried for 7 days, referred to by nobody         swept again if a late writer left something, else purged (DE4)

A DECISION and a tombstone stop whoever was held up: a leader that goes on to commit, a collection, a writer. After 7
days nobody is held up any more. The data of one goes with the last one that refers to it, so its records wait for the
records of that: they are as old as the last deletion. DECISION goes first, since a commit must find the tombstone.

Time is the leader's: the order says when it was given, and so do INTENT and tombstone. What does not say when it began
is told and stays, as does all that is not ours (GC7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Set

from trainer_operator.agent import census, collection, store
from trainer_operator.agent.backends import Home, every_entry
from trainer_operator.agent.census import Census
from trainer_operator.agent.store import CheckpointDir

ATTEMPT_SECONDS = 24 * 3600
"""No attempt takes longer: it is the most that `stagingTimeoutSeconds` may be."""
RECORD_SECONDS = 7 * 24 * 3600


@dataclass
class Cleared:
    """What was done, and what was left."""

    swept: int = 0
    """Attempts whose data was deleted."""
    purged: int = 0
    """Checkpoints whose records are gone."""
    unknown: List[str] = field(default_factory=list)
    """Folders and files that are not ours; they stay (GC7)."""

    def value(self) -> Dict[str, Any]:
        """Return it as part of a directive's result."""
        return {"swept": self.swept, "purged": self.purged, "unknown": sorted(self.unknown)[:16]}


def clear(home: Home, known: Census, *, at: int) -> Cleared:
    """Sweep and purge what is old enough at a time, in seconds since 1970 by the leader's clock.

    `known` may be older than this call: what it says of the ended ones holds for ever.

    Guarantees: repeatable from any point; nothing is deleted that a checkpoint refers to (IV3), nor what is not ours.
    Raises: StoreError when the store does not answer.
    """
    done = Cleared()
    late = at - ATTEMPT_SECONDS
    for ckpt in sorted(known.undecided):
        where = CheckpointDir(home, ckpt)
        begun = census.begun(store.read_intent(where))
        if not begun:
            # A directory stays where a writer died before its first record.
            done.unknown += [ckpt] if any(True for _ in every_entry(home.store, where.prefix)) else []
        elif begun < late and not store.abandon(where, reason="Orphaned", begun=begun).committed:
            _sweep(where, done, at=at)
    for ckpt, attempt in sorted(known.aborted.items()):
        if 0 < attempt.begun < late:
            _sweep(CheckpointDir(home, ckpt), done, at=at)
    for ckpt in _expired(known, at=at):
        _purge(CheckpointDir(home, ckpt), done, at=at)
    return done


def _expired(known: Census, *, at: int) -> List[str]:
    """Return those whose records have done their duty."""
    old = {ckpt for ckpt, buried in known.buried.items() if 0 < buried.at < at - RECORD_SECONDS}
    needed: Set[str] = {owner for owners in known.alive.values() for owner in owners}
    needed.update(
        owner for ckpt, buried in known.buried.items() if ckpt not in old for owner in buried.owners
    )
    return sorted(old - needed)


def _sweep(where: CheckpointDir, done: Cleared, *, at: int) -> None:
    try:
        collection.collect(where, at=at)
    except store.NotDecided:  # somebody deletes DECISIONs
        done.unknown.append(where.ckpt)
    else:
        done.swept += 1


def _purge(where: CheckpointDir, done: Cleared, *, at: int) -> None:
    """Delete DECISION, then the tombstone; where data is left, delete that and wait for the next time."""
    records = [where.record("DECISION"), where.record("GC")]
    rest = [entry.key for entry in every_entry(where.store, where.prefix) if entry.key not in records]
    if not rest:
        for record in records:
            where.store.delete_many([record])
        where.store.sweep(where.prefix)
        done.purged += 1
        return
    done.unknown += [key[len(where.home.folder) + 1 :] for key in rest if not collection.is_ours(where, key)]
    if any(collection.is_ours(where, key) for key in rest):
        _sweep(where, done, at=at)
