"""A Trainer that this operator cannot read, as one that was stored under another CRD: it is said once, on the object. Pure.

Nothing else is done with it: whoever guesses what it means may end a training. As its status may be what cannot be
read, the condition is added to what is stored there, and nothing else of it is touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from runtime.conditions import find_condition, set_condition
from trainer_operator.api.trainer import MANAGER, Trainer

CONDITION = "Readable"
REASON = "NotReadable"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The object as it is stored, and what is wrong with it, as a sentence."""

    stored: Mapping[str, Any]
    fault: str

    @property
    def is_ours(self) -> bool:
        """Whether it is for us to say so: it is not another operator's, and not on its way out (TR36)."""
        spec = self.stored.get("spec")
        manager = spec.get("managedBy") if isinstance(spec, Mapping) else None
        return manager in {None, "", MANAGER} and not self.stored["metadata"].get("deletionTimestamp")


def read_trainer(stored: Mapping[str, Any]) -> Trainer | Unreadable:
    """Return a stored Trainer, or what is wrong with it."""
    try:
        return Trainer.read(stored)
    except ValidationError as error:
        return unreadable(stored, error)


def unreadable(stored: Mapping[str, Any], error: ValidationError) -> Unreadable:
    """Say what is wrong with the first field that cannot be read."""
    faults = error.errors(include_url=False, include_input=False)
    field = ".".join(str(part) for part in faults[0]["loc"]) or "the object"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    remedy = (
        "nothing is done with this Trainer until it is corrected, or made anew under the CRD of this operator"
    )
    return Unreadable(stored, f"{field[:128]}: {faults[0]['msg'][:256]}{more}; {remedy}")


def is_said(found: Unreadable) -> bool:
    """Whether the object says all this of its present generation."""
    said = find_condition(_conditions(found), CONDITION)
    generation = found.stored["metadata"].get("generation")
    return said is not None and (said.get("observedGeneration"), said.get("message")) == (
        generation,
        found.fault,
    )


def status_with_condition(found: Unreadable, *, now: datetime) -> dict[str, Any] | None:
    """Return its status with the condition; None if there are no conditions that one could be added to."""
    listed = _conditions(found)
    if listed is None:
        return None
    generation = found.stored["metadata"].get("generation")
    conditions, _ = set_condition(
        listed,
        type=CONDITION,
        status="False",
        reason=REASON,
        message=found.fault,
        generation=generation,
        now=now,
    )
    return {**(found.stored.get("status") or {}), "conditions": conditions}


def _conditions(found: Unreadable) -> list[Mapping[str, Any]] | None:
    status = found.stored.get("status") or {}
    listed = (status.get("conditions") or []) if isinstance(status, Mapping) else None
    if not isinstance(listed, list | tuple) or not all(isinstance(each, Mapping) for each in listed):
        return None
    return list(listed)
