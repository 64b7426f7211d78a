"""Going on from a checkpoint: what has to come from the store, with an older checkpoint on the pod's volume and without.

The measurement is the one of `benchmarks.checkpoint`, made in the same run as the others.
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.checkpoint.recovery import Plan, recover
from benchmarks.result import Column
from benchmarks.stock.scenario import Outcome, Room

__all__ = ["Resume"]

_PLAN = Plan(tensors=32, changed=3, tensor_bytes=8 * 1024 * 1024, bytes_per_second=25e6)


@dataclass(frozen=True, slots=True)
class Resume:
    """One shard is restored in full and incrementally, through the same throttled line."""

    plan: Plan = _PLAN
    name: str = "resume"
    title: str = "Resuming from a checkpoint"

    @property
    def conditions(self) -> str:
        """Say what is restored."""
        plan = self.plan
        return (
            f"A shard of {plan.tensors * plan.tensor_bytes / 1e6:,.0f} MB in {plan.tensors} tensors is restored by the code of "
            f"the agent, from a store behind a line of {plan.bytes_per_second / 1e6:g} MB/s: in full, and in a pod whose "
            f"volume has an older checkpoint, from which {plan.changed} tensors differ. Every byte is verified."
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Seconds and megabytes."""
        return (
            Column("full_seconds", "full s", 2),
            Column("full_fetched", "MB fetched", 1),
            Column("incremental_seconds", "incremental s", 2),
            Column("incremental_fetched", "MB fetched", 1),
        )

    async def run(self, room: Room) -> Outcome:
        """Save two checkpoints and restore the newer one in different pods."""
        room.say(f"{self.name}: saving and restoring")
        with tempfile.TemporaryDirectory(dir=room.cluster.folder) as folder:
            full, incremental, *_ = (await asyncio.to_thread(recover, Path(folder), self.plan)).values()
        kinds = {"full": full, "incremental": incremental}
        return Outcome(
            {f"{kind}_{key}": values[key] for kind, values in kinds.items() for key in ("seconds", "fetched")}
        )
