"""What every pod of a node shares: settings, addresses, clients, and the scope that owns its tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from runtime.client.rest import Client
from runtime.clock import Clock
from runtime.events import EventRecorder
from runtime.tasks import TaskScope
from trainer_operator.devcluster.node.addresses import Network
from trainer_operator.devcluster.node.attachments import Attachments
from trainer_operator.devcluster.node.folders import PodFolders


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """A node as it was asked for."""

    name: str
    state_dir: Path
    cpu: str = "8"
    memory: str = "16Gi"
    gpus: int = 0
    """Pretend GPUs: a number in the node's capacity, with no device behind it."""
    pods: int = 110
    labels: Mapping[str, str] = field(default_factory=dict)
    working_dir: str = "/"
    """Where a container starts that names no `workingDir`; an image would say `/` as a rule."""

    def capacity(self) -> dict[str, str]:
        """Return the node's resources."""
        resources = {"cpu": self.cpu, "memory": self.memory, "pods": str(self.pods)}
        return resources | ({"nvidia.com/gpu": str(self.gpus)} if self.gpus else {})


@dataclass(frozen=True, slots=True)
class Host:
    """The node that pods run on."""

    settings: NodeSettings
    network: Network
    client: Client
    clock: Clock
    events: EventRecorder
    session: aiohttp.ClientSession
    scope: TaskScope
    attachments: Attachments
    sandbox_problem: str = ""
    """Why this machine cannot run containers at all."""

    def folders(self, uid: str) -> PodFolders:
        """Return the folders of a pod."""
        return PodFolders(self.settings.state_dir / "pods" / uid)

    def environment(self, hostname: str) -> dict[str, str]:
        """Return what every container of this node is given.

        Nothing else of the node's own environment is passed on: a container that runs here only because of a
        variable somebody exported would not run on a real node. `python3` and `trainer-operator` are the project's
        own, for PATH begins where this interpreter is installed.
        """
        path = [os.path.dirname(sys.executable), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
        server = urlsplit(self.client.config.server)
        return {
            "PATH": os.pathsep.join(dict.fromkeys(path)),
            "HOME": os.path.expanduser("~"),
            "LANG": "C.UTF-8",
            "HOSTNAME": hostname,
            # There is no service network: in-cluster clients are sent to the API server itself.
            "KUBERNETES_SERVICE_HOST": server.hostname or "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(server.port or 443),
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.port or 443),
        }
