"""What a status keeps of a commit: the figures that the agent read back with the DECISION (CS3). Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from trainer_operator.api.checkpoint import CheckpointHealth, CheckpointStatus, Verification
from trainer_operator.api.meta import INT64_MAX
from trainer_operator.checkpoint.quorum import durable_copies
from trainer_operator.topology.beat import Ack


def record_commit(
    status: CheckpointStatus, decision: Mapping[str, Any], acks: Iterable[Ack], *, now: datetime
) -> None:
    """Put into a status what is committed; figures that an agent got wrong are left out."""
    copies = decision.get("copies")
    counts = (
        [len(found) for found in copies.values() if isinstance(found, list | dict)]
        if isinstance(copies, dict)
        else []
    )
    counts = counts or durable_copies(acks, shards=status.shards or 1, step=status.step or 0)
    status.copies = min(counts, default=0)
    size = decision.get("bytes")
    status.bytes = size if isinstance(size, int) and 0 <= size <= INT64_MAX else 0
    status.size = human_size(status.bytes)
    reused = decision.get("reused")
    status.reused_bytes = reused if isinstance(reused, int) and 0 <= reused <= status.bytes else None
    status.digest = str(decision.get("digest") or "")[:128] or None
    status.store_id = str(decision.get("storeId") or "")[:64] or None
    status.committed_at = now
    status.health = CheckpointHealth.HEALTHY
    # A copy is acknowledged only once a listing showed all of it (PB1).
    status.verified, status.last_verified = Verification.LISTED, now


def human_size(count: int) -> str:
    """Write bytes for people, for example 1.5 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
