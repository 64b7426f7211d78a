"""The frameworks' environment of one member in one epoch: PyTorch, TensorFlow and JAX (api.md).

Set by the agent when it starts the process, since it changes with membership. Addresses come from the epoch, never
from DNS (ME4).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_operator.topology.members import MemberId, by_shard
from trainer_operator.trainer.ranges import in_rank_order


@dataclass(frozen=True, slots=True)
class Peer:
    """A member with its rank and where it listens."""

    member: MemberId
    rank: int
    address: str
    port: int

    def to_wire(self) -> dict[str, object]:
        """Return the form agents read."""
        return {
            "role": self.member.role,
            "index": self.member.index,
            "rank": self.rank,
            "address": self.address,
            "port": self.port,
        }


def peers_of(addresses: Mapping[MemberId, tuple[str, int]]) -> list[Peer]:
    """Give ranks: masters and workers in one sequence, parameter servers in their own (ME2)."""
    trainers = in_rank_order(member for member in addresses if member.role != "ps")
    return [
        Peer(member, rank, *addresses[member])
        for group in (trainers, by_shard(addresses))
        for rank, member in enumerate(group)
    ]


def world_size(peers: Sequence[Peer]) -> int:
    """Return the number of members that train."""
    return sum(peer.member.role != "ps" for peer in peers)


def frameworks(peers: Sequence[Peer], member: MemberId, *, uid: str, epoch: int) -> dict[str, str]:
    """Return the environment of one member; the rendezvous id is Trainer uid and epoch (ME2, TR46)."""
    mine = next(peer for peer in peers if peer.member == member)
    trainers = [peer for peer in peers if peer.member.role != "ps"]
    world = len(trainers)
    if not trainers:
        return {}
    first = trainers[0]
    environment = {
        "MASTER_ADDR": first.address,
        "MASTER_PORT": str(first.port),
        "WORLD_SIZE": str(world),
        "PET_NNODES": str(world),
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": first.address,
        "PET_MASTER_PORT": str(first.port),
        "PET_RDZV_ID": f"{uid}-{epoch}",
        "JAX_COORDINATOR_ADDRESS": f"{first.address}:{first.port}",
        "JAX_NUM_PROCESSES": str(world),
        "TF_CONFIG": _tf_config(peers, mine),
    }
    if member.role != "ps":
        environment |= {
            "RANK": str(mine.rank),
            "PET_NODE_RANK": str(mine.rank),
            "JAX_PROCESS_ID": str(mine.rank),
        }
    return environment


def _tf_config(peers: Sequence[Peer], mine: Peer) -> str:
    kind = {"master": "chief", "worker": "worker", "ps": "ps"}
    cluster: dict[str, list[str]] = {}
    for peer in peers:
        cluster.setdefault(kind[peer.member.role], []).append(f"{peer.address}:{peer.port}")
    index = [peer.member for peer in peers if peer.member.role == mine.member.role].index(mine.member)
    task = {"type": kind[mine.member.role], "index": index}
    return json.dumps({"cluster": cluster, "task": task}, separators=(",", ":"), sort_keys=True)
