"""The process that a development cluster is made of: `python -m trainer_operator.devcluster.supervisor`.

It starts the control plane, the volume provisioner and the process nodes, restarts a component that ends, answers on
the control socket, and takes everything down with it: in order when it is asked to, at once when it is killed.

A node that ends stays down until it is started: a node's death is something to be tried, not to be hidden.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer_operator.devcluster import controlsocket, state
from trainer_operator.devcluster.controlplane import ControlPlane
from trainer_operator.devcluster.errors import ClusterFault, ComponentFailed
from trainer_operator.devcluster.filelock import AlreadyLocked, locked
from trainer_operator.devcluster.node.addresses import NODE_ADDRESSES
from trainer_operator.devcluster.nodeobjects import list_ready, tidy
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.state import ClusterState, Member, Phase, Settings

PROVISIONER = "provisioner"
_CHECK_INTERVAL = 0.25  # seconds between two looks at the processes
_NODES_TIMEOUT = 60.0
_RESTART_BASE, _RESTART_CAP, _RESTART_FORGET = 0.5, 10.0, 60.0  # seconds
_NODE_GRACE = 10.0
_LOCK_PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class Commands:
    """What nodes and the provisioner are started with; tests put stand-ins here."""

    node: tuple[str, ...] = (sys.executable, "-m", "trainer_operator.devcluster.node")
    provisioner: tuple[str, ...] = (sys.executable, "-m", "trainer_operator.devcluster.provisioner")


@dataclass(frozen=True, slots=True)
class Restarts:
    """When a component that keeps ending is started again. Pure."""

    count: int = 0
    due: float = float("-inf")
    delay: float = 0.0
    pending: bool = False
    """Whether it has ended and not been started again."""

    def after_end(self, now: float) -> Restarts:
        """Count an end: the first is answered at once, each further one within a minute after twice the delay."""
        if now - self.due > _RESTART_FORGET:
            return Restarts(self.count + 1, now, 0.0, pending=True)
        delay = min(_RESTART_CAP, max(_RESTART_BASE, 2 * self.delay))
        return Restarts(self.count + 1, now + delay, delay, pending=True)


class Supervisor:
    """All processes of one development cluster.

    Guarantees: none of them outlives `run`, nor this process.
    """

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        *,
        commands: Commands | None = None,
        announce: Callable[[ClusterState], None] = lambda _: None,
    ) -> None:
        """Prepare a cluster in this folder; `announce` is told each state that differs from the one before."""
        self.folder = folder
        self._announce = announce
        self.settings = settings
        self._commands = commands or Commands()
        self._plane = ControlPlane(folder / "control-plane")
        self._nodes: dict[str, Process | None] = dict.fromkeys(settings.node_names())
        self._provisioner: Process | None = None
        self._restarts: dict[str, Restarts] = {}
        self._state = ClusterState(folder.name, Phase.STARTING, os.getpid(), settings)
        self._task: asyncio.Task[Any] | None = None
        self._stopping = False

    async def run(self) -> int:
        """Run the cluster until SIGTERM, SIGINT or the request `stop`; return the process's exit code."""
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        self._publish(Phase.STARTING)
        last, message, code = Phase.STOPPED, "", 0
        try:
            async with controlsocket.serving(self.folder, self._answer):
                await self._start()
                await self._watch()
        except asyncio.CancelledError:
            if not self._stopping or self._task is None:
                raise
            self._task.uncancel()
        except ClusterFault as fault:
            last, message, code = Phase.FAILED, str(fault), 1
        finally:
            self._publish(Phase.STOPPING, message)
            await self._stop_all()
            self._publish(last, message)
        return code

    def stop(self) -> None:
        """Take the cluster down in order; a second call changes nothing."""
        if not self._stopping and self._task is not None:
            self._stopping = True
            self._task.cancel()

    # -- start, watch, stop ------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._plane.start()
        self._state = replace(self._state, url=self._plane.url, kubeconfig=str(self._plane.kubeconfig))
        self._publish(Phase.STARTING_NODES)
        await asyncio.to_thread(tidy, self._plane.admin, wanted=tuple(self._nodes))
        self._start_provisioner()
        for name in self._nodes:
            self._start_node(name)
        await self._nodes_ready()
        self._publish(Phase.READY)

    async def _watch(self) -> None:
        while True:
            for name in self._plane.ended():
                if self._is_due(name):
                    await self._restart_component(name)
            if _pid(self._provisioner) is None and self._is_due(PROVISIONER):
                self._start_provisioner()
            self._publish(Phase.READY)
            await asyncio.sleep(_CHECK_INTERVAL)

    def _is_due(self, name: str) -> bool:
        """Tell whether a process that ended is to be started again now; the first look only sets the time."""
        now = asyncio.get_running_loop().time()
        restarts = self._restarts.get(name, Restarts())
        if not restarts.pending:
            restarts = restarts.after_end(now)
        due = now >= restarts.due
        self._restarts[name] = replace(restarts, pending=not due)
        return due

    async def _restart_component(self, name: str) -> None:
        try:
            async with asyncio.timeout(_NODES_TIMEOUT):
                await self._plane.start_component(name)
        except (ClusterFault, TimeoutError):
            return  # it is looked at again, and the next pause is longer

    async def _stop_all(self) -> None:
        """Nodes first, while the API server still takes their last reports."""
        running = [process for process in self._nodes.values() if process is not None]
        if self._provisioner is not None:
            running.append(self._provisioner)
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = asyncio.get_running_loop().time() + _NODE_GRACE
        for process in running:
            await process.stop(grace=max(0.0, deadline - asyncio.get_running_loop().time()))
        await self._plane.stop()

    # -- nodes -------------------------------------------------------------------------------------------------

    def _start_node(self, name: str) -> None:
        folder = self.folder / "nodes" / name
        folder.mkdir(parents=True, exist_ok=True)
        serving = self._plane.server_certificate("kubelet", hosts=(name, *NODE_ADDRESSES), folder=folder)
        arguments = (
            f"--name={name}",
            f"--kubeconfig={self._plane.node_kubeconfig(name)}",
            f"--state-dir={folder}",
            f"--gpus={self.settings.gpus}",
            f"--cpu={self.settings.cpu}",
            f"--memory={self.settings.memory}",
            f"--serving-certificate={serving.certificate}",
            f"--serving-key={serving.key}",
        )
        self._nodes[name] = Process(
            name,
            [*self._commands.node, *arguments],
            log=self.folder / "logs" / f"{name}.log",
            directory=folder,
        )

    def _start_provisioner(self) -> None:
        folder = self.folder / "volumes"
        folder.mkdir(parents=True, exist_ok=True)
        arguments = (f"--kubeconfig={self._plane.kubeconfig}", f"--state-dir={folder}")
        self._provisioner = Process(
            PROVISIONER,
            [*self._commands.provisioner, *arguments],
            log=self.folder / "logs" / f"{PROVISIONER}.log",
            directory=folder,
        )

    async def _nodes_ready(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _NODES_TIMEOUT
        while missing := set(self._nodes) - await asyncio.to_thread(list_ready, self._plane.admin):
            for name, process in self._nodes.items():
                if process is not None and process.exit_code() is not None:
                    raise ComponentFailed(
                        f"{name} ended with code {process.exit_code()}: {process.tail(lines=1) or 'no output'} "
                        f"(log: {process.log})"
                    )
            if loop.time() > deadline:
                raise ComponentFailed(
                    f"{', '.join(sorted(missing))} not Ready within {_NODES_TIMEOUT:.0f} s: see {self.folder / 'logs'}"
                )
            await asyncio.sleep(_CHECK_INTERVAL)

    # -- requests ----------------------------------------------------------------------------------------------

    async def _answer(self, request: controlsocket.Message) -> controlsocket.Message:
        match request:
            case {"do": "status"}:
                return {"state": self._state.to_json()}
            case {"do": "stop"}:
                self.stop()
                return {}
            case {"do": "kill-node", "node": str(name)}:
                await self._kill_node(name)
                return {}
            case {"do": "start-node", "node": str(name)}:
                self._bring_back(name)
                return {}
            case _:
                raise ClusterFault(f"the supervisor does not know the request {request.get('do')!r}")

    async def _kill_node(self, name: str) -> None:
        """Take a node's power: its process and with it all its pods' processes are gone at once."""
        process = self._known_node(name)
        if process is None or process.exit_code() is not None:
            raise ClusterFault(f"{name} is down already")
        await process.stop(grace=0)
        self._nodes[name] = None
        self._publish(self._state.phase)

    def _bring_back(self, name: str) -> None:
        process = self._known_node(name)
        if process is not None and process.exit_code() is None:
            raise ClusterFault(f"{name} is running already")
        self._start_node(name)
        self._publish(self._state.phase)

    def _known_node(self, name: str) -> Process | None:
        if name not in self._nodes:
            raise ClusterFault(f"there is no node {name}: there are {', '.join(self._nodes) or 'none'}")
        return self._nodes[name]

    def _publish(self, phase: Phase, message: str = "") -> None:
        """Write the state when it is not what was written last."""
        pids: dict[str, int | None] = dict.fromkeys(self._plane.components) | self._plane.pids()
        pids[PROVISIONER] = _pid(self._provisioner)
        pids |= {name: _pid(process) for name, process in self._nodes.items()}
        members = {
            name: Member(pid, self._restarts.get(name, Restarts()).count) for name, pid in pids.items()
        }
        current = replace(self._state, phase=phase, message=message, members=members)
        if current != self._state:
            self._state = current
            state.save(self.folder, current)
            self._announce(current)


def _pid(process: Process | None) -> int | None:
    return None if process is None or process.exit_code() is not None else process.pid


def run(
    folder: Path,
    settings: Settings,
    *,
    commands: Commands | None = None,
    announce: Callable[[ClusterState], None] = lambda _: None,
) -> int:
    """Run a cluster in this folder until it is asked to stop; return the exit code.

    Raises: ClusterFault when another supervisor has the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    try:
        with locked(folder / state.LOCK, patience=_LOCK_PATIENCE):
            return asyncio.run(Supervisor(folder, settings, commands=commands, announce=announce).run())
    except AlreadyLocked:
        raise ClusterFault(f"the cluster {folder.name} is up already") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster that the arguments describe."""
    parser = argparse.ArgumentParser(prog="supervisor", description="Runs a development cluster.")
    defaults = Settings()
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--nodes", type=int, default=defaults.nodes)
    parser.add_argument("--gpus", type=int, default=defaults.gpus)
    parser.add_argument("--cpu", default=defaults.cpu)
    parser.add_argument("--memory", default=defaults.memory)
    options = parser.parse_args(arguments)
    settings = Settings(nodes=options.nodes, gpus=options.gpus, cpu=options.cpu, memory=options.memory)
    try:
        return run(options.folder, settings)
    except ClusterFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
