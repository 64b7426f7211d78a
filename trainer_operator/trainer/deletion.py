"""What holds a Trainer until its checkpoints are deleted, where `checkpoint.retainOnDelete` is false (CS12).

The finalizer is there from the first look on, so before there is anything in the store (R6). Once the Trainer is
deleted its members go, the janitor deletes everything, and then the finalizer goes. Three ways lead out: the work is
done; the user sets the field to true; or the namespace ends, where no pod can be made any more. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trainer_operator.api.meta import LABEL_PREFIX
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import Directive

FINALIZER = f"{LABEL_PREFIX}checkpoints"
CONDITION = "CheckpointsDeleted"
PATIENCE = 60.0
"""Seconds beyond their grace that members' pods are waited for: those of a lost node never go."""
FIRST_RETRY = 10.0
LONGEST_RETRY = 300.0
PURGE = "store:purge"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the next act depends on."""

    held: bool
    """Whether the finalizer is there."""
    deleting: bool
    wants: bool
    """Whether the checkpoints shall go with the Trainer."""
    namespace_ends: bool = False
    members: int = 0
    """Members' pods that still run."""
    waited: float = 0.0
    """Seconds since the Trainer was deleted, less the members' grace."""
    done: bool = False


Act = Literal["nothing", "hold", "let go", "end members", "collect"]


def next_act(facts: Facts) -> tuple[Act, str]:
    """Return what to do, and the reason of the Event where it lets a deleted Trainer go."""
    if not facts.deleting:
        if facts.wants != facts.held:
            return ("hold", "") if facts.wants else ("let go", "")
        return "nothing", ""
    if not facts.held:
        return "nothing", ""
    if facts.done:
        return "let go", "CheckpointsDeleted"
    if not facts.wants:
        return "let go", "CheckpointsKept"
    if facts.namespace_ends:
        return "let go", "CheckpointsLeft"
    if facts.members and facts.waited < PATIENCE:
        return "end members", ""
    return "collect", ""


def concerns(obj: Mapping[str, Any]) -> bool:
    """Whether a Trainer, as the API server has it, is held or shall be; for all others there is nothing to do."""
    spec = obj.get("spec") or {}
    keeps = (spec.get("checkpoint") or {}).get("retainOnDelete", True)
    return not keeps or FINALIZER in (obj["metadata"].get("finalizers") or ())


def wants_deletion(trainer: Trainer) -> bool:
    """Whether the checkpoints shall go with the Trainer."""
    checkpoint = trainer.spec.checkpoint
    return checkpoint is not None and not checkpoint.retain_on_delete


def order(failures: int, *, store: str) -> Directive:
    """Have the janitor delete all, in the store that has them (CK7); another try has another id (MG1)."""
    name = f"{PURGE}#{failures}" if failures else PURGE
    return Directive(name, "Store", {"op": "purge", "storeId": store})


def retry_after(failures: int) -> float:
    """Return the wait before the next try."""
    return min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 16))


def remedy(trainer: Trainer) -> str:
    """Say how to let the Trainer go without its checkpoints."""
    return (
        "to keep them and let the Trainer go: kubectl patch trainer "
        f"{trainer.metadata.name} -n {trainer.metadata.namespace} --type merge "
        """-p '{"spec":{"checkpoint":{"retainOnDelete":true}}}'"""
    )
