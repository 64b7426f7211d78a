"""One real node: containerd and kubelet as children of this process, on a bridge, in a room (`room.py`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.errors import ComponentFailed
from trainer_operator.devcluster.nodeobjects import list_ready
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.realnode import config
from trainer_operator.devcluster.realnode.config import Places
from trainer_operator.devcluster.realnode.programs import Programs
from trainer_operator.devcluster.realnode.room import require_room

_PATIENCE = 90.0
_POLL = 0.1


class RealNode:
    """A node of a control plane that runs real containers.

    Guarantees: its processes and pods end with the room at the latest.
    Assumptions: started from the main thread, inside a room, one per room.
    """

    def __init__(self, plane: ControlPlane, programs: Programs, *, name: str = "real-node") -> None:
        """Prepare a node; nothing is started yet.

        Raises: ClusterFault outside of a room.
        """
        self.name = name
        self._plane = plane
        self._programs = programs
        self._folder = require_room()
        self._containerd: Process | None = None
        self._kubelet: Process | None = None

    @property
    def address(self) -> str:
        """The node's address on the bridge: where pods reach what runs outside of them."""
        return config.NODE_ADDRESS

    def log_path(self, program: str) -> Path:
        """Return the log of `containerd` or `kubelet`."""
        return self._folder / "logs" / f"{program}.log"

    async def start(self, images: Path) -> None:
        """Start the node with the images of this archive, and wait until it is Ready.

        Raises: ComponentFailed.
        """
        pair = self._plane.server_certificate("kubelet", hosts=[self.address, self.name], folder=self._folder)
        places = Places(
            self._folder, self._programs.runc, self._plane.authority_file, pair.certificate, pair.key
        )
        self._write(places)
        _run("ip", "link", "add", config.BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{self.address}/24", "dev", config.BRIDGE)
        _run("ip", "link", "set", config.BRIDGE, "up")
        self._containerd = Process(
            "containerd",
            [str(self._programs.containerd), "--config", str(places.containerd_config)],
            log=self.log_path("containerd"),
            environ={
                **os.environ,
                "PATH": f"{self._programs.containerd.parent}:{os.environ.get('PATH', '')}",
            },
        )
        await self._until("containerd", lambda: asyncio.to_thread(self._containerd_answers))
        await asyncio.to_thread(self._ctr, "images", "import", str(images))
        self.start_kubelet()
        await self.until_ready()

    def start_kubelet(self) -> None:
        """Start kubelet; pods of an earlier one are taken over."""
        self._kubelet = Process(
            "kubelet",
            [
                str(self._programs.kubelet),
                f"--config={self._folder / 'kubelet.json'}",
                f"--kubeconfig={self._plane.node_kubeconfig(self.name)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                f"--root-dir={self._kubelet_folder}",
                f"--cert-dir={self._folder / 'kubelet-certificates'}",
            ],
            log=self.log_path("kubelet"),
        )

    def kill_kubelet(self) -> None:
        """End kubelet by SIGKILL; containers go on."""
        if self._kubelet is not None:
            self._kubelet.kill()

    async def until_ready(self) -> None:
        """Wait until kubelet serves and the API server knows the node as Ready.

        Raises: ComponentFailed.
        """

        async def ready() -> bool:
            return await asyncio.to_thread(_kubelet_is_healthy) and self.name in await asyncio.to_thread(
                list_ready, self._plane.admin
            )

        await self._until("kubelet", ready)

    async def stop(self) -> None:
        """End kubelet and containerd; containers end with the room."""
        for process in (self._kubelet, self._containerd):
            if process is not None:
                await process.stop(grace=3.0)

    @property
    def _kubelet_folder(self) -> Path:
        return Path("/var/lib/kubelet")  # the room's own

    def _write(self, places: Places) -> None:
        places.cni_folder.mkdir(parents=True, exist_ok=True)
        places.containerd_config.write_text(config.containerd(places))
        (places.cni_folder / "10-trainer.conflist").write_text(config.network(places))
        places.kubelet_config.write_text(config.kubelet(places))
        places.resolver.write_text("")

    def _containerd_answers(self) -> bool:
        command = [
            str(self._programs.ctr),
            "--address",
            config.CONTAINERD_SOCKET,
            "--timeout",
            "5s",
            "version",
        ]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _ctr(self, *arguments: str) -> None:
        _run(
            str(self._programs.ctr),
            "--address",
            config.CONTAINERD_SOCKET,
            "--namespace",
            "k8s.io",
            *arguments,
        )

    async def _until(self, program: str, check: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await check():
                    process = self._containerd if program == "containerd" else self._kubelet
                    if process is not None and (code := process.exit_code()) is not None:
                        raise ComponentFailed(f"{program} ended with code {code}: {process.tail()}")
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            raise ComponentFailed(
                f"{program} was not ready after {_PATIENCE:.0f} s: see {self.log_path(program)}"
            ) from None


def _kubelet_is_healthy() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{config.HEALTH_PORT}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise ComponentFailed(f"`{' '.join(command[:6])}` failed: {result.stderr.strip()}")
