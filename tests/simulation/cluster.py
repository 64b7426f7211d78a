"""A simulated cluster for `decide`: pods, agents and checkpoints that do what they are told, and faults.

Nothing here is a mock of our code: `decide` runs as in the operator, with its status carried from pass to pass through
the wire format. Kubernetes and the agents are reduced to what they promise.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from runtime.clock import format_time
from trainer_operator.api.trainer import Trainer
from trainer_operator.images import EntryPoint
from trainer_operator.topology.beat import Beat, DirectiveResult, Exit
from trainer_operator.topology.members import AgentView, Directive, MemberId
from trainer_operator.trainer.decide import Decision, decide
from trainer_operator.trainer.draft import CreateCheckpoint, CreatePod, DeletePod, MarkCorrupt, PinCheckpoint
from trainer_operator.trainer.proximity import placement_label
from trainer_operator.trainer.serving import at_work, serving_members, shard_of, standbys
from trainer_operator.trainer.views import CheckpointView, NodeView, Observed, PodView, Settings

STEPS_PER_EPOCH = 10
NO_ROOM = "0/4 nodes are available: 4 Insufficient cpu."
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Agent:
    """One agent with its process."""

    member: MemberId
    attempt: int
    pod: str
    boot: str
    epoch: int = 0
    ps_epoch: int = 0
    run: int = 0
    prepared: int = 0
    proc: str = "none"
    exit: Exit | None = None
    step: int = 0
    phase: str = "init"
    age: float = 0.0
    silent: bool = False
    soft: bool = False
    deaf: bool = False
    """Whether it hears nothing of what it is told, but is heard itself."""
    pause_at: int | None = None
    have: list[int] = field(default_factory=list)
    done_ids: dict[str, DirectiveResult] = field(default_factory=dict)

    def view(self, uid: str) -> AgentView:
        beat = Beat(
            v=1,
            trainer="default/t",
            tuid=uid,
            pod=self.pod,
            role=self.member.role,
            idx=self.member.index,
            attempt=self.attempt,
            boot=self.boot,
            seq=1,
            epoch=self.epoch,
            ps_epoch=self.ps_epoch,
            run=self.run,
            address=f"127.0.0.{self.member.index + 1}",
            port=30000,
            proc=self.proc,
            exit=self.exit,
            prepared=self.prepared,
            step=self.step,
            phase=self.phase,
            data_epoch=self.step // STEPS_PER_EPOCH,
            have=list(self.have),
            soft_epochs=self.soft and self.proc == "running",
        )
        return AgentView(beat, self.age, self.age, dict(self.done_ids))


@dataclass
class Cluster:
    """Everything outside `decide`."""

    trainer: Trainer
    now: datetime = START
    pods: dict[str, tuple[MemberId, PodView]] = field(default_factory=dict)
    agents: dict[MemberId, Agent] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointView] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    room: int = 1000
    """Workers that fit on the nodes."""
    soft: bool = False
    """Whether the programs take soft epochs."""
    serial: int = 0
    events: list[tuple[str, str]] = field(default_factory=list)
    trained: list[tuple[int, int, int]] = field(default_factory=list)
    """(membership epoch, psEpoch, step) of every step that was trained."""
    corrupt: set[str] = field(default_factory=set)
    refusal: str = "restore: damaged"
    """What agents answer when they are to start from one of these."""
    entry_points: dict[str, EntryPoint | str] = field(default_factory=dict)
    """What registries say of images."""
    last: Decision | None = None
    settings: Settings = field(default_factory=lambda: Settings(voluntary_interval=0.0))

    @property
    def servers(self) -> bool:
        return self.trainer.spec.topology.parameter_servers > 0

    def observed(self) -> Observed:
        by_member: dict[MemberId, list[PodView]] = {}
        for member, pod in self.pods.values():
            by_member.setdefault(member, []).append(pod)
        return Observed(
            trainer=self.trainer,
            profile=None,
            pods={member: tuple(sorted(pods, key=lambda p: p.attempt)) for member, pods in by_member.items()},
            agents={member: agent.view(self.trainer.metadata.uid) for member, agent in self.agents.items()},
            nodes={f"node-{n}": NodeView(ready=f"node-{n}" not in self.down) for n in range(4)},
            checkpoints=tuple(self.checkpoints.values()),
            now=self.now,
            entry_points=self.entry_points,
            settings=self.settings,
        )

    def reconcile(self) -> Decision:
        decision = decide(self.observed())
        status = type(decision.status).read(
            decision.status.dump()
        )  # only what is on the wire survives a leader
        self.trainer = self.trainer.model_copy(update={"status": status})
        for action in decision.actions:
            match action:
                case CreatePod(member, attempt):
                    self._create(member, attempt)
                case DeletePod(name):
                    self._delete(name)
                case CreateCheckpoint(name, reason):
                    if name not in self.checkpoints:
                        self.checkpoints[name] = CheckpointView(
                            name, "", 0, "Pending", "Unknown", str(reason), sequence=int(name[-5:])
                        )
                case PinCheckpoint(name, pin):
                    found = self.checkpoints[name]
                    self.checkpoints[name] = replace(found, pins=(*found.pins, pin))
                case MarkCorrupt(name):
                    self.checkpoints[name] = replace(self.checkpoints[name], health="Corrupt")
                case _:
                    if hasattr(action, "message"):
                        self.events.append((action.reason, action.message))
        for member, directives in decision.directives.items():
            for directive in directives:
                self._obey(member, directive)
        self.last = decision
        return decision

    def run_until(self, holds: Callable[[], bool], *, at_most: int) -> float:
        """Reconcile and tick until a condition holds after a pass; return the seconds that it took."""
        began = self.now
        for _ in range(at_most):
            self.reconcile()
            if holds():
                return (self.now - began).total_seconds()
            self.tick()
        raise AssertionError(f"did not happen: {self.trainer.status.dump()}")

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass: pods start, processes train, checkpoints commit."""
        self.now += timedelta(seconds=seconds)
        for name, (member, pod) in list(self.pods.items()):
            if pod.terminating and pod.node not in self.down:
                del self.pods[name]
            elif pod.phase == "Pending" and not pod.node:
                nodes = self._nodes_for(pod.placement) if pod.placement else range(4)
                if self._has_room(member) and nodes:
                    node = f"node-{nodes[member.index % len(nodes)]}"
                    placed = replace(pod, node=node, waits_reason="", waits_message="")
                    self.pods[name] = (member, placed)
            elif pod.phase == "Pending" and pod.node not in self.down:
                self.pods[name] = (member, replace(pod, phase="Running", ready=True))
                if pod.attempt == self._newest(member):
                    self.serial += 1
                    boot = f"boot{self.serial}"
                    self.agents[member] = Agent(member, pod.attempt, pod.uid, boot, soft=self.soft)
        for agent in self.agents.values():
            gone = not any(p.uid == agent.pod and p.node not in self.down for _, p in self.pods.values())
            agent.age = agent.age + seconds if gone or agent.silent else 0.0
            if gone:
                agent.silent = True
        self._train()
        self._commit()

    # -- faults

    def crash(self, member: MemberId) -> bool:
        agent = self.agents.get(member)
        if agent is None or agent.silent or agent.proc != "running":
            return False
        agent.proc, agent.exit = "exited", Exit(code=1, step=agent.step)
        return True

    def delete_pod(self, member: MemberId) -> bool:
        mine = [name for name, (owner, pod) in self.pods.items() if owner == member and not pod.terminating]
        for name in mine:
            self._delete(name)
        return bool(mine)

    def lose_node(self, number: int) -> None:
        self.down.add(f"node-{number}")

    # -- what Kubernetes and agents do

    def _has_room(self, member: MemberId) -> bool:
        """Whether the scheduler finds a node for one more worker."""
        placed = sum(owner.role == "worker" and bool(pod.node) for owner, pod in self.pods.values())
        return member.role != "worker" or placed < self.room

    def _nodes_for(self, placement: str) -> list[int]:
        """Return the nodes that live, in the rack of the pods that it must be near to; two nodes make a rack."""
        racks = {
            int(pod.node.rpartition("-")[2]) // 2
            for _, pod in self.pods.values()
            if placement and pod.placement == placement and pod.node
        }
        healthy = [number for number in range(4) if f"node-{number}" not in self.down]
        return [number for number in healthy if not racks or number // 2 in racks]

    def _newest(self, member: MemberId) -> int:
        return max(pod.attempt for owner, pod in self.pods.values() if owner == member)

    def _create(self, member: MemberId, attempt: int) -> None:
        name = f"{member}-a{attempt}"
        assert name not in self.pods, f"pod {name} was created twice"
        self.serial += 1
        placement = placement_label(self.trainer, self.trainer.status.allocation)
        nodes = self._nodes_for(placement)
        node = f"node-{nodes[self.serial % len(nodes)]}" if self._has_room(member) and nodes else ""
        self.pods[name] = (
            member,
            PodView(
                name,
                f"uid{self.serial}",
                attempt,
                node=node,
                created=format_time(self.now),
                placement=placement,
                waits_reason="" if node else "Unschedulable",
                waits_message="" if node else NO_ROOM,
            ),
        )

    def _delete(self, name: str) -> None:
        if name in self.pods:
            member, pod = self.pods[name]
            self.pods[name] = (member, replace(pod, terminating=True))
            agent = self.agents.get(member)
            if agent is not None and agent.pod == pod.uid:
                agent.silent = True
                agent.proc = "none"

    def _obey(self, member: MemberId, directive: Directive) -> None:
        agent = self.agents.get(member)
        if agent is None or agent.silent or agent.deaf or directive.id in agent.done_ids:
            return
        if directive.kind == "Prepare":
            agent.proc, agent.exit, agent.phase, agent.pause_at = "none", None, "rendezvous", None
            agent.prepared = max(agent.prepared, directive.args["epoch"])
        elif directive.kind == "Go" and agent.proc == "running":
            assert agent.epoch == directive.args["epoch"], "a process of an older epoch would train on"
        elif directive.kind == "Go" and directive.args.get("join"):
            agent.proc, agent.exit, agent.phase = "running", None, "rendezvous"
            agent.run += 1
            agent.epoch, agent.ps_epoch, agent.step = directive.args["epoch"], 0, 0
        elif directive.kind == "Go" and directive.args["reason"] == "Standby":
            assert directive.args["rank"] == shard_of(self.trainer, member)
            agent.proc, agent.exit, agent.phase, agent.have = "running", None, "train", []
            agent.run += 1
            agent.epoch, agent.ps_epoch = directive.args["epoch"], directive.args["psEpoch"]
        elif directive.kind == "Pause":
            agent.pause_at = directive.args["step"]
        elif directive.kind == "Resume":
            agent.pause_at = None
            agent.phase = "train"
        elif directive.kind == "Go":
            restore = directive.args["restore"]
            if restore is not None and restore["ckpt"] in self.corrupt:
                agent.done_ids[directive.id] = DirectiveResult(directive.id, ok=False, error=self.refusal)
                return
            agent.proc, agent.exit, agent.phase = "running", None, "train"
            agent.run += 1
            agent.pause_at = None
            agent.epoch, agent.ps_epoch = directive.args["epoch"], directive.args["psEpoch"]
            agent.step = directive.args["restoreStep"]
        elif directive.kind == "Drain":
            assert directive.args["pod"] == agent.pod, "the process of another pod was drained"
            agent.proc, agent.exit, agent.phase = (
                "exited",
                Exit(code=143, sig=15, step=agent.step),
                "draining",
            )
        elif directive.kind == "UpdatePS":
            agent.ps_epoch, agent.step, agent.phase = (
                directive.args["psEpoch"],
                directive.args["step"],
                "train",
            )
            agent.epoch = max(agent.epoch, directive.args.get("epoch", 0))
            agent.prepared = max(agent.prepared, agent.epoch)
            if member.role == "ps":
                agent.have = [step for step in agent.have if step <= agent.step]
        value = {"number": directive.args["after"] + 1} if directive.kind == "Store" else None
        agent.done_ids[directive.id] = DirectiveResult(directive.id, value=value)

    def _in_epoch(self) -> list[Agent]:
        membership = self.trainer.status.membership
        mine = [self.agents[member] for member in sorted(at_work(self.trainer)) if member in self.agents]
        return [a for a in mine if a.epoch == membership.epoch and not a.silent]

    def _train(self) -> None:
        """All members of one epoch take one step together, or none does."""
        membership = self.trainer.status.membership
        group = [a for a in self._in_epoch() if a.proc == "running"]
        world = membership.world
        trainers = [a for a in group if a.member.role != "ps"]
        servers = [a for a in group if a.member.role == "ps"]
        shards = self.trainer.spec.topology.parameter_servers
        standing = [a for a in servers if a.pause_at is not None and a.step >= a.pause_at]
        for server in standing:
            server.phase = "paused"
        if len(servers) < shards or membership.ps_phase == "Recovering":
            for agent in trainers:
                agent.phase = "waiting_ps"
            return
        end = self.trainer.spec.epochs * STEPS_PER_EPOCH
        if any(server.step >= end for server in servers):
            for agent in trainers:  # who joins after the last step hears so from the servers, and is done
                self._finish(agent, end)
            return
        if world == 0 or len(trainers) < world or any(a.ps_epoch != membership.ps_epoch for a in group):
            return
        if standing or self._paused():
            return
        self._follow()
        step = max(a.step for a in group) + 1
        self.trained.append((membership.epoch, membership.ps_epoch, step))
        for agent in group:
            agent.step = step
            agent.phase = "train"
            if agent.member.role == "ps" and step % 5 == 0:
                agent.have = [*agent.have, step][-3:]
            if step >= end and agent.member.role != "ps":
                self._finish(agent, step)

    def _finish(self, agent: Agent, step: int) -> None:
        agent.proc, agent.exit, agent.step, agent.phase = "exited", Exit(code=0, step=step), step, "done"

    def _follow(self) -> None:
        """Standbys take the snapshots of the server of their shard."""
        serving = serving_members(self.trainer, self.trainer.status.membership)
        for member in standbys(self.trainer, self.trainer.status.membership):
            agent, server = self.agents.get(member), self.agents[serving[shard_of(self.trainer, member)]]
            if agent is None or agent.silent or agent.proc != "running":
                continue
            if (agent.epoch, agent.ps_epoch) == (server.epoch, server.ps_epoch):
                agent.have = sorted({*agent.have, *server.have, self.trainer.status.membership.restore_step})[
                    -3:
                ]

    def _paused(self) -> bool:
        flight = self.trainer.status.checkpoint_in_flight
        change = self.trainer.status.pending_change
        name = (
            change.checkpoint
            if change is not None
            else (flight.name if flight is not None and flight.pause else "")
        )
        return bool(name) and name in self.checkpoints and self.checkpoints[name].state == "Committed"

    def _commit(self) -> None:
        membership = self.trainer.status.membership
        for name, view in self.checkpoints.items():
            if view.state != "Pending":
                continue
            group = [a for a in self._in_epoch() if a.proc == "running"]
            if (
                membership.phase != "Active"
                or not group
                or (self.servers and membership.ps_phase != "Serving")
            ):
                self.checkpoints[name] = replace(view, state="GarbageCollected", aborted=True)
                continue
            step = max(a.step for a in group)
            for agent in group:
                agent.pause_at = None  # as the SDK does, so that all come to the step
            self.checkpoints[name] = replace(
                view,
                id=f"{step:012d}-e{membership.epoch}-{name[-4:]}",
                step=step,
                state="Committed",
                committed_at=self.now,
            )


def trainer(
    *, workers: int = 2, servers: int = 0, epochs: int = 5, backoff_limit: int = 50, replicas: int = 1
) -> Trainer:
    """Build a Trainer as the API server would return it."""
    return Trainer.read(
        {
            "metadata": {"name": "t", "namespace": "default", "uid": "uid-t", "generation": 1},
            "spec": {
                "epochs": epochs,
                "image": "image",
                "command": ["train"],
                "topology": {
                    "workers": workers,
                    "parameterServers": servers,
                    "replicationFactor": replicas,
                },
                "checkpoint": {"bucket": "claim", "intervalMinutes": 0.1},
                "retryPolicy": {"backoffLimit": backoff_limit},
            },
        }
    )


def rescale(cluster: Cluster, workers: int) -> None:
    """Change spec.topology.workers, as kubectl scale does."""
    topology = cluster.trainer.spec.topology.model_copy(update={"workers": workers})
    spec = cluster.trainer.spec.model_copy(update={"topology": topology})
    cluster.trainer = cluster.trainer.model_copy(update={"spec": spec})
