"""Who serves a parameter-server shard, and who stands by (PSR1 to PSR3, PSR6).

With `replicationFactor` R there are R members for each shard: member i belongs to shard i modulo the number of shards,
so the first replicas of all shards come first. One of them serves; `membership.serving` says which, as `1.0.0.0` for the
second replica of shard 0 and the first of the others. The standbys hold the snapshots of the one that serves, and need
no place in the epoch: it is formed, and trains, without them. Pure.
"""

from trainer_operator.api import names
from trainer_operator.api.status import MembershipStatus
from trainer_operator.api.trainer import Trainer
from trainer_operator.topology.members import MemberId
from trainer_operator.trainer.affinity import Affinity, preferring_pods
from trainer_operator.trainer.ranges import parse_members


def all_servers(trainer: Trainer) -> list[MemberId]:
    """Return all replicas of all shards."""
    topology = trainer.spec.topology
    return [
        MemberId("ps", index) for index in range(topology.parameter_servers * topology.replication_factor)
    ]


def shard_of(trainer: Trainer, server: MemberId) -> int:
    """Return the shard that a server belongs to."""
    return server.index % trainer.spec.topology.parameter_servers


def replicas_of(trainer: Trainer, shard: int) -> list[MemberId]:
    """Return the members of one shard."""
    return all_servers(trainer)[shard :: trainer.spec.topology.parameter_servers]


def serving_members(trainer: Trainer, membership: MembershipStatus) -> list[MemberId]:
    """Return who serves, by shard; the first replica where status names no other."""
    topology = trainer.spec.topology
    named = [int(word) for word in membership.serving.split(".") if word.isdecimal()]
    chosen = [number if number < topology.replication_factor else 0 for number in named]
    shards = topology.parameter_servers
    chosen = (chosen + [0] * shards)[:shards]
    return [MemberId("ps", replica * shards + shard) for shard, replica in enumerate(chosen)]


def standbys(trainer: Trainer, membership: MembershipStatus) -> frozenset[MemberId]:
    """Return the servers that do not serve."""
    return frozenset(all_servers(trainer)) - frozenset(serving_members(trainer, membership))


def apart_from_replicas(trainer: Trainer, member: MemberId, affinity: Affinity | None) -> Affinity | None:
    """Add to an affinity that a server rather runs on another node than the replicas of its shard."""
    if member.role != "ps" or trainer.spec.topology.replication_factor == 1:
        return affinity
    replicas = replicas_of(trainer, shard_of(trainer, member))
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchLabels": {names.TRAINER_LABEL: trainer.metadata.name, names.ROLE_LABEL: member.role},
            "matchExpressions": [
                {"key": names.INDEX_LABEL, "operator": "In", "values": [str(one.index) for one in replicas]}
            ],
        },
    }
    return preferring_pods(affinity, "podAntiAffinity", term)


def at_work(trainer: Trainer) -> frozenset[MemberId]:
    """Return the members of the epoch without the standbys: those whose state makes a checkpoint."""
    membership = trainer.status.membership
    return parse_members(membership.members) - standbys(trainer, membership)


def let_serve(trainer: Trainer, membership: MembershipStatus, server: MemberId) -> None:
    """Have a member serve its shard from now on."""
    shards = trainer.spec.topology.parameter_servers
    chosen = [member.index // shards for member in serving_members(trainer, membership)]
    chosen[shard_of(trainer, server)] = server.index // shards
    membership.serving = ".".join(map(str, chosen)) if any(chosen) else ""
