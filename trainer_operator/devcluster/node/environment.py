"""The environment and the command line of a container, as the kubelet composes them; pure.

Order and precedence: what the node gives every container, `envFrom` in the order written, then `env` in the order
written. `$(NAME)` in a value sees everything before it; in `command` and `args` it sees the whole result. `$$` is a
`$`, and a reference to what does not exist stays as it is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.objects import JsonObject
from trainer_operator.devcluster.node.quantity import divided, parse_quantity

CONFIG_MAP, SECRET = "ConfigMap", "Secret"


class Unresolved(Exception):
    """A value cannot be composed; the message is what the container's status shows (CreateContainerConfigError)."""


@dataclass(frozen=True, slots=True)
class Source:
    """A ConfigMap or Secret that a pod names."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What the node knows of a pod that is not in its object yet."""

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """The node's resources, which stand in for limits that are not set."""


Contents = Mapping[Source, Mapping[str, bytes] | None]
"""The data of each source; None for one that does not exist."""


def sources_of(container: JsonObject) -> set[Source]:
    """Name the ConfigMaps and Secrets that a container's environment reads."""
    found = set()
    for entry in container.get("env") or ():
        value_from = entry.get("valueFrom") or {}
        for field_name, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            if reference := value_from.get(field_name):
                found.add(Source(kind, reference.get("name") or ""))
    for entry in container.get("envFrom") or ():
        for field_name, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            if reference := entry.get(field_name):
                found.add(Source(kind, reference.get("name") or ""))
    return found


def compose(
    container: JsonObject, pod: JsonObject, *, facts: Facts, contents: Contents, given: Mapping[str, str]
) -> dict[str, str]:
    """Return a container's environment.

    Raises: Unresolved for a source, key or field that does not exist and is not optional.
    """
    result = dict(given)
    for entry in container.get("envFrom") or ():
        result.update(_from_source(entry, contents))
    for entry in container.get("env") or ():
        if (value_from := entry.get("valueFrom")) is None:
            result[entry["name"]] = expand(entry.get("value") or "", result)
        else:
            value = _value_from(value_from, container, pod, facts=facts, contents=contents)
            if value is not None:
                result[entry["name"]] = value
    return result


def command_line(container: JsonObject, env: Mapping[str, str]) -> list[str]:
    """Return `command` and `args` with references replaced; empty when there is no command."""
    command = container.get("command") or ()
    if not command:
        return []
    return [expand(part, env) for part in (*command, *(container.get("args") or ()))]


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value, as Kubernetes defines it."""
    out: list[str] = []
    position = 0
    while (dollar := text.find("$", position)) >= 0 and dollar + 1 < len(text):
        out.append(text[position:dollar])
        following = text[dollar + 1]
        end = text.find(")", dollar) if following == "(" else -1
        if following == "$":
            out.append("$")
            position = dollar + 2
        elif end > 0:
            name = text[dollar + 2 : end]
            out.append(values.get(name, text[dollar : end + 1]))
            position = end + 1
        else:
            out.append("$" + following)
            position = dollar + 2
    out.append(text[position:])
    return "".join(out)


def pod_field(pod: JsonObject, path: str, facts: Facts) -> str:
    """Return a field of the downward API.

    Raises: Unresolved for a path it does not have.
    """
    metadata: Mapping[str, Any] = pod.get("metadata") or {}
    spec: Mapping[str, Any] = pod.get("spec") or {}
    for prefix in ("labels", "annotations"):
        values: Mapping[str, str] = metadata.get(prefix) or {}
        if path == f"metadata.{prefix}":
            return "\n".join(f"{key}={json.dumps(values[key], ensure_ascii=False)}" for key in sorted(values))
        if path.startswith(f"metadata.{prefix}['") and path.endswith("']"):
            return values.get(path[len(f"metadata.{prefix}['") : -2], "")
    known: dict[str, Callable[[], str]] = {
        "metadata.name": lambda: metadata.get("name", ""),
        "metadata.namespace": lambda: metadata.get("namespace", ""),
        "metadata.uid": lambda: metadata.get("uid", ""),
        "spec.nodeName": lambda: spec.get("nodeName", ""),
        "spec.serviceAccountName": lambda: spec.get("serviceAccountName", ""),
        "status.hostIP": lambda: facts.host_ip,
        "status.hostIPs": lambda: facts.host_ip,
        "status.podIP": lambda: facts.pod_ip,
        "status.podIPs": lambda: facts.pod_ip,
    }
    if path not in known:
        raise Unresolved(f'unsupported fieldPath "{path}"')
    return known[path]()


def resource_field(reference: JsonObject, container: JsonObject, facts: Facts) -> str:
    """Return a container's limit or request in units of the divisor.

    Raises: Unresolved for a resource that neither the container nor the node has.
    """
    kind, _, resource = str(reference.get("resource") or "").partition(".")
    resources: Mapping[str, Any] = container.get("resources") or {}
    value = (resources.get(kind) or {}).get(resource)
    if value is None and kind == "requests":
        value = (resources.get("limits") or {}).get(resource, "0")
    if value is None:
        value = facts.allocatable.get(resource)
    if kind not in ("limits", "requests") or value is None:
        raise Unresolved(f'unsupported container resource "{reference.get("resource")}"')
    try:
        return str(divided(parse_quantity(value), parse_quantity(reference.get("divisor") or "1")))
    except ValueError as error:
        raise Unresolved(str(error)) from None


def container_named(pod: JsonObject, name: str) -> JsonObject:
    """Return the container of a pod that a downward reference names.

    Raises: Unresolved when there is none.
    """
    spec = pod.get("spec") or {}
    every: Iterable[JsonObject] = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    for container in every:
        if container.get("name") == name:
            return container
    raise Unresolved(f'container "{name}" not found in pod')


def content_of(source: Source, contents: Contents, *, optional: bool) -> Mapping[str, bytes] | None:
    """Return a source's data, None when it is missing and may be.

    Raises: Unresolved when it is missing and must not be.
    """
    data = contents.get(source)
    if data is None and not optional:
        raise Unresolved(f'{source.kind.lower()} "{source.name}" not found')
    return data


def _from_source(entry: JsonObject, contents: Contents) -> dict[str, str]:
    prefix = entry.get("prefix") or ""
    result: dict[str, str] = {}
    for field_name, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
        if reference := entry.get(field_name):
            source = Source(kind, reference.get("name") or "")
            data = content_of(source, contents, optional=bool(reference.get("optional")))
            for key, value in (data or {}).items():
                result[prefix + key] = value.decode(errors="replace")
    return result


def _value_from(
    value_from: JsonObject, container: JsonObject, pod: JsonObject, *, facts: Facts, contents: Contents
) -> str | None:
    if reference := value_from.get("fieldRef"):
        return pod_field(pod, reference.get("fieldPath") or "", facts)
    if reference := value_from.get("resourceFieldRef"):
        name = reference.get("containerName")
        return resource_field(reference, container_named(pod, name) if name else container, facts)
    for field_name, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
        if reference := value_from.get(field_name):
            source = Source(kind, reference.get("name") or "")
            optional = bool(reference.get("optional"))
            data = content_of(source, contents, optional=optional)
            value = None if data is None else data.get(reference.get("key") or "")
            if value is not None:
                return value.decode(errors="replace")
            if optional:
                return None
            raise Unresolved(f"couldn't find key {reference.get('key')} in {kind} {source.name}")
    raise Unresolved(f"process nodes do not know valueFrom.{next(iter(value_from), 'nothing')}")
