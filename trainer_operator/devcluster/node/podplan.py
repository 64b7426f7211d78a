"""What to do next for a pod; pure, as the kubelet's computePodActions.

situation                                    plan
being deleted, or past its deadline          stop what runs, start nothing; ended when nothing runs
an init container has not succeeded          start it (held back by its backoff), nothing after it
it failed and is not restarted               ended, the main containers never start
a main container never ran                   start it
a main container ended and is restarted      start it, held back by its backoff
every main container ended, none restarts    ended
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.objects import JsonObject
from trainer_operator.devcluster.node.containerstate import ContainerRecord, Running, Terminated, Waiting
from trainer_operator.devcluster.node.restart import should_restart

CRASH_LOOP = "CrashLoopBackOff"


@dataclass(frozen=True, slots=True)
class Hold:
    """A container that is not started before a moment, and what its status says meanwhile."""

    until: float
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, and when to look again."""

    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    held: tuple[tuple[str, Waiting], ...] = ()
    """Containers that wait, with what their status says."""
    wake: float | None = None
    """Seconds until a hold ends."""
    ended: bool = False
    """Nothing will be started any more and nothing runs."""


def plan(
    spec: JsonObject,
    records: Mapping[str, ContainerRecord],
    holds: Mapping[str, Hold],
    *,
    stopping: bool,
    now: float,
) -> Plan:
    """Decide what to do for a pod; `holds` names containers that must wait."""
    if stopping:
        running = tuple(name for name, record in records.items() if isinstance(record.state, Running))
        return Plan(stop=running, ended=not running)
    policy = spec.get("restartPolicy") or "Always"
    mains = [container["name"] for container in spec.get("containers") or ()]
    # Once a main container ran, the init containers are history, even to a node that has forgotten them.
    if not any(name in records and records[name].ever_ran for name in mains):
        for container in spec.get("initContainers") or ():
            name = container["name"]
            record = records.get(name)
            state = record.state if record else None
            match state:
                case Running():
                    return Plan()
                case Terminated(exit_code=0):
                    continue
                case Terminated() if policy == "Never":
                    return Plan(ended=True)
                case _:
                    return _start([name], holds, now=now)
    wanted = [name for name in mains if _is_due(records.get(name), policy)]
    if not wanted and all(name in records and isinstance(records[name].state, Terminated) for name in mains):
        return Plan(ended=True)
    return _start(wanted, holds, now=now)


def _is_due(record: ContainerRecord | None, policy: str) -> bool:
    match record:
        case None | ContainerRecord(state=Waiting()):
            # Held back after a crash it is waiting too, and its last end decides.
            return True
        case ContainerRecord(state=Terminated(exit_code=code)):
            return should_restart(policy, code)
        case _:
            return False


def _start(names: list[str], holds: Mapping[str, Hold], *, now: float) -> Plan:
    held = {name: holds[name] for name in names if name in holds and holds[name].until > now}
    return Plan(
        start=tuple(name for name in names if name not in held),
        held=tuple((name, hold.waiting) for name, hold in held.items()),
        wake=min((hold.until - now for hold in held.values()), default=None),
    )
