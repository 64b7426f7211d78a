"""All destinations of this operator, and what became of each Trainer's messages (NT1, NT3)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from runtime.clock import Clock
from runtime.objects import ObjectKey
from runtime.tasks import run_all
from trainer_operator.api.trainer import Trainer
from trainer_operator.notify.counters import NotifyCounters
from trainer_operator.notify.destination import Destination, Limits
from trainer_operator.notify.message import Message, Templates, message
from trainer_operator.notify.outbox import due_times
from trainer_operator.notify.outcome import Send
from trainer_operator.notify.routes import Services
from trainer_operator.notify.triggers import Severity


class Notices(Protocol):
    """What the reconciler needs of the notifier."""

    def services(self, uid: str) -> Services:
        """Return where messages of this Trainer can go, and what became of earlier ones."""

    def offer(self, trainer: Trainer) -> None:
        """Queue what a stored Trainer's outbox holds."""

    def forget(self, uid: str) -> None:
        """Forget a Trainer that no longer exists; what is queued is still sent."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that the administrator configured."""

    name: str
    send: Send
    limits: Limits = field(default_factory=Limits)


class Notifier:
    """Queues messages for each service and sends them in the background, on the leader only.

    Guarantees: `offer` is for any pass of a reconcile, never blocks, and queues a message once.
    """

    def __init__(
        self,
        services: tuple[Service, ...],
        *,
        defaults: Mapping[str, Severity],
        templates: Mapping[str, Templates],
        clock: Clock,
        counters: NotifyCounters,
        wake: Callable[[ObjectKey], None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._base = Services(frozenset(service.name for service in services), defaults)
        self._templates = templates
        self._wake = wake
        self._settled: dict[str, dict[str, str]] = {}
        self._destinations = {
            service.name: Destination(
                service.name,
                service.send,
                limits=service.limits,
                clock=clock,
                counters=counters,
                settle=self._settle,
                is_leader=is_leader,
            )
            for service in services
        }

    def services(self, uid: str) -> Services:
        """Return where messages of this Trainer can go, and what became of earlier ones."""
        settled = self._settled.get(uid)
        return replace(self._base, settled=dict(settled)) if settled else self._base

    def offer(self, trainer: Trainer) -> None:
        """Queue what a stored Trainer's outbox holds, unless it is done with."""
        status, uid = trainer.status, trainer.metadata.uid
        if not status.outbox:
            self._settled.pop(uid, None)
            return
        known = self._settled.get(uid, {})
        waiting = set()
        for notice, due in due_times(status.outbox, status.told):
            key = notice.key(uid)
            waiting.add(key)
            destination = self._destinations.get(notice.service)
            if key not in known and destination is not None:
                destination.offer(message(trainer, notice, due, self._templates))
        for key in known.keys() - waiting:
            known.pop(key, None)

    def forget(self, uid: str) -> None:
        """Forget a Trainer that no longer exists; what is queued is still sent."""
        self._settled.pop(uid, None)

    async def run(self) -> None:
        """Send until cancelled."""
        await run_all(*(destination.run() for destination in self._destinations.values()))

    def _settle(self, done: Message, why: str) -> None:
        self._settled.setdefault(done.uid, {})[done.key] = why
        self._wake(ObjectKey(done.namespace, done.trainer))


class NoNotifier:
    """Stands for the notifier of an operator without services."""

    def services(self, uid: str) -> Services:  # noqa: ARG002 - nothing depends on the Trainer
        """Return that there are none."""
        return _NONE

    def offer(self, trainer: Trainer) -> None:
        """Send nothing."""

    def forget(self, uid: str) -> None:
        """Know nothing."""


_NONE = Services()
