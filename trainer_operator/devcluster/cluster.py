"""A development cluster seen from outside its supervisor: bring it up, ask, disturb it, take it down.

What the command line and the demo use. All calls block.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainer_operator.devcluster import controlsocket, state
from trainer_operator.devcluster.assets import require
from trainer_operator.devcluster.errors import ClusterFault, ClusterNotRunning
from trainer_operator.devcluster.filelock import AlreadyLocked, locked
from trainer_operator.devcluster.kubectl import Kubectl
from trainer_operator.devcluster.paths import cluster_folder
from trainer_operator.devcluster.process import Process
from trainer_operator.devcluster.state import ClusterState, Phase, Settings

_POLL = 0.1
_UP_TIMEOUT = 180.0
_DOWN_TIMEOUT = 30.0
_SUPERVISOR_LOG = "supervisor.log"


class Cluster:
    """One named cluster of this user."""

    def __init__(self, name: str = "default", *, folder: Path | None = None) -> None:
        """Name a cluster; nothing is started.

        Raises: ClusterFault when the name is not allowed.
        """
        self.name = name
        self.folder = folder or cluster_folder(name)
        self._child: Process | None = None
        """The supervisor, when it was started here."""

    # -- questions ---------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Tell whether a supervisor has this cluster: it holds the lock for as long as it lives."""
        if not (self.folder / state.LOCK).exists():
            return False
        try:
            with locked(self.folder / state.LOCK):
                return False
        except AlreadyLocked:
            return True

    def state(self) -> ClusterState:
        """Return how the cluster is.

        Raises: ClusterNotRunning when it is not up.
        """
        current = state.load(self.folder) if self.is_running() else None
        if current is None:
            raise ClusterNotRunning(f"the cluster {self.name} is not up: run `trainer-operator dev up`")
        return current

    def last_state(self) -> ClusterState | None:
        """Return the state of the running cluster, or else how it ended; None when it never was."""
        last = state.load(self.folder) if self.folder.is_dir() else None
        if last is None or self.is_running() or last.phase in {Phase.STOPPED, Phase.FAILED}:
            return last
        gone = {name: replace(member, pid=None) for name, member in last.members.items()}
        return replace(last, phase=Phase.FAILED, message="its supervisor was killed", members=gone)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; it exists once the control plane has been up."""
        return self.folder / "control-plane" / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log; it exists once the control plane has been up."""
        return self.folder / "control-plane" / "audit.log"

    @property
    def kubectl(self) -> Kubectl:
        """The real kubectl as administrator."""
        return Kubectl(require().path("kubectl"), self.kubeconfig)

    def logs(self) -> dict[str, Path]:
        """Return the log files that exist, by component or node."""
        folders = (self.folder / "control-plane" / "logs", self.folder / "logs")
        found = {
            file.stem: file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.log"))
        }
        supervisor = self.folder / _SUPERVISOR_LOG
        return {**found, "supervisor": supervisor} if supervisor.exists() else found

    # -- commands ----------------------------------------------------------------------------------------------

    def start(self, settings: Settings, *, tethered: bool = False) -> None:
        """Start the cluster in the background and return at once.

        A tethered cluster ends with this process; it must be started from the main thread.

        Raises: ClusterFault when it is up already.
        """
        settings.check()
        require()
        if self.is_running():
            raise ClusterFault(
                f"the cluster {self.name} is up already: `trainer-operator dev down` takes it down"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / state.FILE).unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "trainer_operator.devcluster.supervisor",
            f"--folder={self.folder}",
            f"--nodes={settings.nodes}",
            f"--gpus={settings.gpus}",
            f"--cpu={settings.cpu}",
            f"--memory={settings.memory}",
        ]
        log = self.folder / _SUPERVISOR_LOG
        log.unlink(missing_ok=True)
        self._child = Process("supervisor", command, log=log, directory=self.folder, tethered=tethered)

    def wait_ready(
        self, *, timeout: float = _UP_TIMEOUT, announce: Callable[[ClusterState], None] = lambda _: None
    ) -> ClusterState:
        """Wait until the cluster that `start` started is ready; `announce` is told each change.

        Raises: ClusterFault with the reason when it failed or takes too long.
        """
        deadline = time.monotonic() + timeout
        told: ClusterState | None = None
        while True:
            ended = self._has_ended()  # looked at first: the state is then the last one
            current = state.load(self.folder)
            if current is not None and current != told:
                announce(current)
                told = current
            if current is not None and current.phase is Phase.READY and not ended:
                return current
            if ended:
                reason = current.message if current is not None else ""
                log = self.folder / _SUPERVISOR_LOG
                raise ClusterFault(reason or f"the cluster's supervisor ended without a reason: see {log}")
            if time.monotonic() > deadline:
                phase = current.phase if current is not None else Phase.STARTING
                self.down()
                raise ClusterFault(
                    f"the cluster was not ready after {timeout:.0f} s (it was {phase}): see {self.folder}"
                )
            time.sleep(_POLL)

    def up(
        self,
        settings: Settings,
        *,
        tethered: bool = False,
        announce: Callable[[ClusterState], None] = lambda _: None,
    ) -> ClusterState:
        """Start the cluster and wait until its nodes are ready.

        Guarantees: when this raises, KeyboardInterrupt included, nothing is left running.
        """
        self.start(settings, tethered=tethered)
        try:
            return self.wait_ready(announce=announce)
        except BaseException:
            self.down()
            raise

    def down(self) -> bool:
        """Take the cluster down and wait until it is; return whether there was something to do.

        A supervisor that does not answer is killed, and with it all its processes.
        """
        if self._child is not None:
            self._child.send_signal(
                signal.SIGTERM
            )  # it may not have the lock yet, and then nobody else knows it
        elif not self.is_running():
            return False
        try:
            controlsocket.call(self.folder, {"do": "stop"}, timeout=5.0)
            deadline = time.monotonic() + _DOWN_TIMEOUT
        except ClusterFault:
            deadline = time.monotonic() + 1.0  # it is ending already, or it hangs
        while not self._has_ended():
            if time.monotonic() > deadline:
                self._kill_supervisor()
                deadline = time.monotonic() + _DOWN_TIMEOUT
            time.sleep(_POLL)
        self._child = None
        return True

    def purge(self) -> None:
        """Remove everything that the cluster kept: objects, volumes, logs.

        Raises: ClusterFault when it is up.
        """
        if self.is_running():
            raise ClusterFault(f"the cluster {self.name} is up: take it down before it is removed")
        if self.folder.is_dir():
            shutil.rmtree(self.folder)

    def kill_node(self, node: str) -> None:
        """Take a node's power: all its pods' processes are gone at once, and nobody reports it."""
        controlsocket.call(self._existing_folder(), {"do": "kill-node", "node": node})

    def start_node(self, node: str) -> None:
        """Bring a node back."""
        controlsocket.call(self._existing_folder(), {"do": "start-node", "node": node})

    def _has_ended(self) -> bool:
        return not self.is_running() if self._child is None else self._child.exit_code() is not None

    def _existing_folder(self) -> Path:
        self.state()
        return self.folder

    def _kill_supervisor(self) -> None:
        if self._child is not None:
            self._child.kill()
            return
        current = state.load(self.folder)
        if current is None:
            raise ClusterFault(f"the cluster {self.name} does not answer and has no state: see {self.folder}")
        os.kill(current.supervisor, signal.SIGKILL)  # it holds the lock, so this process ID is its own
