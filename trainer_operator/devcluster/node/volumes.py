"""A pod's volumes: what they are, which files they hold and where a container sees them; pure.

`secret`, `configMap` and `downwardAPI` volumes are projected volumes with one source, so there is one path for all.
What process nodes do not know is refused by name and never left out in silence.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.objects import JsonObject
from trainer_operator.devcluster.node.environment import (
    CONFIG_MAP,
    SECRET,
    Contents,
    Facts,
    Source,
    Unresolved,
    container_named,
    content_of,
    expand,
    pod_field,
    resource_field,
)

DEFAULT_MODE = 0o644
DEFAULT_TOKEN_SECONDS = 3600
FOLDER_ATTRIBUTE = "trainer-operator.dev/folder"
"""Attribute of a storage driver's volume that names the folder behind it: nodes here run no drivers."""


@dataclass(frozen=True, slots=True)
class EmptyFolder:
    """A folder of the pod's own; `medium: Memory` is a folder on disk too."""


@dataclass(frozen=True, slots=True)
class HostFolder:
    """A folder or file of the machine."""

    path: str
    kind: str = ""
    """The API's `type`: `DirectoryOrCreate` makes it, `Directory` and `File` demand it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim, whose volume names a folder of the machine."""

    name: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Keys of a ConfigMap or Secret."""

    source: Source
    items: tuple[tuple[str, str, int | None], ...] = ()
    """Key, path and mode of each file; empty takes every key."""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class DownwardFile:
    """A field of the pod or a resource of a container."""

    path: str
    field_path: str = ""
    resource: Mapping[str, Any] | None = None
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A service account token that is bound to the pod."""

    path: str
    audience: str = ""
    expiration_seconds: int = DEFAULT_TOKEN_SECONDS


@dataclass(frozen=True, slots=True)
class Projected:
    """Files that the node writes."""

    sources: tuple[SourceFiles | DownwardFile | TokenFile, ...]
    default_mode: int = DEFAULT_MODE


Volume = EmptyFolder | HostFolder | Claim | Projected


@dataclass(frozen=True, slots=True)
class File:
    """One file of a projected volume."""

    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine at a path of a container."""

    source: str
    target: str
    read_only: bool = False
    sub_path: str = ""
    """Part of the volume that is meant; made when it is missing."""


def volumes_of(pod: JsonObject) -> dict[str, Volume]:
    """Read a pod's volumes by name.

    Raises: Unresolved for a kind of volume that process nodes do not have.
    """
    return {volume["name"]: _volume(volume) for volume in (pod.get("spec") or {}).get("volumes") or ()}


def sources_of_volumes(volumes: Mapping[str, Volume]) -> set[Source]:
    """Name the ConfigMaps and Secrets that volumes read."""
    return {part.source for part in _parts(volumes) if isinstance(part, SourceFiles)}


def tokens_of(volumes: Mapping[str, Volume]) -> set[TokenFile]:
    """Name the tokens that volumes hold."""
    return {part for part in _parts(volumes) if isinstance(part, TokenFile)}


def files_of(
    volume: Projected, pod: JsonObject, *, facts: Facts, contents: Contents, tokens: Mapping[TokenFile, str]
) -> dict[str, File]:
    """Return the files of a projected volume by path.

    Raises: Unresolved for a missing source, key, field or a path that leads outside.
    """
    files: dict[str, File] = {}
    for part in volume.sources:
        match part:
            case SourceFiles():
                found = _source_files(part, contents, volume.default_mode)
            case DownwardFile():
                found = {part.path: File(_downward(part, pod, facts), part.mode or volume.default_mode)}
            case TokenFile():
                found = {part.path: File(tokens[part].encode(), volume.default_mode)}
        files |= {_inside(path): file for path, file in found.items()}
    return files


def mounts_of(container: JsonObject, env: Mapping[str, str], folders: Mapping[str, str]) -> list[Mount]:
    """Return a container's mounts; `folders` holds where each volume is.

    Raises: Unresolved for a volume that the pod does not have, or a sub-path that leads outside.
    """
    mounts = []
    for entry in container.get("volumeMounts") or ():
        if entry["name"] not in folders:
            raise Unresolved(f'volume "{entry["name"]}" not found in pod')
        sub_path = entry.get("subPath") or expand(entry.get("subPathExpr") or "", env)
        mounts.append(
            Mount(
                source=folders[entry["name"]],
                target=posixpath.join("/", entry["mountPath"]),
                read_only=bool(entry.get("readOnly")),
                sub_path=_inside(sub_path) if sub_path else "",
            )
        )
    return mounts


def claim_folder(claim: JsonObject, volume: JsonObject | None) -> str:
    """Return the folder behind a claim.

    Raises: Unresolved when it is not bound yet, or to something that is no folder of this machine.
    """
    name = (claim.get("metadata") or {}).get("name")
    if (claim.get("status") or {}).get("phase") != "Bound" or volume is None:
        raise Unresolved(f'persistentvolumeclaim "{name}" is not bound yet')
    spec = volume.get("spec") or {}
    attributes = (spec.get("csi") or {}).get("volumeAttributes") or {}
    path = (spec.get("hostPath") or spec.get("local") or {}).get("path") or attributes.get(FOLDER_ATTRIBUTE)
    if not path:
        raise Unresolved(
            f'persistentvolumeclaim "{name}" is bound to a volume that is no folder of this machine'
        )
    return str(path)


def attachable_name(volume: JsonObject) -> str:
    """Return the name by which the attach-detach controller knows a storage driver's volume; empty for others."""
    source = (volume.get("spec") or {}).get("csi")
    return f"kubernetes.io/csi/{source['driver']}^{source['volumeHandle']}" if source else ""


def _parts(volumes: Mapping[str, Volume]) -> list[SourceFiles | DownwardFile | TokenFile]:
    return [part for volume in volumes.values() if isinstance(volume, Projected) for part in volume.sources]


def _volume(volume: JsonObject) -> Volume:
    if "emptyDir" in volume:
        return EmptyFolder()
    if (host := volume.get("hostPath")) is not None:
        return HostFolder(host["path"], host.get("type") or "")
    if (claim := volume.get("persistentVolumeClaim")) is not None:
        return Claim(claim["claimName"], bool(claim.get("readOnly")))
    if (projected := volume.get("projected")) is not None:
        parts = [part for source in projected.get("sources") or () for part in _sources(source)]
        return Projected(tuple(parts), projected.get("defaultMode") or DEFAULT_MODE)
    for kind in ("secret", "configMap", "downwardAPI"):
        if (body := volume.get(kind)) is not None:
            return Projected(tuple(_sources({kind: body})), body.get("defaultMode") or DEFAULT_MODE)
    kind = next((key for key in volume if key != "name"), "none")
    raise Unresolved(f'volume "{volume.get("name")}" is of kind {kind}, which process nodes do not have')


def _sources(source: JsonObject) -> list[SourceFiles | DownwardFile | TokenFile]:
    if (token := source.get("serviceAccountToken")) is not None:
        seconds = token.get("expirationSeconds") or DEFAULT_TOKEN_SECONDS
        return [TokenFile(token["path"], token.get("audience") or "", seconds)]
    if (downward := source.get("downwardAPI")) is not None:
        return [
            DownwardFile(
                item["path"],
                (item.get("fieldRef") or {}).get("fieldPath") or "",
                item.get("resourceFieldRef"),
                item.get("mode"),
            )
            for item in downward.get("items") or ()
        ]
    for field, kind in (("secret", SECRET), ("configMap", CONFIG_MAP)):
        if (body := source.get(field)) is not None:
            items = tuple((i["key"], i["path"], i.get("mode")) for i in body.get("items") or ())
            name = body.get("name") or body.get("secretName") or ""
            return [SourceFiles(Source(kind, name), items, bool(body.get("optional")))]
    raise Unresolved(f"process nodes do not know the projected source {next(iter(source), 'none')}")


def _source_files(part: SourceFiles, contents: Contents, default_mode: int) -> dict[str, File]:
    data = content_of(part.source, contents, optional=part.optional)
    if data is None:
        return {}
    if not part.items:
        return {key: File(value, default_mode) for key, value in data.items()}
    files = {}
    for key, path, mode in part.items:
        if key in data:
            files[path] = File(data[key], mode or default_mode)
        elif not part.optional:
            raise Unresolved(
                f'{part.source.kind.lower()} "{part.source.name}" references non-existent key: {key}'
            )
    return files


def _downward(part: DownwardFile, pod: JsonObject, facts: Facts) -> bytes:
    if part.resource is not None:
        container = container_named(pod, part.resource.get("containerName") or "")
        return resource_field(part.resource, container, facts).encode()
    return pod_field(pod, part.field_path, facts).encode()


def _inside(path: str) -> str:
    normal = posixpath.normpath(path)
    if path.startswith("/") or normal.split("/")[0] == ".." or normal == ".":
        raise Unresolved(f'path "{path}" leads out of its volume')
    return normal
