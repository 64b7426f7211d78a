"""Which checkpoint is read in full next, and what follows from what was found (PB1 to PB4). Pure.

Every commit is verified by a listing, since a copy is acknowledged only after one. The scrub reads all bytes: of a new
checkpoint soon, then twice a day, one at a time per Trainer, the least recently verified first. It rests while a
checkpoint is being saved. At rest a pod has to be started for it, so once a day is enough there.

    found                                         health      Event
    all objects good                              Healthy     -
    some bad, written again from another copy     Healthy     CheckpointRepaired
    fewer copies than there should be             Degraded    CheckpointDegraded
    a shard without a good copy                   Corrupt     CheckpointCorrupt, also on the Trainer
    the store itself changed, refuses or is mute  Unknown     CheckpointUnverified
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainer_operator.api.checkpoint import STORE_PROBLEMS, CheckpointHealth
from trainer_operator.topology.beat import DirectiveResult

FIRST = timedelta(minutes=10)
"""From the commit to the first scrub; one that retention removes sooner costs no reads."""
PERIOD = timedelta(hours=12)
"""From one scrub to the next: half of the 24 h in which all must be done, the rest is for the queue (PB1)."""
AT_REST_PERIOD = timedelta(hours=20)
"""From the commit or one scrub to the next while no member runs; the rest of the 24 h is for the queue (PB1)."""
AT_REST_READING = timedelta(minutes=10)
"""In which all that is due at rest shall be read, since a janitor has 15 minutes."""
BYTES_PER_SECOND = 50_000_000
REMEDIES: Mapping[str, str] = {
    "StoreChanged": "mount the store that was used before; what lies in this one was not touched",
    "NoRights": "give the pods the right to read and write it, or mount it read-write",
    "BadAddress": "correct spec.checkpoint.bucket",
    "Full": "free space or raise the quota",
    "Unreachable": "it is tried again",
    "Throttled": "it is tried again",
}
_TOLD = re.compile(r"([A-Za-z]{1,64}): (.+)", re.DOTALL)
_SHOWN = 3
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A committed checkpoint as the prober sees it."""

    name: str
    committed_at: datetime
    read_at: datetime | None = None
    """When all of it was read last."""
    asked_at: datetime | None = None
    """When a user asked for that."""
    corrupt: bool = False
    bytes: int = 0

    @property
    def is_asked(self) -> bool:
        """Whether a user waits for it."""
        return self.asked_at is not None and self.asked_at > (self.read_at or _NEVER)


@dataclass(frozen=True, slots=True)
class Finding:
    """What a scrub means."""

    health: CheckpointHealth
    reason: str
    message: str
    event: str = ""
    """Reason of an Event; empty when nobody needs to hear of it."""
    complete: bool = True
    """Whether all bytes were read; else the store is at fault, and it is tried again."""
    bytes: int = 0
    repaired: int = 0


def due_at(candidate: Candidate, others: Iterable[Candidate] = (), *, rests: bool = False) -> datetime:
    """Return when a checkpoint is to be read: at once after a sibling was found corrupt, since they share data (PB2)."""
    read_at = candidate.read_at
    if candidate.is_asked and candidate.asked_at is not None:
        return candidate.asked_at
    alarms = [other.read_at for other in others if other.corrupt and other.read_at is not None]
    alarm = max(alarms, default=_NEVER)
    if not candidate.corrupt and alarm > (read_at or candidate.committed_at):
        return alarm
    if rests:
        return (read_at or candidate.committed_at) + AT_REST_PERIOD
    return candidate.committed_at + FIRST if read_at is None else read_at + PERIOD


def choose(candidates: Iterable[Candidate], now: datetime, *, rests: bool = False) -> Candidate | None:
    """Return the one to read now: what a user waits for, then the least recently verified (PB1)."""
    listed = list(candidates)
    due = [candidate for candidate in listed if due_at(candidate, listed, rests=rests) <= now]
    return min(
        due,
        key=lambda each: (not each.is_asked, each.read_at or _NEVER, each.committed_at, each.name),
        default=None,
    )


def pace(candidates: Iterable[Candidate], *, rests: bool = False) -> int:
    """Return the bytes a second that a scrub may read: more than usual only if a pass would else miss its time."""
    total = sum(candidate.bytes for candidate in candidates)
    within = AT_REST_READING if rests else PERIOD
    return max(BYTES_PER_SECOND, int(total / within.total_seconds()))


def judge(name: str, answer: DirectiveResult) -> Finding | None:
    """Return what an agent's answer means; None when it says nothing of the checkpoint."""
    if answer.ok:
        return _judge_report(name, answer.value) if isinstance(answer.value, dict) else None
    told = _TOLD.fullmatch(answer.error or "")
    if told is None:
        return None
    reason, sentence = told.group(1), told.group(2)[:512]
    if reason == "NotRestorable":
        message = f"checkpoint {name} is Committed, but the store says otherwise: {sentence}"
        return Finding(CheckpointHealth.CORRUPT, "StoreDisagrees", message, "CheckpointCorrupt")
    if reason not in STORE_PROBLEMS:
        return None
    remedy = REMEDIES.get(reason, "see docs/checkpoints.md")
    message = f"checkpoint {name} is Committed, but could not be verified: {sentence}; {remedy}"
    return Finding(CheckpointHealth.UNKNOWN, reason, message, "CheckpointUnverified", complete=False)


def _judge_report(name: str, value: Mapping[str, Any]) -> Finding:
    damaged, missing, repaired, completed, lacking, read = (
        _count(value, key) for key in ("damaged", "missing", "repaired", "completed", "lacking", "bytes")
    )
    bad = _texts(value, "bad")
    shown = ", ".join(bad[:_SHOWN])
    more = damaged + missing - len(bad[:_SHOWN])
    shown += f" and {more} more" if more > 0 else ""
    if value.get("lost"):
        reason, why = (
            ("Damaged", "the store gave back other bytes than were written: check it and its disks")
            if damaged
            else (
                "ObjectMissing",
                "look for what deletes there: a lifecycle rule, a cleanup job, an older volume",
            )
        )
        message = (
            f"checkpoint {name} is Committed, but in every copy {shown}; {why}. Restores take an older one"
        )
        return Finding(CheckpointHealth.CORRUPT, reason, message, "CheckpointCorrupt", True, read, repaired)
    if lacking:
        refused = str(value.get("refused") or "")[:512]
        kind = refused.partition(":")[0]
        remedy = f"; {refused}; {REMEDIES.get(kind, 'see docs/checkpoints.md')}" if refused else ""
        message = (
            f"checkpoint {name} lacks {lacking} of its copies: {shown or 'they were never made'}{remedy}"
        )
        return Finding(
            CheckpointHealth.DEGRADED, "CopiesLacking", message, "CheckpointDegraded", True, read, repaired
        )
    if repaired:
        message = (
            f"checkpoint {name} is whole again: {shown}; written again from another copy. Check the store"
        )
        return Finding(
            CheckpointHealth.HEALTHY, "Repaired", message, "CheckpointRepaired", True, read, repaired
        )
    more_copies = f"; {completed} copies were completed" if completed else ""
    return Finding(
        CheckpointHealth.HEALTHY,
        "Verified",
        f"all bytes match their hashes{more_copies}",
        "",
        True,
        read,
        repaired,
    )


def _count(value: Mapping[str, Any], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) and 0 <= found < 2**63 else 0


def _texts(value: Mapping[str, Any], name: str) -> list[str]:
    found = value.get(name)
    return [str(each)[:256] for each in found] if isinstance(found, list) else []
