"""How long a look at a Trainer may wait after something of it changed. Pure.

A pod that comes up says so four times: it exists, has a node, runs, is ready. Nothing is decided by each of these
alone, so they are looked at together, as are writes of a status, which are mostly our own. What a user changed is
looked at at once, and a pod that ends or is about to before all else: its members wait, which new Trainers do not yet.
"""

from runtime.cache.projection import Pod
from runtime.controller.predicate import annotations_changed, any_of, deletion_changed, generation_changed
from runtime.objects import AnyObject
from trainer_operator.trainer.observe import disruption

PATIENCE = 0.1
"""Seconds; short beside the time that a container takes to start."""
_asks_for_something = any_of(generation_changed, annotations_changed, deletion_changed)


def trainer_patience(old: AnyObject | None, new: AnyObject | None) -> float | None:
    """Return the seconds that the look may wait; None if it goes before all others."""
    return 0.0 if _asks_for_something(old, new) else PATIENCE


def is_new(trainer: AnyObject) -> bool:
    """Whether no operator has looked at the Trainer yet; a started one does so before it sees that all others are well."""
    return isinstance(trainer, dict) and not (trainer.get("status") or {}).get("phase")


def pod_patience(_old: AnyObject | None, new: AnyObject | None) -> float | None:
    """Return the seconds that the look may wait; None if it goes before all others."""
    return PATIENCE if isinstance(new, Pod) and _is_well(new) else None


def _is_well(pod: Pod) -> bool:
    if pod.phase not in {"Pending", "Running"} or pod.is_deleting or disruption(pod) is not None:
        return False
    states = (each.state for each in pod.status.container_statuses or ())
    return not any(state is not None and state.terminated is not None for state in states)
