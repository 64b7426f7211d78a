"""Levels of the cluster's topology by name, and the node label that tells the domains of a level apart (TP1, TP5, TP6).

    scheduling.topologyPolicy.required: rack ──ConfigMap, else the table here──▶ labels ──first that a node has──▶ label

A name that does not resolve is never "no constraint" (SC11): it comes back as a sentence that says what could be
meant. Pure.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import ValidationError

from trainer_operator.api.affinity import LabelKey
from trainer_operator.api.meta import ApiModel, LabelName

CONFIG_MAP = "trainer-topology"
CONFIG_KEY = "levels"
HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Level:
    """A level, and the node labels that may tell its domains apart: the first one that any node has counts."""

    name: str
    labels: tuple[str, ...]


BUILT_IN = (
    Level("zone", ("topology.kubernetes.io/zone",)),
    Level("tier-2", ("fabric.topograph.run/tier-2", "topology.k8s.aws/network-node-layer-1")),
    Level(
        "tier-1",
        (
            "fabric.topograph.run/tier-1",
            "cloud.google.com/gce-topology-block",
            "topology.k8s.aws/network-node-layer-2",
        ),
    ),
    Level(
        "tier-0",
        (
            "fabric.topograph.run/tier-0",
            "cloud.google.com/gce-topology-subblock",
            "topology.k8s.aws/network-node-layer-3",
        ),
    ),
    Level("nvlink", ("accelerator.topograph.run/domain", "nvidia.com/gpu.clique", HOSTNAME)),
    Level("node", (HOSTNAME,)),
)
"""From the widest to the narrowest. Tier 0 of the network is the switch next to the nodes."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Why a name means no label, as a sentence that ends with what could be done."""

    message: str


class _ConfiguredLevel(ApiModel):
    """One entry of the ConfigMap; what it says beyond this is for a scheduler of our own."""

    name: LabelName
    labels: tuple[LabelKey, ...]


def resolve(
    name: str, levels: tuple[Level, ...], carried: AbstractSet[str], *, optional: bool = False
) -> str | Unresolved:
    """Return the node label of a level; `carried` are the labels that nodes have.

    With `optional` a level whose labels no node has is its first label: as a preference it only finds nothing.
    """
    found = next((level for level in levels if level.name == name), None)
    if found is None:
        known = ", ".join(level.name for level in levels)
        return Unresolved(
            f"topology level {name} is not known, only {known}; ConfigMap {CONFIG_MAP} can name others"
        )
    label = next((label for label in found.labels if label in carried), None)
    if label is not None:
        return label
    if optional:
        return found.labels[0]
    usable = ", ".join(level.name for level in levels if not carried.isdisjoint(level.labels)) or "none"
    return Unresolved(
        f"no node has a label of topology level {name} ({', '.join(found.labels)}); levels that nodes have: {usable}"
    )


def configured(data: Mapping[str, str]) -> tuple[Level, ...]:
    """Return the levels of the ConfigMap, and after them the built-in ones whose names it does not take.

    Raises: ValueError, with a sentence, for what is no list of levels.
    """
    try:
        listed: Any = yaml.safe_load(data.get(CONFIG_KEY) or "[]")
    except yaml.YAMLError:
        listed = None
    if not isinstance(listed, list):
        told = f"{CONFIG_KEY} is no YAML list of levels, each with name and labels"
        raise ValueError(told)  # noqa: TRY004 (what the user wrote is wrong, not a type of ours)
    found = [_level(number, entry) for number, entry in enumerate(listed)]
    names = [level.name for level in found]
    if len(set(names)) < len(names):
        raise ValueError(f"{CONFIG_KEY} names a level twice: {', '.join(names)}")
    return (*found, *(level for level in BUILT_IN if level.name not in names))


def _level(number: int, entry: object) -> Level:
    try:
        read = _ConfiguredLevel.read(entry)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "entry"
        raise ValueError(f"{CONFIG_KEY}[{number}]: {place}: {first['msg']}") from None
    if not read.labels:
        raise ValueError(f"{CONFIG_KEY}[{number}]: level {read.name} has no labels")
    return Level(read.name, read.labels)
