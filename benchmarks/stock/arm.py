"""What is compared: an arm brings jobs to life on a cluster that is the same for all of them.

An arm is an operator with its settings, or the bare API. It says how it is installed, how one job of N pods is
written in its own kind, and which processes are its own; everything that is measured is seen from outside, in the
API server's audit log and in /proc. The shape of a pod is shared, so that no arm has the lighter one: one container
of the same image, command and requests. What an operator adds to it by itself is part of what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.kubectl import Kubectl

__all__ = ["IMAGE", "NAMESPACE", "Arm", "BenchCluster", "Broken", "Json", "container"]

Json = Mapping[str, Any]  # Any: the JSON edge

NAMESPACE = "bench"
IMAGE = "registry.example/bench:1"
"""Never pulled: nodes of the benchmark only say that it runs."""


class Broken(Exception):
    """An arm or a scenario did not do what it is there for; the sentence goes into the result."""


class BenchCluster(Protocol):
    """The cluster of one repetition, as an arm sees it; it has fresh data and nobody else's objects."""

    folder: Path
    """A scratch folder: logs, certificates and kubeconfigs of the arm belong here."""
    plane: ControlPlane
    """etcd, API server, controller manager and scheduler, with limits that hold up no arm."""

    @property
    def url(self) -> str:
        """Address of the API server."""

    @property
    def authority_file(self) -> Path:
        """Certificate that signs the API server's, and those of `plane.server_certificate` for webhooks."""

    @property
    def audit_log(self) -> Path:
        """The clock: every answered request (metadata; of pods that are created, what was asked for, too)."""

    @property
    def kubectl(self) -> Kubectl:
        """The real kubectl as administrator."""

    def controller_kubeconfig(self, name: str) -> Path:
        """Write and return the kubeconfig of an arm's controller.

        Every arm's is in `system:masters`, and so in the API server's exempt priority level.
        """

    async def request(self, verb: str, path: str, body: object = None, *, content_type: str = "") -> Json:
        """Send one request as administrator and return the answer; the path has no leading slash.

        Raises: Broken with the API server's message when it refuses.
        """

    async def restart(self) -> None:
        """Stop and start the API server, on the same data."""

    async def etcd_written(self) -> float:
        """Return how many bytes etcd has written to its log since it started."""


class Arm(Protocol):
    """One competitor. Every repetition makes its own by calling the arm's factory without arguments."""

    name: str
    """How results call it: ours, ours-clamped, stock-defaults, stock-tuned, v2-defaults, v2-tuned, raw."""
    versions: Mapping[str, str]
    """Program -> version."""
    job_resource: str
    """Where jobs are POSTed, such as `apis/kubeflow.org/v1/namespaces/bench/pytorchjobs`."""
    pod_label: str
    """Label of a pod that names its job."""

    async def install(self, cluster: BenchCluster) -> None:
        """Bring CRDs, webhooks and whatever else has to be there before the clock runs."""

    async def start(self, cluster: BenchCluster) -> None:
        """Start its processes and return when they reconcile.

        Raises: Broken when they do not within a minute.
        """

    def pids(self) -> Sequence[int]:
        """Return the processes whose CPU and memory are the arm's."""

    def metrics_url(self) -> str:
        """Return where it tells how late its event loop runs; empty where it has no loop or does not run."""

    async def kill(self) -> None:
        """End its processes by SIGKILL; `start` brings them back."""

    async def stop(self) -> None:
        """End its processes and wait; safe to call when none runs, and twice."""

    def job(self, name: str, *, pods: int) -> Json:
        """Return one job whose failed pods are replaced, or a v1 List of objects to POST at once."""

    def served_job(self, name: str, *, pods: int) -> Json | None:
        """Return such a job in which one of the pods is a parameter server; None where none are offered."""


def container(name: str) -> dict[str, Any]:
    """Return the one container of every pod of every arm, under the name that the arm's kind insists on."""
    return {
        "name": name,
        "image": IMAGE,
        "command": ["python3", "train.py"],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }
