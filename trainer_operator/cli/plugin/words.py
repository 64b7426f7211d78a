"""Times, durations and foreign text as people read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from runtime.clock import parse_time

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS = (86400, 3600, 60, 1)
_SECRET_NAME = re.compile(r"(?i)(token|password|passwd|secret|credential|api_?key|private_?key|access_?key)")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
REDACTED = "[redacted]"


def plain(text: str) -> str:
    """Return foreign text in one line, without what would steer a terminal (ATK13)."""
    return _CONTROL.sub(" ", text).strip()


def span(seconds: float) -> str:
    """Write a duration as kubectl does: 42s, 3m10s, 25m, 3h4m, 12h, 2d."""
    left = max(0, int(seconds))
    if left < 120:
        return f"{left}s"
    if left < 600:
        return _pair(left, 60, "m", 1, "s")
    if left < 3 * 3600:
        return f"{left // 60}m"
    if left < 8 * 3600:
        return _pair(left, 3600, "h", 60, "m")
    if left < 2 * 86400:
        return f"{left // 3600}h"
    if left < 8 * 86400:
        return _pair(left, 86400, "d", 3600, "h")
    return f"{left // 86400}d"


def moment(text: Any) -> datetime | None:
    """Read a time of the API, None when it is absent or no time."""
    try:
        return parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None


def since(text: Any, now: datetime) -> str:
    """Write how long ago a time of the API was; empty when there is none."""
    then = moment(text)
    return span((now - then).total_seconds()) if then is not None else ""


def seconds_of(text: str) -> int:
    """Read a duration such as 90s, 5m or 1h30m.

    Raises: ValueError with a sentence.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is no duration, write for example 90s, 5m or 1h30m")
    return sum(int(count) * unit for count, unit in zip(found.groups(), _UNITS, strict=True) if count)


def size(count: float) -> str:
    """Write bytes as the operator does, for example 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def presentable(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without field managers, and without literal values of variables named like secrets (RD2)."""
    shown: dict[str, Any] = _without_secrets(obj)
    metadata = dict(shown.get("metadata") or {})
    metadata.pop("managedFields", None)
    annotations = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != _LAST_APPLIED
    }
    if annotations:
        metadata["annotations"] = annotations
    return {**shown, "metadata": metadata}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        copy = {key: _without_secrets(each) for key, each in value.items()}
        if isinstance(copy.get("value"), str) and _SECRET_NAME.search(str(copy.get("name", ""))):
            copy["value"] = REDACTED
        return copy
    if isinstance(value, list):
        return [_without_secrets(each) for each in value]
    return value


def _pair(left: int, unit: int, name: str, small: int, small_name: str) -> str:
    rest = left % unit // small
    return f"{left // unit}{name}" + (f"{rest}{small_name}" if rest else "")
