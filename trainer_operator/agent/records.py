"""Records: one JSON object of this version in a line, and the refusal of anything else (CK5)."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional

from trainer_operator.agent.backends import StoreError

VERSION = 1


class Malformed(StoreError):
    """A record or index is torn, too large, of another version, or names something unsafe (CK5)."""


def dump_record(record: Mapping[str, Any]) -> bytes:
    """Write a record; the same record gives the same bytes."""
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def parse_record(raw: bytes, name: str, *, newest: int = VERSION) -> Dict[str, Any]:
    """Parse one JSON object of a version up to the newest that is known.

    Raises: Malformed.
    """
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed("%s is not JSON; it is torn or foreign" % name) from error
    if not isinstance(record, dict):
        raise Malformed("%s is not a JSON object" % name)
    version = record.get("v")
    if not isinstance(version, int) or not VERSION <= version <= newest:
        known = "%d" % newest if newest == VERSION else "%d to %d" % (VERSION, newest)
        raise Malformed("%s has version %r; this agent reads %s" % (name, str(version)[:16], known))
    return record


def whole(record: Mapping[str, Any], name: str, *, default: Optional[int] = None) -> int:
    """Return a whole number of a record, 0 or more.

    Raises: Malformed.
    """
    value = record.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise Malformed("%s is %r; it must be a whole number, 0 or more" % (name, str(value)[:32]))
    return value
