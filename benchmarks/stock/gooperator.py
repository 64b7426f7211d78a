"""An operator of others as a process beside the cluster, with its webhooks and certificates as in a pod.

In a pod, the certificates that such an operator makes for its webhooks come back to it as a mounted Secret. Here the
Secret's files are written where it looks for them: its own temporary folder (the webhook server) and the fixed folder
under /tmp (what waits for the mount). The fixed one allows a single peer's benchmark on a machine at a time.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks.stock import peers, published
from benchmarks.stock.arm import BenchCluster, Broken
from benchmarks.stock.peers import Peer
from trainer_operator.devcluster.errors import ClusterFault, KubectlFailed
from trainer_operator.devcluster.ports import LOOPBACK
from trainer_operator.devcluster.process import Process

__all__ = ["GoOperator"]

_MOUNT = Path("k8s-webhook-server/serving-certs")
_FIXED = Path("/tmp") / _MOUNT
_READY_TIMEOUT = 60.0  # seconds, as the arms' protocol says
_POLL = 0.05
_FIELD_OWNER = "benchmark"


class GoOperator:
    """One process of a peer; what differs between peers are its arguments."""

    def __init__(
        self, peer: Peer, *, ports: Sequence[int], namespace: str, secret: str, controller: str
    ) -> None:
        """`secret` is where the peer keeps its certificates, `controller` what its log calls its controller."""
        self.peer = peer
        self.webhook_port, self.health_port, *self.other_ports = ports
        self._namespace = namespace
        self._secret = secret
        self._workers = re.compile(rf"Starting workers.*\b{controller}\b")
        self._process: Process | None = None

    async def render(
        self, cluster: BenchCluster, source: str, overlay: str, *, without: Sequence[str] = ()
    ) -> list[published.Object]:
        """Return what the peer publishes under this folder of its module; builds the peers where they are missing.

        Raises: Broken.
        """
        try:
            peers.ensure()  # all, since they share Go's build cache, which is deleted after the last
        except ClusterFault as fault:
            raise Broken(str(fault)) from fault
        kept = peers.files(self.peer) / source
        scratch = cluster.folder / f"{self.peer.program}-manifests"
        try:
            return await asyncio.to_thread(
                published.render, cluster.kubectl, kept, overlay, scratch=scratch, without=without
            )
        except (OSError, KubectlFailed) as error:
            raise Broken(f"the manifests of {self.peer.program} are not usable: {error}") from error

    async def install(self, cluster: BenchCluster, objects: Sequence[published.Object]) -> None:
        """Apply what is published (server-side: the CRDs exceed what fits into an annotation).

        Raises: Broken.
        """
        await self.apply(cluster, published.outside_cluster(objects, webhook_port=self.webhook_port))
        try:
            await asyncio.to_thread(cluster.kubectl.wait_established)
        except KubectlFailed as error:
            raise Broken(f"the CRDs of {self.peer.program} are not served: {error}") from error

    async def apply(self, cluster: BenchCluster, objects: Sequence[published.Object]) -> None:
        """Apply objects as administrator.

        Raises: Broken.
        """
        arguments = ("apply", "--server-side", "--field-manager", _FIELD_OWNER, "-f", "-")
        stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        try:
            await asyncio.to_thread(cluster.kubectl, *arguments, stdin=stdin)
        except KubectlFailed as error:
            raise Broken(f"what {self.peer.program} publishes is refused: {error}") from error

    async def start(self, cluster: BenchCluster, arguments: Sequence[str]) -> None:
        """Start the program and return when its webhooks answer and its controller works.

        Raises: Broken with the last line of its log.
        """
        temporary = cluster.folder / f"{self.peer.program}-tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        if not (temporary / _MOUNT / "tls.crt").exists():
            _forget_mount()
        log = cluster.folder / f"{self.peer.program}.log"
        said_before = log.stat().st_size if log.exists() else 0
        kubeconfig = cluster.controller_kubeconfig(self.peer.program)
        inherited = {key: value for key, value in os.environ.items() if key in {"PATH", "HOME", "LANG"}}
        program = peers.folder() / self.peer.program
        self._process = process = Process(
            self.peer.program,
            [str(program), *arguments],
            log=log,
            environ={**inherited, "KUBECONFIG": str(kubeconfig), "TMPDIR": str(temporary)},
            directory=cluster.folder,
        )
        deadline = time.monotonic() + _READY_TIMEOUT
        mounted = False
        while True:
            if process.exit_code() is not None:
                raise Broken(f"{self.peer.program} ended: {process.tail(lines=1)}")
            if not mounted:
                mounted = await self._mount(cluster, temporary)
            elif await asyncio.to_thread(self._is_ready, log, said_before):
                return
            if time.monotonic() > deadline:
                raise Broken(f"{self.peer.program} is not ready after a minute: {process.tail(lines=1)}")
            await asyncio.sleep(_POLL)

    def pids(self) -> list[int]:
        """Return the process while it runs."""
        process = self._process
        return [] if process is None or process.exit_code() is not None else [process.pid]

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """End it; does nothing when it does not run."""
        if self._process is not None:
            await self._process.stop(grace=10.0)

    async def _mount(self, cluster: BenchCluster, temporary: Path) -> bool:
        """Write the Secret's files to where a pod would have them mounted, once the operator has filled it."""
        path = f"api/v1/namespaces/{self._namespace}/secrets/{self._secret}"
        data = (await cluster.request("GET", path)).get("data") or {}
        if "tls.crt" not in data:
            return False
        for folder in (temporary / _MOUNT, _FIXED):  # the one that is waited for comes last
            folder.mkdir(parents=True, exist_ok=True)
            for name in sorted(data, key=lambda name: name == "tls.crt"):
                incoming = folder / f".{name}"
                incoming.write_bytes(base64.b64decode(data[name]))
                incoming.replace(folder / name)
        return True

    def _is_ready(self, log: Path, said_before: int) -> bool:
        with log.open("rb") as stream:
            stream.seek(said_before)
            said = stream.read().decode(errors="replace")
        if not self._workers.search(said):
            return False
        try:
            with urlopen(f"http://{LOOPBACK}:{self.health_port}/readyz", timeout=2.0) as answer:
                return bool(answer.status == http.client.OK)
        except (URLError, OSError):
            return False


def _forget_mount() -> None:
    """Remove what an earlier peer had mounted, so that this one waits for its own certificates."""
    try:
        shutil.rmtree(_FIXED)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Broken(f"{_FIXED} belongs to somebody else: {error.strerror}") from error
