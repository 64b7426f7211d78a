"""What a peer publishes for its installation, changed only in what running outside the cluster demands.

The manifests come from its Go module and are put together by kubectl's own kustomize. Deployments are left out, since
we start the program; the Service in front of a webhook becomes a name for this machine, so that the API server calls
the webhook with the name, the certificate and the authority that the peer made for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.stock.arm import Broken
from trainer_operator.devcluster.kubectl import Kubectl

__all__ = ["config_file", "outside_cluster", "render"]

Object = dict[str, Any]  # Any: the JSON edge


def render(
    kubectl: Kubectl, source: Path, overlay: str, *, scratch: Path, without: Collection[str] = ()
) -> list[Object]:
    """Return the objects of an overlay; `without` names resources that it lists but that are installed apart.

    Raises: Broken when the peer's kustomization does not list them, KubectlFailed when kustomize refuses it.
    """
    folder = shutil.copytree(source, scratch, dirs_exist_ok=True) / overlay
    file = folder / "kustomization.yaml"
    kustomization = yaml.safe_load(file.read_text())
    for name in without:
        if name not in kustomization["resources"]:
            raise Broken(f"{overlay} does not list {name}")
        kustomization["resources"].remove(name)
    file.write_text(yaml.safe_dump(kustomization))
    return [found for found in yaml.safe_load_all(kubectl("kustomize", str(folder))) if found]


def outside_cluster(objects: Sequence[Object], *, webhook_port: int) -> list[Object]:
    """Return what to install for a program that serves its webhooks on this port of this machine."""
    fronts: set[tuple[str, str]] = set()
    for found in objects:
        for webhook in found.get("webhooks") or ():
            service = webhook["clientConfig"]["service"]
            service["port"] = webhook_port
            fronts.add((service["namespace"], service["name"]))
    return [
        _alias(found) if found["kind"] == "Service" and _key(found) in fronts else found
        for found in objects
        if found["kind"] != "Deployment"
    ]


def config_file(objects: Sequence[Object], name: str) -> Object:
    """Return the configuration that a ConfigMap brings to the program.

    Raises: Broken when no ConfigMap has it.
    """
    for found in objects:
        if found["kind"] == "ConfigMap" and name in (found.get("data") or {}):
            content: Object = yaml.safe_load(found["data"][name])
            return content
    raise Broken(f"there is no {name} among what is published")


def _alias(service: Mapping[str, Any]) -> Object:
    return {**service, "spec": {"type": "ExternalName", "externalName": "localhost"}}


def _key(found: Mapping[str, Any]) -> tuple[str, str]:
    metadata = found["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
