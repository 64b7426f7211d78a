"""Short ways to build what a decision is made from: beats, agents, pods, and an observation of them."""

from dataclasses import replace

from simulation.cluster import START, trainer
from trainer_operator.api.status import MembershipPhase, MembershipStatus, TrainerStatus
from trainer_operator.topology.beat import Beat, Exit
from trainer_operator.topology.members import AgentView, MemberId
from trainer_operator.trainer.views import NodeView, Observed, PodView, Settings

WORKER = MemberId("worker", 0)
OTHER = MemberId("worker", 1)
SERVER = MemberId("ps", 0)


def beat(member: MemberId = WORKER, **changes) -> Beat:
    """A beat of a running member; `changes` are fields of Beat."""
    fields = {
        "v": 1,
        "trainer": "default/t",
        "tuid": "uid-t",
        "pod": f"pod-{member}-0",
        "role": member.role,
        "idx": member.index,
        "attempt": 0,
        "boot": "boot",
        "seq": 1,
        "epoch": 1,
        "prepared": 1,
        "address": "10.0.0.1",
        "port": 30000,
        "proc": "running",
        "phase": "train",
    }
    return Beat(**{**fields, **changes})


def agent(member: MemberId = WORKER, *, age: float = 0.0, results=None, **changes) -> AgentView:
    """An agent whose last beat is `age` seconds old."""
    return AgentView(beat(member, **changes), age, age, results or {})


def exited(code: int = 0, sig: int = 0, **changes) -> dict:
    """The fields of a beat after the process ended."""
    return {"proc": "exited", "exit": Exit(code=code, sig=sig), "phase": "done", **changes}


def pod(member: MemberId = WORKER, *, attempt: int = 0, **changes) -> PodView:
    """A running pod on a node of its own."""
    view = PodView(
        f"t-{member}" + (f"-a{attempt}" if attempt else ""),
        f"pod-{member}-{attempt}",
        attempt,
        phase="Running",
        node=f"node-{member}",
        ready=True,
    )
    return replace(view, **changes)


def observed(*, pods=(), agents=(), nodes=None, of=None, **changes) -> Observed:
    """What one pass sees; every node that a pod names is healthy unless `nodes` says otherwise."""
    by_member: dict[MemberId, list[PodView]] = {}
    for member, view in pods:
        by_member.setdefault(member, []).append(view)
    healthy = {view.node: NodeView(ready=True) for _, view in pods if view.node}
    fields = {
        "trainer": of or trainer(),
        "profile": None,
        "pods": {member: tuple(views) for member, views in by_member.items()},
        "agents": {MemberId(view.beat.role, view.beat.idx): view for view in agents},
        "nodes": {**healthy, **(nodes or {})},
        "checkpoints": (),
        "now": START,
        "settings": Settings(),
    }
    return Observed(**{**fields, **changes})


def active(members: str, *, world: int, epoch: int = 1, **changes) -> TrainerStatus:
    """The status of a Trainer whose epoch is Active since the start."""
    membership = MembershipStatus(
        epoch=epoch,
        phase=MembershipPhase.ACTIVE,
        members=members,
        world=world,
        reason="Started",
        since=START,
    )
    return TrainerStatus(membership=membership, start_time=START, **changes)


def with_status(of, status: TrainerStatus):
    """A Trainer with another status."""
    return of.model_copy(update={"status": status})


def with_spec(of, **changes):
    """A Trainer with other fields of its spec."""
    return of.model_copy(update={"spec": of.spec.model_copy(update=changes)})
