"""Notifications of a decision: what it changes is put into the outbox, stored with it, and sent later (NT3). Pure."""

from trainer_operator.api.meta import condition_of
from trainer_operator.notify import routes
from trainer_operator.notify.outbox import Outbox
from trainer_operator.notify.triggers import Trigger, happenings
from trainer_operator.trainer.draft import Draft, EmitEvent


def follow(draft: Draft) -> None:
    """Bring the outbox up to date with the whole decision."""
    trainer, services, status = draft.observed.trainer, draft.observed.services, draft.status
    _tell_fault(draft)
    wanted = routes.routed(trainer.spec.notifications, services)
    if not wanted and not status.outbox and not status.told:
        return
    outbox = Outbox(status.outbox, status.told)
    uid = trainer.metadata.uid
    for notice, why in outbox.settle(uid, services.settled):
        text = f"the message {notice.trigger} to service {notice.service} was given up: {why}"
        draft.event("NotificationDropped", text, warning=True)
    outbox.keep_services(services.names)
    damaged = [
        (each.name, each.step) for each in draft.observed.checkpoints if _is_damaged(each.state, each.health)
    ]
    outbox.keep_subjects(Trigger.CHECKPOINT_DAMAGED, [name for name, _ in damaged])
    if wanted:
        events = [(each.reason, each.message) for each in draft.actions if isinstance(each, EmitEvent)]
        for happening in happenings(
            trainer.status,
            status,
            generation=trainer.metadata.generation or 0,
            events=events,
            damaged=damaged,
        ):
            outbox.add(happening, wanted, draft.observed.now)
    for notice in outbox.crowded_out:
        text = f"the message {notice.trigger} to service {notice.service} was given up: too many wait"
        draft.event("NotificationDropped", text, warning=True)
    status.outbox, status.told = outbox.lines()


def row(draft: Draft) -> tuple[str, bool | None, str, str] | None:
    """Return the row of condition NotificationsRouted; None where nothing was ever wrong."""
    fault = routes.fault(draft.observed.trainer.spec.notifications, draft.observed.services)
    if fault:
        return (routes.CONDITION, False, routes.REASON, fault)
    told = condition_of(draft.status.conditions, routes.CONDITION)
    return (routes.CONDITION, True, "Routed", "") if told is not None else None


def _tell_fault(draft: Draft) -> None:
    """Record an Event when the fault is new or another one (EV1)."""
    now, before = (
        condition_of(status.conditions, routes.CONDITION)
        for status in (draft.status, draft.observed.trainer.status)
    )
    if now is not None and now.reason == routes.REASON and (before is None or before.message != now.message):
        draft.event(routes.REASON, now.message, warning=True)


def _is_damaged(state: str, health: str) -> bool:
    return state == "Committed" and health == "Corrupt"
