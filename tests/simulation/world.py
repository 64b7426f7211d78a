"""A world for both reconcilers: an API server in memory, caches of it, kubelets, agents and a checkpoint store.

The reconcilers, the members' table and the applier are the real ones. The operator may die at any write, before or
after it took effect; what outlives it is the API server, the agents and the store.
"""

import random
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from runtime.cache.barrier import Barrier
from runtime.cache.projection import Node, PartialObject, Pod
from runtime.clock import format_time
from runtime.controller.reconciler import Request
from runtime.errors import RuntimeFault
from runtime.objects import NODES, PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, ObjectKey, key_of
from runtime.testing.clock import SimClock
from simulation.apiserver import Api, Cached, Killed
from simulation.recording import Recording, prepare
from trainer_operator.api.names import ATTEMPT_LABEL, INDEX_LABEL, ROLE_LABEL
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS, TRAINING_PROFILES
from trainer_operator.api.trainer import Trainer
from trainer_operator.audit.writer import AuditWriter
from trainer_operator.checkpoint.reconciler import CheckpointReconciler
from trainer_operator.notify.notifier import NoNotifier
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.beat import Ack, Beat, DirectiveResult, Exit
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.members import MemberId, Members
from trainer_operator.trainer.apply import Applier
from trainer_operator.trainer.chronicle import Chronicle
from trainer_operator.trainer.deletions import DeletionReconciler
from trainer_operator.trainer.imports import ImportReconciler
from trainer_operator.trainer.janitors import JanitorReconciler
from trainer_operator.trainer.levelmap import LevelMap
from trainer_operator.trainer.nodes import NodeLeases
from trainer_operator.trainer.podgroups import PodGroups
from trainer_operator.trainer.ranges import parse_members
from trainer_operator.trainer.reconciler import TrainerReconciler
from trainer_operator.trainer.surroundings import Surroundings
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.volumes import Claim

KEY = ObjectKey("default", "t")
STEPS_PER_EPOCH = 8


def request(key=KEY) -> Request:
    return Request(key)


class Events:
    """What was recorded, by reason."""

    def __init__(self):
        self.seen = []

    def event(self, obj, *, type, reason, message):
        self.seen.append((reason, message))


class Operator:
    """One process of the operator: everything in here is lost when it dies."""

    def __init__(self, world, notices=None):
        api, clock = world.api, world.clock
        self.members = Members(clock)
        self.events = Events()
        self.trainers = Cached(api, TRAINERS)
        self.checkpoints = Cached(api, CHECKPOINTS)
        self.pods = Cached(api, PODS, Pod)
        self.services = Cached(api, SERVICES, PartialObject)
        caches = {PODS: self.pods, CHECKPOINTS: self.checkpoints, SERVICES: self.services}
        self.barriers = {kind: Barrier(cache, clock=clock) for kind, cache in caches.items()}
        settings = Settings(voluntary_interval=0.0)
        self.audit = AuditWriter(api, clock)
        self.recording = Recording(self.audit)
        self.registry = CollectorRegistry()
        metrics = TrainerMetrics(self.registry)
        self.notices = NoNotifier() if notices is None else notices
        self.trainer = TrainerReconciler(
            trainers=self.trainers,
            profiles=Cached(api, TRAINING_PROFILES),
            checkpoints=self.checkpoints,
            pods=self.pods,
            surroundings=Surroundings(
                nodes=Cached(api, NODES, Node),
                pods=self.pods,
                claims=Cached(api, PERSISTENT_VOLUME_CLAIMS, Claim),
                services=self.services,
                attachments=None,
                leases=NodeLeases(clock),
                members=self.members,
            ),
            members=self.members,
            forest=Forest(clock),
            applier=Applier(
                api, self.members, self.events, settings, barriers=self.barriers, authority=lambda: "PEM"
            ),
            clock=clock,
            settings=settings,
            led_since=lambda: self.members.since,
            caught_up=lambda uid: all(barrier.is_open(uid) for barrier in self.barriers.values()),
            rng=random.Random(7),
            metrics=metrics,
            entry_point=lambda image, key: None,
            level_map=LevelMap(api, clock, "trainer-operator"),
            pod_groups=PodGroups(api, clock, start=lambda kind: self._watch_pod_groups(api, kind)),
            notebook_refusal=lambda uid: "",
            chronicle=Chronicle(self.audit),
            notices=self.notices,
        )
        self.checkpoint = CheckpointReconciler(
            client=api,
            checkpoints=self.checkpoints,
            trainers=self.trainers,
            members=self.members,
            events=self.events,
            clock=clock,
            look_again=lambda key: None,
            members_of=lambda trainer: parse_members(trainer.status.membership.members),
            call_janitor=lambda key: None,
            metrics=metrics,
        )
        self.janitor = JanitorReconciler(
            client=api,
            trainers=self.trainers,
            pods=self.pods,
            members=self.members,
            events=self.events,
            clock=clock,
            settings=settings,
            authority=lambda: "PEM",
        )
        self.imports = ImportReconciler(
            client=api,
            trainers=self.trainers,
            checkpoints=self.checkpoints,
            members=self.members,
            events=self.events,
            clock=clock,
            call_janitor=lambda key: None,
        )
        self.deletion = DeletionReconciler(
            client=api,
            trainers=self.trainers,
            checkpoints=self.checkpoints,
            pods=self.pods,
            members=self.members,
            events=self.events,
            clock=clock,
            call_janitor=lambda key: None,
            namespace_ends=self.janitor.is_refused,
        )

    def _watch_pod_groups(self, api, kind):
        cache = Cached(api, kind)
        self.barriers[kind] = Barrier(cache, clock=api.clock)
        return cache


@dataclass
class Agent:
    """An agent with its process; it outlives the operator."""

    member: MemberId
    attempt: int
    pod: str
    name: str
    boot: str
    seq: int = 0
    epoch: int = 0
    ps_epoch: int = 0
    world: int = 0
    run: int = 0
    prepared: int = 0
    proc: str = "none"
    exit: Exit | None = None
    step: int = 0
    phase: str = "init"
    target: dict | None = None
    paused: bool = False
    soft: bool = False
    pause_at: int | None = None
    reads: str = ""
    """Id of the checkpoint that its process has not read in full yet."""
    reads_for: int = 0
    acks: list[Ack] = field(default_factory=list)
    results: dict[str, DirectiveResult] = field(default_factory=dict)

    def beat(self, uid):
        self.seq += 1
        return Beat(
            v=1,
            trainer=str(KEY),
            tuid=uid,
            pod=self.pod,
            role=self.member.role,
            idx=self.member.index,
            attempt=self.attempt,
            boot=self.boot,
            seq=self.seq,
            epoch=self.epoch,
            ps_epoch=self.ps_epoch,
            run=self.run,
            address=f"10.0.0.{self.member.index}",
            port=30000,
            proc=self.proc,
            exit=self.exit,
            prepared=self.prepared,
            step=self.step,
            phase=self.phase,
            dt_ms=[1000.0],
            data_epoch=self.step // STEPS_PER_EPOCH,
            acks=list(self.acks),
            results=list(self.results.values()),
            soft_epochs=self.soft and self.proc == "running",
        )

    @property
    def stands(self):
        """Whether it waits after the step at which it was told to pause."""
        return self.pause_at is not None and self.step >= self.pause_at


class Training:
    """What agents and their processes do, and the checkpoint store; it outlives every operator."""

    def __init__(self, *, epochs, soft=False, reading=0):
        self.soft = soft
        self.reading = reading
        """Seconds for which a process reads the checkpoint that it starts from."""
        self.agents: dict[str, Agent] = {}
        self.store: dict[str, str] = {}
        self.told: dict[str, set[str]] = {}
        """Per checkpoint, the outcomes that agents were told."""
        self.collected: set[str] = set()
        self.timelines: list[dict] = []
        self.timeline_of: dict[str, int] = {}
        self.trained: list[tuple[int, int]] = []
        self.serial = 0
        self.total = epochs * STEPS_PER_EPOCH

    @property
    def step(self):
        return max((step for _, step in self.trained), default=0)

    def crash(self, member):
        for agent in self.agents.values():
            if agent.member == member and agent.proc == "running":
                return self._exit(agent, Exit(code=1))
        return False

    def start_agent(self, pod):
        """Start the agent of a pod, as the kubelet does."""
        metadata = pod["metadata"]
        labels = metadata["labels"]
        member = MemberId(labels[ROLE_LABEL], int(labels[INDEX_LABEL]))
        self.serial += 1
        agent = Agent(
            member, int(labels[ATTEMPT_LABEL]), metadata["uid"], metadata["name"], f"boot{self.serial}"
        )
        agent.soft = self.soft
        self.agents[agent.pod] = agent
        return agent

    def hear(self, agent, reply):
        """Carry out what the operator answered to a beat."""
        for ckpt, outcome in reply["decided"].items():
            self.told.setdefault(ckpt, set()).add(outcome)
            agent.acks = [ack for ack in agent.acks if ack.ckpt != ckpt]
        for directive in reply["directives"]:
            result = self._obey(agent, directive["kind"], directive["args"])
            if result is not None:
                value = result if isinstance(result, dict) else None
                error = result if isinstance(result, str) and result else None
                agent.results[directive["id"]] = DirectiveResult(
                    directive["id"], ok=error is None, value=value, error=error
                )
        listed = {directive["id"] for directive in reply["directives"]}
        agent.results = {
            key: result for key, result in agent.results.items() if key in listed or len(agent.results) < 32
        }
        if reply["close"] and agent.proc != "running":
            del self.agents[agent.pod]

    def _obey(self, agent, kind, args):
        """Carry out a directive; an empty string is success without a value, None is not yet."""
        match kind:
            case "Prepare":
                agent.proc, agent.exit, agent.phase = "none", None, "rendezvous"
                agent.prepared, agent.target, agent.paused = args["epoch"], None, False
                agent.pause_at = None
            case "Go" if agent.proc == "running" and agent.epoch == args["epoch"]:
                return ""
            case "Go" if args.get("join"):
                agent.proc, agent.exit, agent.phase = "running", None, "rendezvous"
                agent.run += 1
                agent.epoch, agent.ps_epoch, agent.step = args["epoch"], args["psEpoch"], 0
            case "Pause":
                agent.pause_at = args["step"]
            case "Resume":
                agent.pause_at, agent.phase = None, "train"
            case "UpdatePS":
                agent.phase, agent.step, agent.ps_epoch = "train", args["step"], args["psEpoch"]
                agent.epoch = agent.prepared = max(agent.epoch, args.get("epoch", 0))
                agent.world = args.get("world", agent.world)
            case "Drain":
                if args["pod"] != agent.pod:
                    return "meant for another pod"  # its predecessor, which had not answered yet
                if agent.proc == "running":
                    self._exit(agent, Exit(code=143, sig=15), phase="draining")
            case "Go":
                agent.proc, agent.exit, agent.phase = "running", None, "train"
                agent.run += 1
                agent.epoch, agent.ps_epoch, agent.world = args["epoch"], args["psEpoch"], args["world"]
                agent.step = args["restoreStep"]
                restore = args["restore"]
                agent.reads, agent.reads_for = (restore or {}).get("ckpt", ""), self.reading
                self._read(agent)
            case "Checkpoint":
                if agent.target is not None and agent.target["ckpt"] == args["ckpt"]:
                    return "" if any(ack.ckpt == args["ckpt"] for ack in agent.acks) else None
                if agent.proc == "running" and agent.step > args["step"]:
                    return "past"
                agent.target = args
                if agent.proc != "running":
                    self._fail(agent)
                    return "no process"
                self._save(agent)
                return None
            case "Store":
                return self._store(args)
        return ""

    def _store(self, args):
        if args["op"] == "purge":
            self.collected |= set(self.store)
            return {"deleted": len(self.store), "left": []}
        if args["op"] == "timeline":
            taken = [entry["number"] for entry in self.timelines]
            mine = next((each["number"] for each in self.timelines if each["nonce"] == args["nonce"]), None)
            number = mine or max([args["after"], *taken]) + 1
            if mine is None:
                self.timelines.append(
                    {**{name: args[name] for name in ("parent", "step", "nonce")}, "number": number}
                )
            return {"number": number}
        if args["op"] == "inventory":
            return self._inventory(args["after"])
        ckpt = args["ckpt"]
        if args["op"] == "collect":
            self.collected.add(ckpt)
            return {"deleted": 1}
        if ckpt not in self.store:
            self.timeline_of[ckpt] = args.get("timeline", 0)
        outcome = self.store.setdefault(ckpt, args["outcome"])
        return {"outcome": outcome, "reason": args["reason"], "bytes": 2048, "copies": {"0": [0]}}

    def _inventory(self, after):
        """List one a page: what is committed and was not collected."""
        ids = [ckpt for ckpt in sorted(self.store) if ckpt > after][:1]
        found = [
            {
                "id": ckpt,
                "step": int(ckpt[:12]),
                "epoch": 1,
                "timeline": self.timeline_of[ckpt],
                "bytes": 2048,
                "digest": "d",
                "shards": 1,
                "copies": 1,
            }
            for ckpt in ids
            if self.store[ckpt] == "commit" and ckpt not in self.collected
        ]
        return {
            "storeId": "s",
            "timelines": self.timelines,
            "found": found,
            "last": ids[-1] if ids else "",
        }

    def _save(self, agent):
        target = agent.target
        if (
            target is None
            or agent.step != target["step"]
            or any(a.ckpt == target["ckpt"] for a in agent.acks)
        ):
            return
        agent.acks += [
            Ack(target["ckpt"], target["shard"], copy, bytes=1024, step=agent.step)
            for copy in target["copies"]
        ]
        agent.paused = bool(target["pause"])

    def _exit(self, agent, how, *, phase="done"):
        agent.proc, agent.exit, agent.phase = "exited", how, phase
        self._fail(agent)
        return True

    def _fail(self, agent):
        """Report that no copy of what was asked for will come, unless it is there."""
        target = agent.target
        if target is not None and not any(ack.ckpt == target["ckpt"] for ack in agent.acks):
            agent.acks += [
                Ack(target["ckpt"], target["shard"], copy, ok=False, error="the process ended")
                for copy in target["copies"]
            ]

    def _read(self, agent):
        """Read on in the checkpoint that the process starts from; it must stay until all of it is read (IV12).

        A process of an epoch that is over reads without a pin, until it hears that it has to end.
        """
        if agent.proc != "running" or not agent.reads:
            return
        assert self.store.get(agent.reads) == "commit", "restored what is not there"
        is_there = agent.reads not in self.collected
        assert is_there or agent.epoch < self.status.membership.epoch, "what is read was collected"
        agent.phase = "rendezvous" if agent.reads_for else "train"
        if not agent.reads_for:
            agent.reads = ""
        agent.reads_for -= 1

    def train(self):
        """All processes of the newest epoch take one step together, or none does."""
        for agent in self.agents.values():
            self._read(agent)
        running = [agent for agent in self.agents.values() if agent.proc == "running"]
        epoch = max((agent.epoch for agent in running), default=0)
        group = [agent for agent in running if agent.epoch == epoch and agent.phase != "rendezvous"]
        trainers = [agent for agent in group if agent.member.role != "ps"]
        for agent in group:
            if agent.stands:
                agent.phase = "paused"
        if not trainers or len(trainers) < trainers[0].world or any(a.paused or a.stands for a in group):
            return
        step = max(agent.step for agent in group) + 1
        assert all(agent.step == step - 1 for agent in group), "members of one epoch are at different steps"
        self.trained.append((epoch, step))
        for agent in group:
            agent.step = step
            self._save(agent)
            if step >= self.total:
                self._exit(agent, Exit(code=0))


class World(Training):
    """The API server, two nodes, and whatever runs on them."""

    def __init__(self, *, epochs=2, soft=False, reading=0, **topology):
        super().__init__(epochs=epochs, soft=soft, reading=reading)
        self.clock = SimClock()
        self.api = Api(self.clock)
        self.pod_names: list[str] = []
        for name in ("a", "b"):
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            self.api.log.put(NODES, {"metadata": {"name": name}, "status": ready})
        prepare(self.api)
        spec = {
            "epochs": epochs,
            "image": "image",
            "command": ["train"],
            "topology": {"workers": 2, **topology},
            "checkpoint": {"bucket": "claim", "intervalMinutes": 0.1, "maxRetention": 2},
            "retryPolicy": {"backoffLimit": 3},
        }
        metadata = {"name": KEY.name, "namespace": KEY.namespace, "generation": 1}
        self.uid = self.api.log.put(TRAINERS, {"metadata": metadata, "spec": spec})["metadata"]["uid"]

    # -- reading and changing the API from outside

    @property
    def trainer(self) -> Trainer:
        return Trainer.read(self.api.log.get(TRAINERS, KEY))

    @property
    def status(self):
        return self.trainer.status

    def edit(self, **changes):
        """Change the spec as a user does."""
        found = self.api.log.get(TRAINERS, KEY)
        found["metadata"]["generation"] += 1
        self.api.log.put(TRAINERS, {**found, "spec": {**found["spec"], **changes}})

    def scale(self, workers):
        found = self.api.log.get(TRAINERS, KEY)
        self.edit(topology={**found["spec"]["topology"], "workers": workers})

    def discard(self, checkpoint):
        """Say of a checkpoint that nothing shall be restored from it, as a user does; of None nothing."""
        if checkpoint is not None:
            spec = {**checkpoint["spec"], "discard": True}
            self.api.log.put(CHECKPOINTS, {**checkpoint, "spec": spec})

    def checkpoints(self):
        return self.api.log.objects(CHECKPOINTS)

    def pods(self):
        return self.api.log.objects(PODS)

    # -- faults

    def delete_pod(self, name):
        found = self.api.log.get(PODS, ObjectKey(KEY.namespace, name))
        if found is None:
            return False
        found["metadata"]["deletionTimestamp"] = format_time(self.clock.utcnow())
        self.api.log.put(PODS, found)
        return True

    def fail_pod(self, name):
        """Kill a pod's container for good, as its node tells it: the pod stays, and its agent is gone."""
        found = self.api.log.get(PODS, ObjectKey(KEY.namespace, name))
        if found is None:
            return False
        self.agents.pop(found["metadata"]["uid"], None)
        state = {"terminated": {"exitCode": 137, "reason": "Error"}}
        status = {"phase": "Failed", "containerStatuses": [{"name": "trainer", "state": state}]}
        self.api.log.put(PODS, {**found, "status": status})
        return True

    # -- what kubelets and agents do in a second

    def tick(self, operator: Operator, seconds=1.0):
        self.clock.advance(seconds)
        for pod in self.pods():
            self._kubelet(pod)
        for agent in list(self.agents.values()):
            self._report(operator.members, agent)
        self.train()

    def _kubelet(self, pod):
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        phase = pod.get("status", {}).get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            self.agents.pop(uid, None)
            self.api.log.delete(PODS, key_of(pod))
        elif phase is None:
            self.pod_names.append(name)
            node = "ab"[self.start_agent(pod).member.index % 2]
            running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            self.api.log.put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": running})
        elif phase == "Running" and uid not in self.agents:
            self.api.log.put(PODS, {**pod, "status": {"phase": "Succeeded"}})

    def _report(self, members, agent):
        beat = agent.beat(self.uid)
        if members.accept(beat):
            self.hear(agent, members.reply(beat.training, agent.member, term=0))


async def run(world, *, script=(), at_most=300, operators=None):
    """Reconcile and tick until the Trainer has ended and come to rest; `script` holds (when, act) pairs.

    Returns the operators that led, one after the other.
    """
    operators = operators if operators is not None else [Operator(world)]
    waiting = list(script)
    for _ in range(at_most):
        if waiting and waiting[0][0](world):
            waiting.pop(0)[1](world)
        await one_pass(world, operators)
        world.tick(operators[-1])
        if world.status.phase in ("Succeeded", "Failed") and not world.agents and not waiting:
            return operators
    raise AssertionError(f"not at its end: {world.status.dump()}")


async def one_pass(world, operators):
    """Reconcile everything once; a process that died is followed by another."""
    operator = operators[-1]
    keys = [(operator.checkpoint, key_of(checkpoint)) for checkpoint in world.checkpoints()]
    for reconciler, key in [
        (operator.trainer, KEY),
        *keys,
        (operator.deletion, KEY),
        (operator.imports, KEY),
        (operator.janitor, KEY),
        (operator.recording, KEY),
    ]:
        try:
            await reconciler.reconcile(request(key))
        except RuntimeFault:
            continue  # the controller would call again after a backoff
        except (Killed, ExceptionGroup):
            assert world.api.dead
        if world.api.dead:
            world.api.dead, world.api.kill_at = False, None
            operators.append(Operator(world))
            return
