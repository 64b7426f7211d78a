"""Server-side apply: state what we want of an object, and own just that (R5).

Each concern has its own field manager, and an apply holds all fields of its concern: what an earlier apply of the
same manager stated and this one leaves out is removed. What the server or a cache added to an object we once read is
never sent back, least of all `managedFields`, which the server refuses. Conflicts are settled by force only when the
caller says that the fields are its own.
"""

from collections.abc import Mapping
from typing import Any

from runtime.client.rest import Client, PatchKind
from runtime.objects import JsonObject, Resource, key_of

__all__ = ["apply", "apply_status", "configuration"]

_IDENTITY = ("name", "namespace")
_INTENT = ("labels", "annotations", "finalizers", "ownerReferences")
_GUARDS = ("uid", "resourceVersion")


def configuration(resource: Resource, obj: JsonObject, *, guarded: bool = False) -> dict[str, Any]:
    """Reduce an object to what may be applied: identity, intent and content, without status.

    With `guarded` the uid and version are kept, so that the apply fails if the object is another one or has changed.
    """
    metadata = obj.get("metadata") or {}
    kept = (*_IDENTITY, *_INTENT, *(_GUARDS if guarded else ()))
    content = {
        name: value for name, value in obj.items() if name not in ("apiVersion", "kind", "metadata", "status")
    }
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {name: metadata[name] for name in kept if metadata.get(name)},
        **content,
    }


async def apply(
    client: Client,
    resource: Resource,
    obj: JsonObject,
    *,
    field_manager: str,
    force: bool = False,
    guarded: bool = False,
) -> dict[str, Any]:
    """Apply an object, creating it if need be, and return it as the server has it now.

    `force` takes over fields that another manager set differently; use it for fields that are ours alone.

    Raises: Conflict naming the fields and their managers, or when a guard does not hold; Invalid; ApiError.
    """
    key = key_of(obj)
    return await client.patch(
        resource,
        key.name,
        configuration(resource, obj, guarded=guarded),
        namespace=key.namespace or None,
        kind=PatchKind.APPLY,
        field_manager=field_manager,
        force=force,
    )


async def apply_status(
    client: Client, resource: Resource, obj: JsonObject, status: Mapping[str, Any], *, field_manager: str
) -> dict[str, Any]:
    """Apply the status of an object that exists, under a manager of its own.

    The fields of a status belong to whoever reports them, so they are taken over without asking.

    Raises: NotFound when the object is gone; Invalid; ApiError.
    """
    key = key_of(obj)
    identity = {
        name: value for name, value in zip(_IDENTITY, (key.name, key.namespace), strict=True) if value
    }
    return await client.patch(
        resource,
        key.name,
        {"metadata": identity, "status": dict(status)},
        namespace=key.namespace or None,
        subresource="status",
        kind=PatchKind.APPLY,
        field_manager=field_manager,
        force=True,
    )
