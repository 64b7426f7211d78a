"""The operator's one process: which controllers it hosts, what feeds them, and what it serves.

Assembly only. Every part gets what it needs here, from one manager; nothing is global.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtime.cache.barrier import Barrier
from runtime.cache.index import OWNER_UID
from runtime.cache.informer import Informer
from runtime.cache.projection import Node, PartialObject, Pod
from runtime.client.config import ClientConfig
from runtime.clock import SystemClock
from runtime.controller import (
    Controller,
    annotations_changed,
    any_of,
    deletion_changed,
    generation_changed,
    owner_of,
)
from runtime.errors import ConfigurationInvalid
from runtime.leaderelection import LeaderElectionConfig
from runtime.manager import Manager
from runtime.objects import (
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    AnyObject,
    JsonObject,
    ObjectKey,
    Resource,
    key_of,
    owner,
    uid_of,
)
from runtime.webhook import CertificateWatcher
from trainer_operator.api.names import JANITOR_ROLE, ROLE_LABEL, TRAINER_LABEL
from trainer_operator.api.resources import CHECKPOINTS, TRAINERS, TRAINING_PROFILES
from trainer_operator.api.trainer import Trainer
from trainer_operator.audit.writer import NAMESPACE, AuditWriter
from trainer_operator.checkpoint.reconciler import CheckpointReconciler
from trainer_operator.checkpoint.scrubs import Prober
from trainer_operator.checkpoint.view import OPEN
from trainer_operator.images import EntryPoints, Registry
from trainer_operator.notify.configuration import Configuration
from trainer_operator.notify.counters import NotifyCounters
from trainer_operator.notify.notifier import NoNotifier, Notices, Notifier
from trainer_operator.notify.services import services_of
from trainer_operator.server.agents import AgentApi
from trainer_operator.server.auth import Authenticator
from trainer_operator.server.https import Authority, HttpsServer
from trainer_operator.server.trees import TreeApi
from trainer_operator.server.users import UserReviewer
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.listening import Listening
from trainer_operator.topology.members import Members
from trainer_operator.trainer.apply import Applier
from trainer_operator.trainer.chronicle import Chronicle
from trainer_operator.trainer.deletions import DeletionReconciler
from trainer_operator.trainer.imports import ImportReconciler
from trainer_operator.trainer.janitors import JanitorReconciler
from trainer_operator.trainer.levelmap import LevelMap
from trainer_operator.trainer.noderecovery import NodeReturn
from trainer_operator.trainer.nodes import (
    LEASE_NAMESPACE,
    VOLUME_ATTACHMENTS,
    NodeLease,
    NodeLeases,
    has_our_taint,
)
from trainer_operator.trainer.notebooks import NotebookReconciler, concerns_notebook, is_notebook
from trainer_operator.trainer.podgroups import PodGroups
from trainer_operator.trainer.reconciler import TrainerReconciler
from trainer_operator.trainer.serving import at_work
from trainer_operator.trainer.surroundings import NODE_INDEX, Surroundings
from trainer_operator.trainer.unreadable import Unreadable, read_trainer
from trainer_operator.trainer.urgency import is_new, pod_patience, trainer_patience
from trainer_operator.trainer.views import Settings
from trainer_operator.trainer.volumes import Attachment, Claim

UID_INDEX = "uid"
COMPONENT = "trainer-operator"
FEW_WORKERS = 4
"""For controllers that seldom have anything to do."""


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """How this process runs."""

    certificates: Path
    """Folder with tls.crt, tls.key and ca.crt."""
    agent_host: str = "0.0.0.0"  # noqa: S104 - agents of every node connect
    agent_port: int = 9443
    health_address: tuple[str, int] | None = ("0.0.0.0", 8081)  # noqa: S104 - kubelet probes it
    leader_election: LeaderElectionConfig | None = None
    workers: int = 16
    audit_namespace: str = NAMESPACE
    """Where the audit trail is kept."""
    registries: tuple[str, ...] = ()
    """Registries inside private networks that may be asked for entry points; `http://` before those without TLS."""
    notifications: Configuration | None = None
    """Services that messages go to; none when absent."""
    settings: Settings = field(default_factory=Settings)


def build(config: ClientConfig, options: OperatorConfig) -> Manager:
    """Put the operator together; nothing runs yet.

    Raises: ConfigurationInvalid when there is no such folder as the certificates'; an empty one is waited for.
    """
    if not options.certificates.is_dir():
        raise ConfigurationInvalid(
            f"there is no folder {options.certificates} for tls.crt and tls.key; name another one with "
            "--certificate-folder"
        )
    clock = SystemClock()
    manager = Manager(
        config,
        leader_election=options.leader_election,
        health_address=options.health_address,
        clock=clock,
        component=COMPONENT,
    )
    informers = manager.informers
    trainers = informers.informer(TRAINERS)
    profiles = informers.informer(TRAINING_PROFILES)
    checkpoints = informers.informer(CHECKPOINTS)
    pods = informers.informer(PODS, labels=TRAINER_LABEL, projection=Pod)
    nodes = informers.informer(NODES, projection=Node)
    claims = informers.informer(PERSISTENT_VOLUME_CLAIMS, labels=TRAINER_LABEL, projection=Claim)
    services = informers.informer(SERVICES, labels=TRAINER_LABEL, projection=PartialObject)
    leases = NodeLeases(clock)  # no controller watches them: renewals wake nobody
    informers.informer(LEASES, namespaces=[LEASE_NAMESPACE], projection=NodeLease).add_handler(leases)
    attachments = (
        informers.informer(VOLUME_ATTACHMENTS, projection=Attachment)
        if options.settings.node_recovery
        else None
    )
    pods.add_index(UID_INDEX, lambda pod: (pod.uid,))
    pods.add_index(NODE_INDEX, lambda pod: (pod.node_name,) if pod.node_name else ())

    members = Members(clock)
    forest = Forest(clock)
    metrics = TrainerMetrics(manager.metrics.registry)
    authority = Authority(options.certificates)
    barriers: dict[Resource, Barrier[str]] = {
        PODS: Barrier(pods, clock=clock),
        CHECKPOINTS: Barrier(checkpoints, clock=clock),
        SERVICES: Barrier(services, clock=clock),
    }

    audit = AuditWriter(manager.client, clock, options.audit_namespace)

    def look_at_trainer(key: ObjectKey) -> None:
        trainer_controller.trigger(key)

    def watch_pod_groups(resource: Resource) -> Informer[JsonObject]:
        groups = informers.informer(resource, labels=TRAINER_LABEL)
        barriers[resource] = Barrier(groups, clock=clock)
        trainer_controller.watch(groups, mapping=owner_of(TRAINERS))
        return groups

    notices = _notifier(manager, options.notifications, wake=look_at_trainer)
    entry_points = EntryPoints(Registry(options.registries), clock, wake=look_at_trainer)
    notebooks = NotebookReconciler(
        client=manager.client,
        trainers=trainers,
        pods=pods,
        events=manager.events,
        clock=clock,
        settings=options.settings,
        look_at_trainer=look_at_trainer,
    )
    trainer_controller = Controller(
        "trainer",
        TrainerReconciler(
            trainers=trainers,
            profiles=profiles,
            checkpoints=checkpoints,
            pods=pods,
            surroundings=Surroundings(
                nodes=nodes,
                pods=pods,
                claims=claims,
                services=services,
                attachments=attachments,
                leases=leases,
                members=members,
            ),
            members=members,
            forest=forest,
            applier=Applier(
                manager.client,
                members,
                manager.events,
                options.settings,
                barriers=barriers,
                authority=authority.pem,
            ),
            clock=clock,
            settings=options.settings,
            led_since=lambda: members.since,
            caught_up=lambda uid: all(barrier.is_open(uid) for barrier in barriers.values()),
            rng=random.Random(),
            metrics=metrics,
            entry_point=entry_points.look_up,
            level_map=LevelMap(
                manager.client,
                clock,
                options.leader_election.namespace if options.leader_election is not None else COMPONENT,
            ),
            pod_groups=PodGroups(manager.client, clock, start=watch_pod_groups),
            notebook_refusal=notebooks.refusal,
            chronicle=Chronicle(audit),
            notices=notices,
        ),
        clock=clock,
        metrics=manager.metrics,
        workers=options.workers,
    )
    janitors = JanitorReconciler(
        client=manager.client,
        trainers=trainers,
        pods=pods,
        members=members,
        events=manager.events,
        clock=clock,
        settings=options.settings,
        authority=authority.pem,
    )
    janitor_controller = Controller(
        "janitor", janitors, clock=clock, metrics=manager.metrics, workers=FEW_WORKERS
    )
    notebook_controller = Controller(
        "notebook", notebooks, clock=clock, metrics=manager.metrics, workers=FEW_WORKERS
    )
    import_controller = Controller(
        "import",
        ImportReconciler(
            client=manager.client,
            trainers=trainers,
            checkpoints=checkpoints,
            members=members,
            events=manager.events,
            clock=clock,
            call_janitor=janitor_controller.trigger,
        ),
        clock=clock,
        metrics=manager.metrics,
        workers=FEW_WORKERS,
    )
    deletion_controller = Controller(
        "deletion",
        DeletionReconciler(
            client=manager.client,
            trainers=trainers,
            checkpoints=checkpoints,
            pods=pods,
            members=members,
            events=manager.events,
            clock=clock,
            call_janitor=janitor_controller.trigger,
            namespace_ends=janitors.is_refused,
        ),
        clock=clock,
        metrics=manager.metrics,
        workers=FEW_WORKERS,
    )

    def look_at_checkpoint(key: ObjectKey) -> None:
        checkpoint_controller.trigger(key)

    checkpoint_controller = Controller(
        "checkpoint",
        CheckpointReconciler(
            client=manager.client,
            checkpoints=checkpoints,
            trainers=trainers,
            members=members,
            events=manager.events,
            clock=clock,
            look_again=look_at_checkpoint,
            members_of=at_work,
            call_janitor=janitor_controller.trigger,
            metrics=metrics,
        ),
        clock=clock,
        metrics=manager.metrics,
        workers=options.workers,
    )

    prober_controller = Controller(
        "prober",
        Prober(
            client=manager.client,
            checkpoints=checkpoints,
            trainers=trainers,
            members=members,
            events=manager.events,
            clock=clock,
            call_janitor=janitor_controller.trigger,
            metrics=metrics,
        ),
        clock=clock,
        metrics=manager.metrics,
        workers=1,
    )

    def trainers_of_profile(profile: AnyObject) -> list[ObjectKey]:
        name = key_of(profile)
        waiting = trainers.list(name.namespace)
        return [key_of(trainer) for trainer in waiting if trainer["spec"].get("profile") == name.name]

    def trainers_on_node(node: AnyObject) -> list[ObjectKey]:
        owners = {
            (pod.namespace, (owner(pod) or {}).get("name", ""))
            for pod in pods.by_index(NODE_INDEX, key_of(node).name)
        }
        return [ObjectKey(namespace, trainer) for namespace, trainer in owners if trainer]

    def open_checkpoints(uid: str) -> list[ObjectKey]:
        return [
            key_of(checkpoint)
            for checkpoint in checkpoints.by_index(OWNER_UID, uid)
            if (checkpoint.get("status") or {}).get("state")
            in {None, *map(str, filter(None, OPEN)), "Committed"}
        ]

    trainer_controller.watch(trainers, patience=trainer_patience, newcomer=is_new)
    trainer_controller.watch(pods, mapping=owner_of(TRAINERS), patience=pod_patience)
    trainer_controller.watch(checkpoints, mapping=owner_of(TRAINERS))
    trainer_controller.watch(services, mapping=owner_of(TRAINERS), predicate=is_gone)
    trainer_controller.watch(profiles, mapping=trainers_of_profile)
    trainer_controller.watch(nodes, mapping=trainers_on_node, predicate=readiness_changed)
    checkpoint_controller.watch(checkpoints)
    prober_controller.watch(checkpoints, mapping=owner_of(TRAINERS))
    prober_controller.watch(trainers, predicate=is_changed_in_spec)
    checkpoint_controller.watch(
        trainers, mapping=lambda trainer: open_checkpoints(uid_of(trainer)), predicate=generation_changed
    )
    janitor_controller.watch(trainers, predicate=appears_or_goes)
    janitor_controller.watch(pods, mapping=owner_of(TRAINERS), predicate=is_janitor)
    notebook_controller.watch(trainers, predicate=concerns_notebook)
    notebook_controller.watch(pods, mapping=owner_of(TRAINERS), predicate=is_notebook)
    manager.add_controller(trainer_controller)
    manager.add_controller(checkpoint_controller)
    manager.add_controller(prober_controller)
    deletion_controller.watch(trainers, predicate=any_of(generation_changed, deletion_changed))
    import_controller.watch(trainers, predicate=annotations_changed)
    manager.add_controller(import_controller)
    manager.add_controller(janitor_controller)
    manager.add_controller(deletion_controller)
    manager.add_controller(notebook_controller)
    if options.settings.node_recovery:
        node_controller = Controller(
            "node",
            NodeReturn(manager.client, nodes, leases),
            clock=clock,
            metrics=manager.metrics,
            workers=1,
        )
        node_controller.watch(nodes, predicate=is_tainted_by_us)
        manager.add_controller(node_controller)

    def on_news(uid: str, name: str) -> None:
        namespace, _, trainer = name.partition("/")
        trainer_controller.trigger(ObjectKey(namespace, trainer))
        prober_controller.trigger(ObjectKey(namespace, trainer))
        for key in open_checkpoints(uid):
            checkpoint_controller.trigger(key)

    members.on_news(on_news)

    async def start_leading() -> None:
        members.restart_grace()

    manager.add_leader_hook(start_leading)
    authenticator = Authenticator(
        manager.client, lambda uid: next(iter(pods.by_index(UID_INDEX, uid)), None), clock
    )
    api = AgentApi(
        members, authenticator, clock, is_leader=lambda: manager.is_leader, term=lambda: 0, metrics=metrics
    )

    def trainer_of(key: ObjectKey) -> Trainer | Unreadable | None:
        found = trainers.get(key)
        return read_trainer(found) if found is not None else None

    trees = TreeApi(
        forest,
        members,
        UserReviewer(manager.client),
        trainer=trainer_of,
        is_leader=lambda: manager.is_leader,
    )
    routes = [*api.routes(), *trees.routes()]
    certificate = CertificateWatcher(
        options.certificates / "tls.crt",
        options.certificates / "tls.key",
        clock=clock,
        metrics=manager.metrics,
    )
    server = HttpsServer(
        options.agent_host, options.agent_port, certificate=certificate, clock=clock, routes=routes
    )
    manager.add_server(server)
    manager.add_runnable(certificate, name="certificate")
    if manager.health is not None:
        manager.health.add_check("agent API", server.check)
    manager.add_runnable(Listening(members, clock=clock), name="listening")
    manager.add_runnable(entry_points, name="entry-points")
    manager.add_runnable(audit, leader_only=True, name="audit")
    return manager


def _notifier(
    manager: Manager, configuration: Configuration | None, *, wake: Callable[[ObjectKey], None]
) -> Notices:
    if configuration is None or not configuration.services:
        return NoNotifier()
    names = [service.name for service in configuration.services]
    notifier = Notifier(
        services_of(configuration),
        defaults=configuration.defaults,
        templates=configuration.words,
        clock=manager.clock,
        counters=NotifyCounters(manager.metrics.registry, names),
        wake=wake,
        is_leader=lambda: manager.is_leader,
    )
    manager.add_runnable(notifier, leader_only=True, name="notifier")
    return notifier


def appears_or_goes(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let Trainers pass that are new to us, were deleted, or are being so."""
    return old is None or new is None


def is_changed_in_spec(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only changes of a spec pass, and deletions."""
    return old is not None and generation_changed(old, new)


def is_gone(_old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only deletions pass."""
    return new is None


def is_janitor(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only janitors' pods pass."""
    pod = new or old
    return isinstance(pod, Pod) and pod.labels.get(ROLE_LABEL) == JANITOR_ROLE


def is_tainted_by_us(_old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only nodes pass that we declared out of service."""
    return isinstance(new, Node) and has_our_taint(new)


def readiness_changed(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only changes of a node's readiness pass: nodes report every few seconds, and nothing follows from it."""
    before = old.is_ready if isinstance(old, Node) else None
    after = new.is_ready if isinstance(new, Node) else None
    return before != after
