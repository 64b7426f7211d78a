"""The Trainer reconciler: one pass is observe, decide, write the status, tell the agents, act.

Reads come from caches. After a write the caches lag, so the newest Trainer that we wrote ourselves is preferred, and
a pass waits until the pod cache has seen our own creates and deletes (R2).
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from pydantic import ValidationError

from runtime.cache.index import OWNER_UID
from runtime.cache.projection import Pod
from runtime.client.errors import Conflict, NotFound
from runtime.clock import Clock
from runtime.controller.reconciler import Request, Result
from runtime.objects import ObjectKey, resource_version_of, uid_of
from runtime.resourceversion import compare
from trainer_operator.api.profile import TrainingProfile, TrainingProfileSpec
from trainer_operator.api.status import AT_REST
from trainer_operator.api.timelines import current_path
from trainer_operator.api.trainer import Trainer
from trainer_operator.images import EntryPoint
from trainer_operator.notify.notifier import Notices
from trainer_operator.telemetry.metrics import TrainerMetrics
from trainer_operator.topology.forest import Forest
from trainer_operator.topology.members import Members
from trainer_operator.trainer.apply import Applier
from trainer_operator.trainer.chronicle import Chronicle
from trainer_operator.trainer.decide import Decision, decide, is_ours
from trainer_operator.trainer.entrypoint import images_to_read
from trainer_operator.trainer.levelmap import LevelMap
from trainer_operator.trainer.levels import BUILT_IN, Level
from trainer_operator.trainer.membership import ACTIVE, RECOVERING, desired_members
from trainer_operator.trainer.news import is_news
from trainer_operator.trainer.notebook import view as notebook_view
from trainer_operator.trainer.observe import checkpoint_view, pods_by_member
from trainer_operator.trainer.phase import is_terminal
from trainer_operator.trainer.podgroups import PodGroups
from trainer_operator.trainer.proximity import awaited_label, must_resolve
from trainer_operator.trainer.ranges import parse_members
from trainer_operator.trainer.surroundings import Cache, Surroundings
from trainer_operator.trainer.unreadable import Unreadable, is_said, read_trainer, status_with_condition
from trainer_operator.trainer.views import Observed, Settings

SOURCE = "trainer"
BARRIER_RETRY = 0.1
"""What is waited for queues a look itself; this is for what never comes."""
KEPT = 128
"""So many Trainers that were written last are not read again when they come back from the API server."""
_log = structlog.get_logger("trainer")


class TrainerReconciler:
    """Brings each Trainer to what its spec asks for.

    Guarantees: status is stored before any action it allows; an undisturbed Trainer without progress costs no
    request; an object that cannot be read is told so once per generation, and nothing else is done with it.
    """

    def __init__(
        self,
        *,
        trainers: Cache[Mapping[str, Any]],
        profiles: Cache[Mapping[str, Any]],
        checkpoints: Cache[Mapping[str, Any]],
        pods: Cache[Pod],
        surroundings: Surroundings,
        members: Members,
        forest: Forest,
        applier: Applier,
        clock: Clock,
        settings: Settings,
        led_since: Callable[[], float],
        caught_up: Callable[[str], bool],
        rng: random.Random,
        metrics: TrainerMetrics,
        entry_point: Callable[[str, ObjectKey], EntryPoint | str | None],
        level_map: LevelMap,
        pod_groups: PodGroups,
        notebook_refusal: Callable[[str], str],
        chronicle: Chronicle,
        notices: Notices,
    ) -> None:
        self._trainers = trainers
        self._profiles = profiles
        self._checkpoints = checkpoints
        self._pods = pods
        self._surroundings = surroundings
        self._members = members
        self._forest = forest
        self._applier = applier
        self._clock = clock
        self._settings = settings
        self._led_since = led_since
        self._caught_up = caught_up
        self._rng = rng
        self._metrics = metrics
        self._entry_point = entry_point
        self._level_map = level_map
        self._pod_groups = pod_groups
        self._notebook_refusal = notebook_refusal
        self._chronicle = chronicle
        self._notices = notices
        self._written: dict[ObjectKey, Trainer] = {}
        self._uids: dict[ObjectKey, str] = {}
        self._stored_at: dict[ObjectKey, float] = {}
        self._complaints: dict[ObjectKey, tuple[Any, str]] = {}
        """Of Trainers that cannot be read, what was said last, and of which generation."""
        self._silent = False

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one Trainer."""
        cached = self._trainers.get(request.key)
        if cached is not None and not self._caught_up(uid_of(cached)):
            return Result(requeue_after=BARRIER_RETRY)  # first, since it is cheaper than to read a Trainer
        trainer = self._read(request.key, cached)
        if isinstance(trainer, Unreadable):
            await self._complain(request.key, trainer)
            return None
        if trainer is None or not is_ours(trainer):
            return None
        if trainer.metadata.deletion_timestamp is not None:
            self._members.close(trainer.metadata.uid)
            return None
        if not await self._pod_groups.is_ready(trainer):
            return Result(requeue_after=BARRIER_RETRY)
        levels = await self._level_map.read() if must_resolve(trainer) else BUILT_IN
        observed = self._observe(trainer, levels)
        decision = decide(observed)
        stored, wait = await self._store(request.key, trainer, decision, has_pods=bool(observed.pods))
        self._chronicle.follow(stored, decision.actions)
        self._notices.offer(stored)
        self._grow(stored, decision)
        self._tell(stored, decision, observed)  # first: a pod that is created must hear of its own epoch only
        await self._applier.actions(stored, decision.actions)
        wakes = [wake for wake in (decision.wake, wait) if wake is not None]
        return Result(requeue_after=max(0.0, min(wakes))) if wakes else None

    def _read(self, key: ObjectKey, cached: Mapping[str, Any] | None) -> Trainer | Unreadable | None:
        uid = uid_of(cached) if cached is not None else ""
        if self._uids.get(key, uid) != uid:
            gone = self._uids.pop(key)  # it is gone, or another one has its name
            self._forest.drop(gone)
            self._members.end(gone)
            self._applier.forget(gone)
            self._chronicle.forget(gone)
            self._notices.forget(gone)
            self._stored_at.pop(key, None)
            self._complaints.pop(key, None)
        if cached is None:
            self._written.pop(key, None)
            return None
        self._uids[key] = uid
        written = self._written.get(key)
        if written is not None and written.metadata.uid == uid:
            order = compare(written.metadata.resource_version or "", resource_version_of(cached))
            if order == 0 and len(self._written) > KEPT:
                del self._written[key]
            if order in {0, 1}:
                return written
        self._written.pop(key, None)
        return read_trainer(cached)

    def _observe(self, trainer: Trainer, levels: tuple[Level, ...] | str) -> Observed:
        uid, namespace = trainer.metadata.uid, trainer.metadata.namespace or ""
        pods = pods_by_member(self._pods.by_index(OWNER_UID, uid), uid)
        old = {each.node for each in trainer.status.old_pods}
        path = current_path(trainer.status.timelines)
        wanted = {pod.node for views in pods.values() for pod in views if pod.node} | old
        return Observed(
            trainer=trainer,
            profile=self._profile(namespace, trainer.spec.profile),
            pods=pods,
            agents=self._members.view(uid),
            nodes=self._surroundings.nodes(wanted if not trainer.status.excluded_nodes else None)
            if wanted
            else {},
            has_service=self._surroundings.has_service(uid),
            pod_group=self._pod_groups.find(uid),
            pod_groups_fault=self._pod_groups.fault(trainer),
            notebook=notebook_view(self._pods.by_index(OWNER_UID, uid), uid)
            if trainer.spec.notebook
            else None,
            notebook_refusal=self._notebook_refusal(uid),
            claims=self._surroundings.claims(uid) if trainer.spec.topology.storage is not None else (),
            services=self._notices.services(uid),
            attachments=self._surroundings.attachments(old) if old else {},
            checkpoints=tuple(checkpoint_view(c, path) for c in self._checkpoints.by_index(OWNER_UID, uid)),
            entry_points=self._entry_points(trainer),
            levels=levels,
            node_labels=self._surroundings.node_labels() if must_resolve(trainer) else frozenset(),
            domains=self._surroundings.domains(label) if (label := awaited_label(trainer)) else {},
            now=self._clock.utcnow(),
            heartbeat=self._members.heartbeat,
            led_for=self._clock.monotonic() - self._led_since(),
            calm_for=self._forest.calm_for(uid),
            mass_silence=self._mass_silence(),
            chance=self._rng.random(),
            settings=self._settings,
        )

    def _entry_points(self, trainer: Trainer) -> dict[str, EntryPoint | str]:
        key = ObjectKey(trainer.metadata.namespace or "", trainer.metadata.name)
        found = {image: self._entry_point(image, key) for image in sorted(images_to_read(trainer))}
        return {image: outcome for image, outcome in found.items() if outcome is not None}

    def _mass_silence(self) -> bool:
        silent = self._members.mass_silence(self._settings.lost_window(self._members.heartbeat))
        if silent != self._silent:
            self._silent = silent
            if silent:
                _log.error("MassSilence: most agents are silent at once, so only pods and nodes are believed")
            else:
                _log.info("agents are heard again")
        self._metrics.mass_silence(silent)
        return silent

    def _grow(self, trainer: Trainer, decision: Decision) -> None:
        membership = decision.status.membership
        self._forest.feed(
            trainer.metadata.uid,
            decision.inputs,
            causes=decision.causes,
            members=desired_members(trainer) | parse_members(membership.members),
            active=membership.phase == ACTIVE and membership.ps_phase != RECOVERING,
        )

    def _profile(self, namespace: str, name: str | None) -> TrainingProfileSpec | None:
        if name is None:
            return None
        found = self._profiles.get(ObjectKey(namespace, name))
        try:
            return TrainingProfile.read(found).spec if found is not None else None
        except ValidationError as error:
            _log.error("profile is not readable", namespace=namespace, profile=name, problem=str(error))
            return None

    async def _store(
        self, key: ObjectKey, trainer: Trainer, decision: Decision, *, has_pods: bool
    ) -> tuple[Trainer, float | None]:
        """Store the status if it is news; counts and progress wait for their turn (ST7), but none that is the last."""
        if trainer.status == decision.status:
            return trainer, None
        before, after = trainer.status.dump(), decision.status.dump()
        if before == after:
            return trainer, None
        if not decision.actions and not is_news(before, after):
            due = self._stored_at.get(key, -1e9) + self._settings.status_interval - self._clock.monotonic()
            is_last = is_terminal(decision.status) or (decision.status.phase in AT_REST and not has_pods)
            if due > 0 and not is_last:
                return trainer.model_copy(update={"status": decision.status}), due
        try:
            stored = await self._applier.status(trainer, after)
        except (Conflict, NotFound):
            self._written.pop(key, None)
            raise
        self._stored_at[key] = self._clock.monotonic()
        self._written[key] = stored
        self._metrics.stored(key.namespace, trainer.status, stored.status)
        return stored, None

    async def _complain(self, key: ObjectKey, found: Unreadable) -> None:
        """Say that a Trainer cannot be read, unless it was said of this generation, by whichever operator."""
        said = (found.stored["metadata"].get("generation"), found.fault)
        if not found.is_ours or self._complaints.get(key) == said:
            return
        if not is_said(found):
            _log.error("trainer is not readable", trainer=str(key), problem=found.fault)
            await self._applier.complain(found, status_with_condition(found, now=self._clock.utcnow()))
        self._complaints[key] = said

    def _tell(self, trainer: Trainer, decision: Decision, observed: Observed) -> None:
        uid, status = trainer.metadata.uid, decision.status
        self._members.declare(uid, SOURCE, decision.directives, epoch=status.membership.epoch)
        if is_terminal(status):
            return
        if status.phase == "Suspended":
            if not observed.pods:
                self._members.drop(uid)
            return
        desired = desired_members(trainer)
        for member in self._members.view(uid):
            if member not in desired and member not in observed.pods:
                self._members.forget_member(uid, member)
