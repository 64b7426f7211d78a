"""A double of a CSI driver with the sidecars that belong to one, and of nothing else.

It plays the storage itself, the external-provisioner (a volume for each claim of its class, here a folder) and the
external-attacher (it answers VolumeAttachments and holds them by a finalizer). Who is attached where is decided by the
real attach-detach controller, claims are bound by the real controller, and pods wait at their nodes as at a kubelet.
"""

import os
import shutil
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.node.volumes import FOLDER_ATTRIBUTE

DRIVER = "folders.csi.example.com"
CLASS = "csi-double"
FINALIZER = "external-attacher/folders-csi-example-com"
STORAGE = "/apis/storage.k8s.io/v1"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
POLL = 0.3  # seconds between two looks
LEAVE = 60  # seconds that volumes get to go before the double ends

_CLASS = {
    "kind": "StorageClass",
    "metadata": {"name": CLASS},
    "provisioner": DRIVER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}
_DRIVER = {
    "kind": "CSIDriver",
    "metadata": {"name": DRIVER},
    "spec": {"attachRequired": True, "podInfoOnMount": False, "volumeLifecycleModes": ["Persistent"]},
}


@dataclass(frozen=True)
class Act:
    """What the storage did: `attach`, `refuse` or `detach`."""

    verb: str
    volume: str
    node: str
    at: float


@dataclass
class CSIDouble:
    """The driver; a context manager that serves in a thread of its own."""

    api: object
    folder: Path
    nodes: tuple[str, ...]
    attached: dict[str, str] = field(default_factory=dict)
    """Which node has a volume: a single-writer one has one at most."""
    acts: list[Act] = field(default_factory=list)

    def __enter__(self):
        self._install()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="csi double")
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._remove(f"{STORAGE}/storageclasses/{CLASS}")
        deadline = time.monotonic() + LEAVE
        while self._own_volumes() and time.monotonic() < deadline:
            time.sleep(POLL)
        self._ending.set()
        self._thread.join()
        for node in self.nodes:
            self._remove(f"{STORAGE}/csinodes/{node}")
        self._remove(f"{STORAGE}/csidrivers/{DRIVER}")

    def acts_on(self, volume):
        """Return what was done to a volume, in order: verb and node."""
        return [(act.verb, act.node) for act in self.acts if act.volume == volume]

    def words(self, volume):
        """Return what pods wrote into a volume's file `visitors`."""
        book = self.folder / volume / "visitors"
        return book.read_text().split() if book.exists() else []

    # -- serving -----------------------------------------------------------------------------------------------

    def _serve(self):
        while not self._ending.wait(POLL):
            try:
                self._provision()
                self._attach_and_detach()
                self._delete_released()
            except ClusterFault:
                continue  # the API server does not answer; everything is looked at again

    def _provision(self):
        for claim in self._list("/api/v1/persistentvolumeclaims"):
            metadata, spec = claim["metadata"], claim["spec"]
            if spec.get("storageClassName") != CLASS or spec.get("volumeName"):
                continue
            name = f"double-{metadata['uid']}"
            os.makedirs(self.folder / name, exist_ok=True)
            self._create("/api/v1/persistentvolumes", volume_for(claim, name, self.folder / name))

    def _attach_and_detach(self):
        for attachment in self._list(f"{STORAGE}/volumeattachments"):
            metadata, spec = attachment["metadata"], attachment["spec"]
            if spec["attacher"] != DRIVER:
                continue
            path = f"{STORAGE}/volumeattachments/{metadata['name']}"
            volume, node = spec["source"]["persistentVolumeName"], spec["nodeName"]
            if metadata.get("deletionTimestamp"):
                self._detach(path, volume, node, metadata)
            elif not (attachment.get("status") or {}).get("attached"):
                self._attach(path, volume, node, attachment)

    def _attach(self, path, volume, node, attachment):
        if FINALIZER not in attachment["metadata"].get("finalizers", ()):
            self._merge(path, {"metadata": {"finalizers": [FINALIZER]}})
        holder = self.attached.setdefault(volume, node)
        if holder == node:
            self._note("attach", volume, node)
            self._merge(f"{path}/status", {"status": {"attached": True, "attachError": None}})
        elif not (attachment.get("status") or {}).get("attachError"):
            self._note("refuse", volume, node)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            error = {"message": f"volume {volume} is attached to node {holder}", "time": now}
            self._merge(f"{path}/status", {"status": {"attached": False, "attachError": error}})

    def _detach(self, path, volume, node, metadata):
        if self.attached.get(volume) == node:
            del self.attached[volume]
            self._note("detach", volume, node)
        if metadata.get("finalizers"):
            self._merge(path, {"metadata": {"finalizers": None}})

    def _note(self, verb, volume, node):
        if (verb, node) not in self.acts_on(volume)[-1:]:  # an answer that did not arrive is given again
            self.acts.append(Act(verb, volume, node, time.monotonic()))

    def _delete_released(self):
        for volume in self._own_volumes():
            name = volume["metadata"]["name"]
            if volume["status"].get("phase") == "Released" and name not in self.attached:
                shutil.rmtree(self.folder / name, ignore_errors=True)
                self._remove(f"/api/v1/persistentvolumes/{name}")

    # -- requests ----------------------------------------------------------------------------------------------

    def _install(self):
        self._create(f"{STORAGE}/csidrivers", _DRIVER)
        self._create(f"{STORAGE}/storageclasses", _CLASS)
        for node in self.nodes:
            driver = {"name": DRIVER, "nodeID": node, "topologyKeys": []}
            body = {"kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [driver]}}
            self._create(f"{STORAGE}/csinodes", body)

    def _own_volumes(self):
        volumes = self._list("/api/v1/persistentvolumes")
        return [volume for volume in volumes if (volume["spec"].get("csi") or {}).get("driver") == DRIVER]

    def _list(self, path):
        return self._answered(self.api.request("GET", path)).json()["items"]

    def _create(self, path, body):
        body = {"apiVersion": path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0], **body}
        self._answered(self.api.request("POST", path, body), 409)

    def _merge(self, path, body):
        answer = self.api.request("PATCH", path, body, content_type="application/merge-patch+json")
        self._answered(answer, 404)

    def _remove(self, path):
        self._answered(self.api.request("DELETE", path), 404)

    def _answered(self, answer, *also):
        if not 200 <= answer.status < 300 and answer.status not in also:
            raise ClusterFault(f"the API server answered {answer.status}: {answer.body[:500]!r}")
        return answer


def volume_for(claim, name, folder):
    """The volume of a claim."""
    metadata, spec = claim["metadata"], claim["spec"]
    source = {"driver": DRIVER, "volumeHandle": name, "volumeAttributes": {FOLDER_ATTRIBUTE: str(folder)}}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: DRIVER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
            "csi": source,
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
        },
    }
