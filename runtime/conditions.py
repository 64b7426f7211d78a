"""Status conditions: one entry per type, a transition time that moves only with the status.

`set_condition` is pure: it returns a new list and whether anything that a reader can see has changed, so that callers
write a status only when there is news.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from runtime.clock import format_time

__all__ = ["ConditionStatus", "find_condition", "is_true", "set_condition"]

ConditionStatus = Literal["True", "False", "Unknown"]


def set_condition(
    conditions: Iterable[Mapping[str, Any]],
    *,
    type: str,
    status: ConditionStatus,
    reason: str,
    message: str,
    generation: int | None,
    now: datetime,
) -> tuple[list[dict[str, Any]], bool]:
    """Return the conditions with one of them set, and whether that changed anything.

    Guarantees: order is kept, a new type goes to the end, a type appears once; `lastTransitionTime` moves only when
    `status` does; `observedGeneration` is written with each condition (C7) unless it is None.
    """
    wanted: dict[str, Any] = {"type": type, "status": status, "reason": reason, "message": message}
    if generation is not None:
        wanted["observedGeneration"] = generation
    result: list[dict[str, Any]] = []
    changed, found = False, False
    for condition in map(dict, conditions):
        if condition.get("type") != type:
            result.append(condition)
            continue
        if found:  # a duplicate somebody else wrote: the API's list map would refuse it
            changed = True
            continue
        found = True
        same_status = condition.get("status") == status and condition.get("lastTransitionTime")
        moment = condition["lastTransitionTime"] if same_status else format_time(now)
        replacement = {**wanted, "lastTransitionTime": moment}
        changed = changed or replacement != condition
        result.append(replacement)
    if not found:
        result.append({**wanted, "lastTransitionTime": format_time(now)})
        changed = True
    return result, changed


def find_condition(conditions: Iterable[Mapping[str, Any]] | None, type: str) -> Mapping[str, Any] | None:
    """Return the condition of a type, if it is there."""
    return next((condition for condition in conditions or () if condition.get("type") == type), None)


def is_true(conditions: Iterable[Mapping[str, Any]] | None, type: str) -> bool:
    """Tell whether the condition of a type is there and `True`."""
    condition = find_condition(conditions, type)
    return condition is not None and condition.get("status") == "True"
