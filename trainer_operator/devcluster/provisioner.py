"""Volumes for claims: every PersistentVolumeClaim of the class `local-folder` gets a folder of this machine.

All process nodes are this machine, so a folder is as good as a network file system: any access mode is granted. The
class is the default one. A volume and its folder are deleted when its claim is, unless the volume says `Retain`.

    python -m trainer_operator.devcluster.provisioner --kubeconfig FILE --state-dir FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from runtime.cache import Informer
from runtime.client import AlreadyExists, Client, ClientConfig, NotFound
from runtime.controller import Controller, Request, Result
from runtime.errors import RuntimeFault
from runtime.events import EventRecorder
from runtime.logs import configure
from runtime.manager import Manager, run_manager
from runtime.objects import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    JsonObject,
    Resource,
    key_of,
    uid_of,
)

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CLASS = "local-folder"
PROVISIONER = "trainer-operator.dev/local-folder"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

_STORAGE_CLASS = {
    "apiVersion": STORAGE_CLASSES.api_version,
    "kind": STORAGE_CLASSES.kind,
    "metadata": {
        "name": CLASS,
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}


def needs_volume(claim: JsonObject) -> bool:
    """Tell whether a claim waits for us: of our class, bound to nothing and not being deleted."""
    spec = claim.get("spec") or {}
    return (
        spec.get("storageClassName") == CLASS
        and not spec.get("volumeName")
        and (claim.get("status") or {}).get("phase") in (None, "", "Pending")
        and not (claim.get("metadata") or {}).get("deletionTimestamp")
    )


def refusal(claim: JsonObject) -> str:
    """Return why a claim cannot be served, empty when it can."""
    spec = claim.get("spec") or {}
    if spec.get("volumeMode") == "Block":
        return f"class {CLASS} makes folders, volumeMode Block is not possible"
    if spec.get("selector"):
        return f"class {CLASS} makes a new volume for each claim, a selector is not possible"
    return ""


def volume_for(claim: JsonObject, root: Path) -> dict[str, Any]:
    """Return the volume of a claim: its name and folder follow from the claim's uid, so making it twice is safe."""
    key, uid = key_of(claim), uid_of(claim)
    spec = claim.get("spec") or {}
    name = f"pvc-{uid}"
    return {
        "apiVersion": PERSISTENT_VOLUMES.api_version,
        "kind": PERSISTENT_VOLUMES.kind,
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": list(spec.get("accessModes") or ()),
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "volumeMode": "Filesystem",
            "hostPath": {"path": str(root / name), "type": "Directory"},
            "claimRef": {
                "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
                "kind": PERSISTENT_VOLUME_CLAIMS.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": uid,
            },
        },
    }


def folder_to_delete(volume: JsonObject, root: Path) -> Path | None:
    """Return the folder of a released volume of ours; None for every volume that is not to be deleted.

    Guarantees: the folder is one that `volume_for` would make, whatever the object says.
    """
    metadata, spec = volume.get("metadata") or {}, volume.get("spec") or {}
    folder = root / f"{metadata.get('name')}"
    ours = (metadata.get("annotations") or {}).get(PROVISIONED_BY) == PROVISIONER
    released = (volume.get("status") or {}).get("phase") == "Released"
    deletes = spec.get("persistentVolumeReclaimPolicy") == "Delete"
    same = (spec.get("hostPath") or {}).get("path") == str(folder) and folder.parent == root
    return folder if ours and released and deletes and same else None


class ClaimReconciler:
    """Makes folders and volumes for claims."""

    def __init__(
        self, claims: Informer[JsonObject], root: Path, *, client: Client, events: EventRecorder
    ) -> None:
        self._claims = claims
        self._root = root
        self._client = client
        self._events = events

    async def ensure_class(self) -> None:
        """Make the storage class; one that is there is left as it is."""
        with contextlib.suppress(AlreadyExists):
            await self._client.create(STORAGE_CLASSES, _STORAGE_CLASS)

    async def reconcile(self, request: Request) -> Result | None:
        """Give a claim its volume; kube-controller-manager binds the two."""
        claim = self._claims.get(request.key)
        if claim is None or not needs_volume(claim):
            return None
        if reason := refusal(claim):
            self._events.event(
                claim,
                type="Warning",
                reason="ProvisioningFailed",
                message=reason,
                resource=PERSISTENT_VOLUME_CLAIMS,
            )
            return None
        volume = volume_for(claim, self._root)
        await asyncio.to_thread(os.makedirs, volume["spec"]["hostPath"]["path"], exist_ok=True)
        with contextlib.suppress(AlreadyExists):
            await self._client.create(PERSISTENT_VOLUMES, volume)
        return None


class VolumeReconciler:
    """Deletes volumes whose claims are gone."""

    def __init__(self, volumes: Informer[JsonObject], root: Path, *, client: Client) -> None:
        self._volumes = volumes
        self._root = root
        self._client = client

    async def reconcile(self, request: Request) -> Result | None:
        """Delete a released volume, its folder first: a volume without a folder can be deleted again."""
        volume = self._volumes.get(request.key)
        folder = None if volume is None else folder_to_delete(volume, self._root)
        if volume is None or folder is None:
            return None
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        with contextlib.suppress(NotFound):
            await self._client.delete(PERSISTENT_VOLUMES, request.name, uid=uid_of(volume))
        return None


def build(config: ClientConfig, root: Path) -> Manager:
    """Put the provisioner together."""
    manager = Manager(config, health_address=None, component="volume-provisioner", freeze_memory=False)
    claims = manager.informers.informer(PERSISTENT_VOLUME_CLAIMS)
    volumes = manager.informers.informer(PERSISTENT_VOLUMES)
    provide = ClaimReconciler(claims, root, client=manager.client, events=manager.events)
    remove = VolumeReconciler(volumes, root, client=manager.client)
    manager.add_leader_hook(provide.ensure_class)
    for name, informer, reconciler in (("claims", claims, provide), ("volumes", volumes, remove)):
        controller = Controller(name, reconciler, clock=manager.clock, metrics=manager.metrics, workers=4)
        controller.watch(informer)
        manager.add_controller(controller)
    return manager


def main(arguments: list[str] | None = None) -> int:
    """Run the provisioner until SIGTERM; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainer_operator.devcluster.provisioner",
        description="Make folders of this machine into volumes for PersistentVolumeClaims.",
    )
    parser.add_argument("--kubeconfig", required=True, help="credentials of an administrator")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder that holds the volumes")
    parser.add_argument("--log-level", default="info", help="debug, info, warning or error")
    options = parser.parse_args(arguments)
    configure(options.log_level, json=False)
    root = Path(os.path.realpath(options.state_dir))
    root.mkdir(parents=True, exist_ok=True)
    try:
        config = ClientConfig.from_kubeconfig(options.kubeconfig)
    except RuntimeFault as problem:
        print(f"volume provisioner: {problem}", file=sys.stderr)
        return 1
    return run_manager(lambda: build(config, root))


if __name__ == "__main__":
    sys.exit(main())
