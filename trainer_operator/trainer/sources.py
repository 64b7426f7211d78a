"""Who holds what a member restores, and where the bytes of a restore came from (RS2). Pure.

What agents say of what they hold is a hint: whoever asks them compares every piece with its hash, and has the store.
"""

from collections import defaultdict
from collections.abc import Mapping

from trainer_operator.api.status import LastRestore
from trainer_operator.topology.beat import Restored
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.draft import Draft
from trainer_operator.trainer.membership import is_of_epoch, live, members_of, standbys, trains

MOST = 8
"""Peers that a member is told: more would not make it faster."""
Holders = Mapping[int, list[tuple[MemberId, dict[str, object]]]]
"""By shard, who holds its chunks, and where they are served."""


def holders(draft: Draft, ckpt: str) -> Holders:
    """Return whose agents hold chunks of a checkpoint, in the order of members."""
    found: dict[int, list[tuple[MemberId, dict[str, object]]]] = defaultdict(list)
    for member in sorted(members_of(draft)) if ckpt else ():
        agent = live(draft, member)
        if agent is None or not agent.beat.chunk_port:
            continue
        for held in agent.beat.holds:
            name, _, shard = held.partition("/")
            if name == ckpt and shard.isdecimal():
                where: dict[str, object] = {"address": agent.beat.address, "port": agent.beat.chunk_port}
                found[int(shard)].append((member, where))
    return found


def peers_for(known: Holders, member: MemberId, *, rank: int) -> list[dict[str, object]]:
    """Return where a member may ask: those who hold its shard, others first for others, so that all share the load.

    The state of trainers is replicated: those who have no shard of their own read any.
    """
    if member.role == "ps" or rank in known:
        listed = known.get(rank, [])
    else:
        listed = [each for shard in sorted(known) for each in known[shard]]
    others = [where for holder, where in listed if holder != member]
    start = rank * MOST % len(others) if len(others) > MOST else 0
    return (others[start:] + others[:start])[:MOST]


def follow(draft: Draft) -> None:
    """Record once for each start from a checkpoint where its bytes came from, when all its members train."""
    membership, last = draft.status.membership, draft.status.last_restore
    ckpt = membership.restore_from
    start = (membership.epoch, membership.ps_epoch)
    if not ckpt or not trains(draft) or (last is not None and (last.epoch, last.ps_epoch) == start):
        return
    reports: dict[MemberId, Restored] = {}
    for member in members_of(draft) - standbys(draft):
        agent = live(draft, member)
        if agent is None or not agent.trains or not is_of_epoch(membership, agent):
            return
        if agent.beat.restored is not None and agent.beat.restored.ckpt == ckpt:
            reports[member] = agent.beat.restored
    if not reports:
        return
    done = draft.status.last_restore = LastRestore(
        checkpoint=ckpt,
        step=membership.restore_step,
        epoch=membership.epoch,
        ps_epoch=membership.ps_epoch,
        members=len(reports),
        own_bytes=sum(report.own for report in reports.values()),
        peer_bytes=sum(report.peer for report in reports.values()),
        store_bytes=sum(report.store for report in reports.values()),
        at=draft.observed.now,
    )
    draft.event(
        "Restored",
        f"{done.members} members read checkpoint {ckpt}: {_size(done.own_bytes)} from their own pods, "
        f"{_size(done.peer_bytes)} from other members, {_size(done.store_bytes)} from the store",
    )
    refused = {liar: member for member, report in sorted(reports.items()) for liar in report.liars}
    if refused:
        named = ", ".join(f"{liar} (noticed by {member})" for liar, member in sorted(refused.items())[:8])
        draft.event(
            "PeerSentDamage",
            f"chunks from {named} did not match their hashes and were taken from elsewhere; look at these nodes' disks",
            warning=True,
        )


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
