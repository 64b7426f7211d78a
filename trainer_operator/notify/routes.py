"""Which service hears of what: the Trainer's routes, or the administrator's when it has none (NT1). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_operator.api.trainer import Notifications
from trainer_operator.notify.triggers import Severity

CONDITION = "NotificationsRouted"
REASON = "NoSuchService"


@dataclass(frozen=True, slots=True)
class Services:
    """What a decision may know of the administrator's configuration, and of what became of earlier messages."""

    names: frozenset[str] = frozenset()
    """Services that exist."""
    defaults: Mapping[str, Severity] = field(default_factory=dict)
    """For Trainers without routes: the least severity that each service hears of."""
    settled: Mapping[str, str] = field(default_factory=dict)
    """Keys of this Trainer's messages that are done with, and why one was given up; empty if it was delivered."""


def routed(wanted: Notifications | None, services: Services) -> Mapping[str, Severity]:
    """Return the least severity that each service hears of; services that don't exist are left out."""
    if wanted is None:
        return services.defaults
    found: dict[str, Severity] = {}
    for route in wanted.routes:
        if route.service in services.names:
            severity = Severity[route.severity]
            found[route.service] = min(severity, found.get(route.service, severity))
    return found


def fault(wanted: Notifications | None, services: Services) -> str:
    """Say which routes name a service that does not exist, and which ones do; empty if all is well."""
    missing = [route for route in (wanted.routes if wanted else ()) if route.service not in services.names]
    if not missing:
        return ""
    named = ", ".join(f"route {route.name} names service {route.service}" for route in missing[:4])
    more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
    there = ", ".join(sorted(services.names)[:32])
    which = f"services are: {there}" if there else "the administrator has configured no service"
    return f"{named}{more}, which does not exist; {which}"
