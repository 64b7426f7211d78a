"""What containerd, CNI and kubelet are configured with. Pure: places in, texts out.

The settings that are not obvious:

- `restrict_oom_score_adj`: a machine may not let us lower it, and runc fails then.
- `cgroupRoot` with `cgroupsPerQOS` off: every container's group is in one folder, which is ours to remove.
- kubelet serves on the bridge: a loopback address is refused as a node's.
- `seccompDefault` stays off: members ask for it themselves, and whether they do is a part of the test.
- Eviction and image collection wait for a full machine: a developer's full disk is not this test's business.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BRIDGE = "trainer0"
NODE_ADDRESS = "10.209.0.1"
SUBNET = "10.209.0.0/24"
KUBELET_PORT = 10250
HEALTH_PORT = 10248
CGROUP = "trainer-operator-node"
"""Folder of our containers in every control group hierarchy."""
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CNI_PROGRAMS = "/usr/lib/cni"
SANDBOX_IMAGE = "localhost/sandbox:1"


@dataclass(frozen=True, slots=True)
class Places:
    """Files and folders of one node."""

    folder: Path
    runc: Path
    authority: Path
    certificate: Path
    key: Path

    @property
    def containerd_config(self) -> Path:
        """Containerd's configuration."""
        return self.folder / "containerd.toml"

    @property
    def cni_folder(self) -> Path:
        """Folder of the network's configuration."""
        return self.folder / "cni"

    @property
    def kubelet_config(self) -> Path:
        """Kubelet's configuration."""
        return self.folder / "kubelet.json"

    @property
    def resolver(self) -> Path:
        """The pods' resolv.conf; there is no name server in the room."""
        return self.folder / "resolv.conf"


def containerd(places: Places) -> str:
    """Return containerd's configuration."""
    runtime = "plugins.'io.containerd.cri.v1.runtime'"
    images = "plugins.'io.containerd.cri.v1.images'"
    return f"""\
version = 3
root = {_text(places.folder / "containerd")}
state = "/run/containerd"

[grpc]
address = {_text(CONTAINERD_SOCKET)}

[{runtime}]
restrict_oom_score_adj = true

[{runtime}.cni]
bin_dirs = [{_text(CNI_PROGRAMS)}]
conf_dir = {_text(places.cni_folder)}

[{runtime}.containerd]
default_runtime_name = "runc"

[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[{runtime}.containerd.runtimes.runc.options]
BinaryName = {_text(places.runc)}
SystemdCgroup = false

[{images}.pinned_images]
sandbox = {_text(SANDBOX_IMAGE)}
"""


def network(places: Places) -> str:
    """Return the CNI configuration: one bridge, addresses of one range, no way out."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": str(places.folder / "addresses"),
            "ranges": [[{"subnet": SUBNET, "gateway": NODE_ADDRESS}]],
        },
    }
    plugins: list[dict[str, Any]] = [bridge, {"type": "loopback"}]
    return json.dumps({"cniVersion": "1.0.0", "name": "trainer", "plugins": plugins}, indent=2)


def kubelet(places: Places) -> str:
    """Return kubelet's configuration."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": KUBELET_PORT,
        "healthzPort": HEALTH_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(places.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(places.certificate),
        "tlsPrivateKeyFile": str(places.key),
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "volumePluginDir": str(places.folder / "volume-plugins"),
        "resolvConf": str(places.resolver),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 20,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
    }
    return json.dumps(settings, indent=2)


def _text(value: object) -> str:
    """Return a TOML string; JSON's are a part of TOML's."""
    return json.dumps(str(value))
