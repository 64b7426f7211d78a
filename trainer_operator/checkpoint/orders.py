"""What agents are told for a checkpoint, as directives. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from trainer_operator.api.checkpoint import CheckpointStatus
from trainer_operator.checkpoint.quorum import Holder, shard_count
from trainer_operator.topology.members import Directive, MemberId

Orders = dict[MemberId, tuple[Directive, ...]]


def save_id(ckpt: str) -> str:
    """Return the id of the directive that has a holder save."""
    return f"checkpoint:{ckpt}"


def store_id(operation: str, ckpt: str) -> str:
    """Return the id of a store operation."""
    return f"store:{operation}:{ckpt}"


def save(
    status: CheckpointStatus,
    holders: Iterable[Holder],
    *,
    pause: bool,
    replication: int,
    world: int,
    store: str = "",
) -> Orders:
    """Have every holder save its shard at the target step, in the store of that id if it is known (CK7)."""
    holders = tuple(holders)
    ckpt = status.id or ""
    intent = {
        "step": status.step,
        "epoch": status.epoch,
        "world": world,
        "shards": shard_count(holders),
        "copies": replication,
        "base": status.base or "",
        "timeline": status.timeline or 0,
        "at": _seconds(status.staging_started_at),
    }
    orders: Orders = {}
    for holder in holders:
        args: dict[str, Any] = {
            "ckpt": ckpt,
            "step": status.step,
            "shard": holder.shard,
            "copies": list(holder.copies),
            "world": world,
            "pause": pause,
            "intent": intent,
            "base": status.base or "",
            "storeId": store,
        }
        orders[holder.member] = (Directive(save_id(ckpt), "Checkpoint", args),)
    return orders


def decide(
    status: CheckpointStatus, *, commit: bool, reason: str, replication: int, store: str = ""
) -> Directive:
    """Have an agent write the DECISION, create-if-absent; the first one wins (DE1)."""
    ckpt = status.id or ""
    outcome = "commit" if commit else "abort"
    return Directive(
        store_id(outcome, ckpt),
        "Store",
        {
            "op": "decide",
            "ckpt": ckpt,
            "outcome": outcome,
            "reason": reason,
            "shards": status.shards or 1,
            "copies": replication,
            "step": status.step or 0,
            "epoch": status.epoch or 0,
            "nonce": f"{ckpt}-{outcome}",
            "timeline": status.timeline or 0,
            "begun": _seconds(status.staging_started_at),
            "storeId": store,
        },
    )


def abort_missed(ckpt: str, status: CheckpointStatus, *, store: str = "") -> Directive:
    """Have an agent abort a target that was missed, so that nothing undecided stays in the store."""
    args = {
        "op": "decide",
        "ckpt": ckpt,
        "outcome": "abort",
        "reason": "TargetPassed",
        "shards": 1,
        "copies": 1,
        "step": int(ckpt.split("-", maxsplit=1)[0]),
        "epoch": status.epoch or 0,
        "nonce": f"{ckpt}-abort",
        "begun": _seconds(status.staging_started_at),
        "storeId": store,
    }
    return Directive(store_id("abort", ckpt), "Store", args)


def collect(ckpt: str, *, at: datetime | None, store: str = "") -> Directive:
    """Have an agent write the tombstone and delete the data, in the store that has it (CS4, CS5, CK7).

    `at`: since when the checkpoint may go; by that agents judge what else is so old that it goes (DE4, PB5).
    """
    args = {"op": "collect", "ckpt": ckpt, "at": _seconds(at), "storeId": store}
    return Directive(store_id("collect", ckpt), "Store", args)


def _seconds(time: datetime | None) -> int:
    """Return a time as records have it: since 1970, 0 if it is not known. It is the same for every leader (MG1)."""
    return int(time.timestamp()) if time is not None else 0
