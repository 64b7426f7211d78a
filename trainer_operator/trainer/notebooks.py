"""The notebook reconciler: one pod for each running Trainer that asks for a notebook.

It has a controller of its own, so that nothing of the training waits for what the API server says of this pod. What
must outlast a restart of the operator is the pod; how often it was lost, or refused, is counted anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from runtime.cache.index import OWNER_UID
from runtime.cache.projection import Pod
from runtime.client.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.controller.reconciler import Request, Result
from runtime.objects import PODS, AnyObject, ObjectKey, uid_of
from trainer_operator.api import names
from trainer_operator.api.meta import API_VERSION
from trainer_operator.api.trainer import Trainer, readable
from trainer_operator.trainer.apply import EventSink
from trainer_operator.trainer.notebook import (
    STEADY,
    Move,
    free_name,
    next_move,
    notebook_manifest,
    pause_after,
    pods_of,
)
from trainer_operator.trainer.surroundings import Cache
from trainer_operator.trainer.views import Settings

_log = structlog.get_logger("notebook")


@dataclass(slots=True)
class _Past:
    """What is remembered of a Trainer's notebook, for as long as this process leads."""

    pod: str = ""
    """Name of the pod that lived when it was last looked at, unless we sent it away."""
    sent_away: frozenset[str] = frozenset()
    """Uids of pods that we deleted, while the cache shows them."""
    ready_since: float | None = None
    losses: int = 0
    refusals: int = 0
    not_before: float = 0.0
    refusal: str = ""


class NotebookReconciler:
    """Keeps the notebook pod of each Trainer.

    Guarantees: no request for a Trainer without a notebook, nor while its pod is as it should be; after losses and
    refusals at most one try in `pause_after` seconds.
    """

    def __init__(
        self,
        *,
        client: Client,
        trainers: Cache[Mapping[str, Any]],
        pods: Cache[Pod],
        events: EventSink,
        clock: Clock,
        settings: Settings,
        look_at_trainer: Callable[[ObjectKey], None],
    ) -> None:
        self._client = client
        self._trainers = trainers
        self._pods = pods
        self._events = events
        self._clock = clock
        self._settings = settings
        self._look_at_trainer = look_at_trainer
        self._past: dict[str, _Past] = {}
        self._uids: dict[ObjectKey, str] = {}

    def refusal(self, uid: str) -> str:
        """Return why the API server takes no pod for this Trainer; empty where it does."""
        past = self._past.get(uid)
        return past.refusal if past is not None else ""

    async def reconcile(self, request: Request) -> Result | None:
        """Make one pass over one Trainer."""
        cached = self._trainers.get(request.key)
        uid = self._follow(request.key, cached)
        if cached is None:
            return None
        pods = pods_of(self._pods.by_index(OWNER_UID, uid), uid)
        if not pods and not has_notebook(cached):  # nearly all, so the Trainer is read after this
            self._past.pop(uid, None)
            return None
        trainer = readable(cached)
        if trainer is None:
            return None
        past, now = self._past.setdefault(uid, _Past()), self._clock.monotonic()
        past.sent_away &= {pod.uid for pod in pods}
        living = [pod for pod in pods if not pod.is_deleting and pod.uid not in past.sent_away]
        self._note(trainer, past, living, now)
        move = next_move(trainer, living, pause=past.not_before - now)
        if move.act == "delete":
            await self._delete(trainer, past, move)
        elif move.act == "create":
            await self._create(request.key, trainer, past, free_name(trainer, pods))
        again = past.not_before - now if past.refusal and move.act == "create" else move.again
        return Result(requeue_after=again) if again is not None else None

    def _follow(self, key: ObjectKey, cached: Mapping[str, Any] | None) -> str:
        """Return the uid of the Trainer of this name, and forget another one that had it."""
        uid = uid_of(cached) if cached is not None else ""
        if self._uids.get(key, uid) != uid:
            self._past.pop(self._uids.pop(key), None)
        if cached is not None:
            self._uids[key] = uid
        return uid

    def _note(self, trainer: Trainer, past: _Past, living: list[Pod], now: float) -> None:
        """Remember the pod that lives, and count it when the last one went without us."""
        steady = past.ready_since is not None and now - past.ready_since >= STEADY
        kept = next((pod for pod in living if not pod.is_terminal), None)
        if past.pod and (kept is None or kept.name != past.pod):
            ended = next((pod for pod in living if pod.name == past.pod), None)
            past.losses = 1 if steady else past.losses + 1
            past.not_before = now + pause_after(past.losses)
            why = (ended.status.reason or ended.phase) if ended is not None else "deleted"
            wait = f" in {pause_after(past.losses):.0f} s" if past.losses > 1 else ""
            message = f"pod {past.pod} was lost ({why}), and its kernels with it; another one comes{wait}"
            self._event(trainer, "NotebookLost", message)
            past.pod, past.ready_since = "", None
        if kept is not None:
            past.pod = kept.name
            if not kept.is_ready:
                past.ready_since = None
            elif past.ready_since is None:
                past.ready_since = now

    async def _delete(self, trainer: Trainer, past: _Past, move: Move) -> None:
        for pod in move.pods:
            if pod.name == past.pod:
                past.pod, past.ready_since = "", None
            try:
                await self._client.delete(PODS, pod.name, trainer.metadata.namespace, uid=pod.uid)
            except (NotFound, Conflict):
                pass  # it is gone, or another one has its name by now
            past.sent_away |= {pod.uid}

    async def _create(self, key: ObjectKey, trainer: Trainer, past: _Past, name: str) -> None:
        asked, namespace = trainer.spec.notebook, trainer.metadata.namespace or ""
        if asked is None:
            return
        manifest = notebook_manifest(trainer, asked, name, self._settings)
        said, refusal = past.refusal, ""
        try:
            await self._client.create(PODS, manifest, namespace=namespace)
        except AlreadyExists:
            refusal = await self._whose(trainer, name)
        except (BadRequest, Forbidden, Invalid) as error:
            if error.has_cause("NamespaceTerminating"):
                _log.info("no notebook in a namespace that is being deleted", namespace=namespace)
                return
            refusal = f"the API server refuses pod {name}: {error.message}"[:512]
        past.refusal = refusal
        if refusal:
            past.refusals += 1
            past.not_before = self._clock.monotonic() + pause_after(past.refusals + 1)
        else:
            past.refusals = 0
        if refusal != said:
            self._look_at_trainer(key)

    async def _whose(self, trainer: Trainer, name: str) -> str:
        """Say that a pod of somebody else has the name; empty when it is ours, and the cache is behind."""
        try:
            found = await self._client.get(PODS, name, trainer.metadata.namespace)
        except NotFound:
            return ""  # its deletion is on its way to the cache, and brings the next pass
        owners = found["metadata"].get("ownerReferences") or ()
        if any(owner.get("controller") and owner.get("uid") == trainer.metadata.uid for owner in owners):
            return ""
        return f"pod {name} exists and belongs to somebody else; delete or rename it"

    def _event(self, trainer: Trainer, reason: str, message: str) -> None:
        reference = {"apiVersion": API_VERSION, "kind": "Trainer", "metadata": trainer.metadata.dump()}
        self._events.event(reference, type="Warning", reason=reason, message=message[:1024])


def has_notebook(trainer: Mapping[str, Any]) -> bool:
    """Whether a Trainer, as the API server has it, asks for a notebook."""
    return (trainer.get("spec") or {}).get("notebook") is not None


def concerns_notebook(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only changes pass that can make or end a notebook: of the spec, the phase, or whether it is there."""
    states = [_state(each) for each in (old, new)]
    return any(state is not None and state[0] for state in states) and states[0] != states[1]


def _state(trainer: AnyObject | None) -> tuple[Any, ...] | None:
    if not isinstance(trainer, Mapping):
        return None
    metadata = trainer["metadata"]
    status = trainer.get("status") or {}
    phases = status.get("phase"), (status.get("membership") or {}).get("phase")
    return has_notebook(trainer), metadata.get("generation"), phases, metadata.get("deletionTimestamp")


def is_notebook(old: AnyObject | None, new: AnyObject | None) -> bool:
    """Let only notebook pods pass."""
    pod = new or old
    return isinstance(pod, Pod) and pod.labels.get(names.ROLE_LABEL) == names.NOTEBOOK_ROLE
