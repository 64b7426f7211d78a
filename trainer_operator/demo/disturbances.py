"""The disturbances of the demo and what each of them may cost: data only.

Costs follow the operator's rules: a failure of the training itself counts against backoffLimit, a disruption does not,
and a change that somebody asked for counts as neither (RC1, RC3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What is done."""

    KILL_WORKER = "kill-worker"
    KILL_SERVER = "kill-server"
    DELETE_POD = "delete-pod"
    KILL_NODE = "kill-node"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    KILL_LEADER = "kill-leader"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One disturbance and its price."""

    kind: Kind
    title: str
    failures: int = 0
    """Failures that it is charged."""
    disruptions: int = 0
    """Disruptions that it is charged."""
    patience: float = 60.0
    """Seconds after which it counts as not survived."""
    keeps_others: bool = False
    """Whether no other member's process may end because of it."""
    keeps_pace: bool = False
    """Whether training must not pause at all."""
    steady_steps: int = 40
    """Steps that training goes on before it."""
    after_checkpoint: bool = False
    """Whether there has to be a committed checkpoint before it."""
    workers: int | None = None
    """Number of workers that is asked for."""


PLAN = (
    Disturbance(Kind.KILL_WORKER, "kill -9 a worker's process", failures=1, keeps_others=True),
    Disturbance(
        Kind.KILL_SERVER, "kill -9 the parameter server", failures=1, keeps_others=True, after_checkpoint=True
    ),
    Disturbance(Kind.DELETE_POD, "kubectl delete a worker's pod", disruptions=1, keeps_others=True),
    Disturbance(Kind.SCALE_UP, "kubectl scale --replicas=5", workers=5),
    Disturbance(Kind.KILL_NODE, "cut the power of a node", disruptions=1, patience=90.0),
    Disturbance(Kind.SCALE_DOWN, "kubectl scale --replicas=3", workers=3),
    Disturbance(Kind.KILL_LEADER, "kill -9 the leading operator", keeps_others=True, keeps_pace=True),
)


@dataclass(frozen=True, slots=True)
class Incident:
    """A disturbance that happened."""

    disturbance: Disturbance
    began: float
    settled: float
    """When training was whole again; with `survived` false, when we gave up."""
    victims: tuple[str, ...] = ()
    """Members that it hit."""
    target: str = ""
    """What it was done to, for people."""
    survived: bool = True
