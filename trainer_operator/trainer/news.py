"""What a status write can wait for (ST7): counts, progress and the words of conditions; decisions cannot. Pure."""

from collections.abc import Mapping
from typing import Any

from trainer_operator.api.status import Phase

LEISURELY = frozenset(
    {
        *("globalStep", "epochsCompleted", "metrics", "progress"),
        *("roles", "workers", "readyWorkers", "readyServers"),
        *("conditions", "phase"),
    }
)
"""Fields that follow the members rather than lead them. Members come one by one, and each would be a write."""


def is_news(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the change from one status to the next is to be stored at once.

    Of a condition its status is news, its reason and message are not: those say the same with other numbers. That
    what was not known yet turned out well is none either, nor that the first pod has a node: the others follow.
    """
    old_phase, new_phase = before.get("phase"), after.get("phase")
    if old_phase != new_phase and (old_phase, new_phase) != (Phase.PENDING, Phase.STARTING):
        return True
    if _decisions(before) != _decisions(after):
        return True
    old, new = _verdicts(before), _verdicts(after)
    return any(
        old.get(kind) != new.get(kind) and not _turned_out_well(old.get(kind), new.get(kind))
        for kind in {*old, *new}
    )


def _turned_out_well(before: str | None, after: str | None) -> bool:
    return before == "Unknown" and after == "True"


def _decisions(status: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in status.items() if name not in LEISURELY}


def _verdicts(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
