"""Timelines in the store: where training went back to an older checkpoint, written before it goes on (CK6).

    timeline/<number:06d>     create-if-absent: parent timeline, the last step of it that counts, why

Which checkpoints count follows from these records; the operator decides, since it knows what training goes back to.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from trainer_operator.agent.backends import Exists, Home, NotFound, Passing, StoreError, every_entry
from trainer_operator.agent.records import VERSION, Malformed, dump_record, parse_record, whole

MOST = 1000
"""Numbers that are tried: each that is taken was meant for a start that never came."""
_LISTED = 64
_RECORD_BYTES = 64 * 1024
_NAME = re.compile(r"^\d{6}\Z")


def open_timeline(home: Home, *, after: int, parent: int, step: int, reason: str, nonce: str) -> int:
    """Record a timeline under the next free number above `after`, and return that.

    Guarantees: nothing is overwritten; repeated with the same nonce it returns the same number (DE2).
    Raises: StoreError when the store does not answer or takes no record.
    """
    record = {"v": VERSION, "parent": parent, "step": step, "reason": reason, "nonce": nonce}
    for number in range(after + 1, after + 1 + MOST):
        unanswered: Optional[Passing] = None
        try:
            home.store.create(_key(home, number), dump_record(record))
        except Exists:
            pass
        except Passing as error:  # it may have been done all the same
            unanswered = error
        else:
            return number
        try:
            found = _read(home, number)
        except NotFound as error:
            raise unanswered or error from error
        except Malformed:
            continue
        if found.get("nonce") == nonce:
            return number
    raise StoreError("no timeline is free between %d and %d" % (after, after + MOST))


def timelines(home: Home) -> List[Dict[str, int]]:
    """Return the newest timelines, oldest first; what cannot be read counts for nothing (GC7).

    Raises: StoreError when the store does not answer.
    """
    prefix = home.folder + "/timeline/"
    names = [entry.key[len(prefix) :] for entry in every_entry(home.store, prefix)]
    found = []
    for number in sorted(int(name) for name in names if _NAME.match(name))[-_LISTED:]:
        try:
            record = _read(home, number)
            found.append({"number": number, "parent": whole(record, "parent"), "step": whole(record, "step")})
        except Malformed:
            continue
    return found


def _key(home: Home, number: int) -> str:
    return "%s/timeline/%06d" % (home.folder, number)


def _read(home: Home, number: int) -> Dict[str, Any]:
    return parse_record(home.store.get(_key(home, number), limit=_RECORD_BYTES), "timeline %d" % number)
