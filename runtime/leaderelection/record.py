"""The Lease object as elections see it (L4).

Times are written in UTC with microseconds, as client-go writes them, and read with or without a fraction; they are
for people to read and are never compared. What we do not know of a Lease is kept when it is written back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from runtime.clock import format_microtime, parse_time
from runtime.objects import LEASES, JsonObject, resource_version_of

__all__ = ["Lease", "lease_from_object", "lease_to_object", "recorded_duration"]


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds the lease, for how long, and at which version that was so."""

    holder: str = ""
    """Identity of the holder; empty when it was released."""
    duration: float = 0.0
    """Seconds after a renewal during which nobody else may take it; 0 when the object does not say."""
    transitions: int = 0
    """How often the holder changed."""
    acquired: datetime | None = None
    """When the holder took it; None asks for the time of the write."""
    renewed: datetime | None = None
    version: str = ""
    """Version the API server gave it; empty for one that does not exist yet."""
    origin: JsonObject = field(default_factory=dict, compare=False, repr=False)
    """The object it was read from."""

    def stamped(self, now: datetime) -> Lease:
        """Return the lease as it is sent at `now`."""
        return replace(self, acquired=self.acquired or now, renewed=now)


def lease_from_object(obj: JsonObject) -> Lease:
    """Read a Lease. Fields that are absent or malformed count as empty: anyone may have edited the object."""
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        spec = {}
    return Lease(
        holder=str(spec.get("holderIdentity") or ""),
        duration=float(_number(spec.get("leaseDurationSeconds"))),
        transitions=_number(spec.get("leaseTransitions")),
        acquired=_time(spec.get("acquireTime")),
        renewed=_time(spec.get("renewTime")),
        version=resource_version_of(obj),
        origin=obj,
    )


def recorded_duration(seconds: float) -> int:
    """Return a duration as the object can hold it: whole seconds, at least one."""
    return max(1, round(seconds))


def lease_to_object(lease: Lease, *, namespace: str, name: str) -> dict[str, Any]:
    """Write a Lease; an empty holder is left out, as the API wants it."""
    metadata = dict(lease.origin.get("metadata") or {})
    metadata.pop("managedFields", None)
    metadata.update(namespace=namespace, name=name)
    if lease.version:
        metadata["resourceVersion"] = lease.version
    spec = dict(lease.origin.get("spec") or {})
    spec.update(leaseDurationSeconds=recorded_duration(lease.duration), leaseTransitions=lease.transitions)
    for key, value in (
        ("holderIdentity", lease.holder or None),
        ("acquireTime", lease.acquired and format_microtime(lease.acquired)),
        ("renewTime", lease.renewed and format_microtime(lease.renewed)),
    ):
        if value is None:
            spec.pop(key, None)
        else:
            spec[key] = value
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None
