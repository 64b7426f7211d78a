"""Who saves what, and when that is enough (QR1, QR2)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainer_operator.api.checkpoint import SAVE_PROBLEMS
from trainer_operator.topology.beat import Ack
from trainer_operator.topology.members import MemberId, by_shard

_TOLD = re.compile(r"([A-Za-z]{1,64}): (.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Holder:
    """A member that writes these copies of one shard."""

    member: MemberId
    shard: int
    copies: tuple[int, ...]


def majority(replication: int) -> int:
    """Return how many durable copies of every shard a commit needs (QR2)."""
    return replication // 2 + 1


def holders_of(members: Iterable[MemberId], replication: int) -> tuple[Holder, ...]:
    """Assign shards and copies.

    With parameter servers each is one shard and writes all its copies. Without, the state is replicated: it is one
    shard, and copy k is written by the k-th trainer, so that copies come from different members while there are
    enough of them (QR1).
    """
    members = frozenset(members)
    servers = by_shard(members)
    if servers:
        copies = tuple(range(replication))
        return tuple(Holder(server, shard, copies) for shard, server in enumerate(servers))
    trainers = sorted(members, key=lambda member: (member.role != "master", member.index))
    spread = min(replication, len(trainers))
    return tuple(Holder(trainers[k], 0, tuple(range(k, replication, spread))) for k in range(spread))


def shard_count(holders: Iterable[Holder]) -> int:
    """Return the number of shards."""
    return len({holder.shard for holder in holders})


def durable_copies(acks: Iterable[Ack], *, shards: int, step: int) -> list[int]:
    """Return the number of durable copies of each shard; acks of another step count for nothing (QR4)."""
    copies: list[set[int]] = [set() for _ in range(shards)]
    for ack in acks:
        if ack.ok and ack.step == step and 0 <= ack.shard < shards:
            copies[ack.shard].add(ack.copy)
    return [len(found) for found in copies]


def has_quorum(acks: Iterable[Ack], *, shards: int, step: int, replication: int) -> bool:
    """Whether every shard has its own majority (QR2); a majority of all copies together is not enough (FC13)."""
    return all(count >= majority(replication) for count in durable_copies(acks, shards=shards, step=step))


def is_impossible(acks: Iterable[Ack], *, shards: int, replication: int) -> bool:
    """Whether so many copies failed that no majority can come."""
    failed: list[set[int]] = [set() for _ in range(shards)]
    for ack in acks:
        if not ack.ok and 0 <= ack.shard < shards:
            failed[ack.shard].add(ack.copy)
    return any(replication - len(copies) < majority(replication) for copies in failed)


def save_problem(acks: Iterable[Ack]) -> tuple[str, str] | None:
    """Return why agents say that copies failed, as a reason and a sentence; None when they name none of ours."""
    return named_problem(ack.error or "" for ack in acks if not ack.ok)


def named_problem(errors: Iterable[str]) -> tuple[str, str] | None:
    """Return the first error of agents that names a problem of saving, as a reason and a sentence (PS4)."""
    for error in errors:
        told = _TOLD.fullmatch(error)
        if told is not None and told.group(1) in SAVE_PROBLEMS:
            return told.group(1), told.group(2)
    return None
