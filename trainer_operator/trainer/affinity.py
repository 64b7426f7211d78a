"""Affinity of pods: what the operator adds to what the user asked for, which is kept. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEIGHT = 100
"""Of what is preferred; the most that there is, and weighed against what else the scheduler prefers."""

Affinity = Mapping[str, Any]
PodKind = Literal["podAffinity", "podAntiAffinity"]


def preferring_pods(affinity: Affinity | None, kind: PodKind, term: Mapping[str, Any]) -> Affinity:
    """Add that a pod rather runs near to, or apart from, the pods of a term."""
    return _with(affinity, kind, PREFERRED, {"weight": WEIGHT, "podAffinityTerm": term})


def requiring_pods(affinity: Affinity | None, kind: PodKind, term: Mapping[str, Any]) -> Affinity:
    """Add that a pod only runs near to, or apart from, the pods of a term."""
    return _with(affinity, kind, REQUIRED, term)


def requiring_nodes(
    affinity: Affinity | None,
    part: Literal["matchExpressions", "matchFields"],
    conditions: Sequence[Mapping[str, Any]],
) -> Affinity | None:
    """Add conditions of nodes; every alternative of the user's gets them."""
    if not conditions:
        return affinity
    nodes = dict((affinity or {}).get("nodeAffinity") or {})
    terms = (nodes.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    nodes[REQUIRED] = {
        "nodeSelectorTerms": [{**term, part: [*(term.get(part) or ()), *conditions]} for term in terms]
    }
    return {**(affinity or {}), "nodeAffinity": nodes}


def _with(affinity: Affinity | None, kind: PodKind, strength: str, term: Mapping[str, Any]) -> Affinity:
    pods = dict((affinity or {}).get(kind) or {})
    pods[strength] = [*pods.get(strength, ()), term]
    return {**(affinity or {}), kind: pods}
