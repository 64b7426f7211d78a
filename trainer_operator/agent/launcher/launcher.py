"""The launcher's decisions: which process may run, and what its end means (ME3, ME4, AG1).

    Prepare(E)   ends whatever belongs to an older epoch, reserves a port; nothing runs afterwards
    Go(E)        starts the process of the prepared epoch; again, with another directive id, when it ended

A process that Prepare ends leaves no exit behind: it did what it was told, and an exit would read as a crash.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from trainer_operator.agent import index, ring, store
from trainer_operator.agent.backends import OpenHome
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.lastwords import fingerprint, redact
from trainer_operator.agent.launcher.environment import child_environment, progress_file
from trainer_operator.agent.launcher.listening import is_listening
from trainer_operator.agent.launcher.ports import PortReservation
from trainer_operator.agent.launcher.process import Process, StartFailed
from trainer_operator.agent.output import ProgressFile
from trainer_operator.agent.settings import Settings
from trainer_operator.agent.sharing import Sharing
from trainer_operator.agent.state import State
from trainer_operator.agent.storeops import OperationFailed, whole

DUMP_TIME = 1.0
"""Seconds that stacks may take to appear."""
LISTEN_PERIOD = 0.1
"""Seconds between two looks at whether the process listens."""
WITHOUT_SDK = 300.0
"""Seconds after which a process that said nothing at all is taken for one without the SDK; imports may take long."""
AWAITED = ("ps", "master")
"""Roles that others are started after."""
MAX_STACKS = 6000
"""Characters of stacks that are reported; all of them are in the log."""


class Launcher:
    """Owns the training process.

    Guarantees: at most one process; none of an epoch below the prepared one; none after `close`.
    Assumptions: `prepare`, `go` and `drain` are called from one thread.
    """

    def __init__(
        self,
        command: List[str],
        *,
        environment: Mapping[str, str],
        settings: Settings,
        state: State,
        conversation: Conversation,
        sharing: Sharing,
        open_home: OpenHome,
        log: Callable[[str], None],
    ) -> None:
        self._command, self._environment, self._open_home = command, environment, open_home
        self._settings, self._state, self._conversation = settings, state, conversation
        self._sharing, self._log = sharing, log
        self._lock = threading.Lock()
        self._process: Optional[Process] = None
        self._replaced: Optional[Process] = None
        self._closed = False
        self._progress_file = ProgressFile(progress_file(conversation.server.path))
        self._port = PortReservation(settings.pod_ip)

    def prepare(self, epoch: int) -> Dict[str, Any]:
        """End what runs, reserve a port and return it.

        Raises: OperationFailed when no port can be reserved; then nothing runs and the epoch is not prepared.
        """
        if epoch <= self._state.prepared:
            return {"port": self._port.port}
        process = self._process
        if process is not None and process.is_alive:
            self._replaced = process
            process.stop(self._settings.stop_budget)
        try:
            port = self._port.renew()
        except OSError as error:
            raise OperationFailed(
                "no port can be reserved on %s: %s" % (self._settings.pod_ip, error.strerror)
            ) from error
        self._state.prepare(epoch, port)
        return {"port": port}

    def go(self, args: Mapping[str, Any]) -> Dict[str, Any]:
        """Start the process of an epoch; one that runs already, or is older than the prepared one, is done.

        A running process of this epoch is never ended here, whatever its psEpoch: it hears of that by UpdatePS
        (PSR2).
        Raises: OperationFailed, BadArguments, StoreError, OSError.
        """
        epoch, ps_epoch = whole(args, "epoch"), whole(args, "psEpoch", default=0)
        restore_step = whole(args, "restoreStep", default=0)
        if epoch < self._state.prepared:
            return {"stale": True}
        if self._state.is_running and self._state.epoch == epoch:
            return {"run": "already"}
        if epoch > self._state.prepared:
            raise OperationFailed("epoch %d is not prepared" % epoch, {"prepared": self._state.prepared})
        self._check_restore(args)
        ring.cut(self._settings.ring_folder, restore_step)
        with self._lock:
            if self._closed:
                raise OperationFailed("the pod is ending")
            self._spawn(args, epoch, ps_epoch, restore_step=restore_step)
        return {"pid": self._process.pid if self._process is not None else None}

    def drain(self, budget: float) -> bool:
        """Have the process end within `budget` seconds, without waiting for it; its exit is reported as it is (ND6)."""
        process = self._process
        if process is None or not process.is_alive:
            return False
        self._state.entered("draining")
        threading.Thread(target=process.stop, args=(budget,), name="drain", daemon=True).start()
        return True

    def dump_stacks(self) -> str:
        """Have the process write its stacks to stderr, if it can; return them, as far as they came in a second.

        Only the process that uses the SDK gets the signal: it would end a launcher of its own, or its children.
        Raises: OperationFailed, OSError.
        """
        process, pid = self._process, self._conversation.server.peer
        if process is None or not process.is_alive or not pid or not self._conversation.can_dump:
            raise OperationFailed("no process that can dump its stacks")
        before = process.written
        os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + DUMP_TIME
        while process.written == before and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)  # a dump of many threads comes in several writes
        return (
            process.tail()[-min(MAX_STACKS, process.written - before) :] if process.written > before else ""
        )

    def look(self) -> None:
        """Look for steps in the file that code without the SDK may write, and whether it is such code (AG5)."""
        run, step = self._state.run, self._progress_file.read()
        if step is not None:
            self._state.printed(run, step)
        self._state.settle(WITHOUT_SDK)

    def end_run(self, run: int) -> bool:
        """End the process if it is still that of this run; its exit is reported as any other."""
        process = self._process
        if process is None or not process.is_alive or self._state.run != run:
            return False
        process.stop(self._settings.stop_budget)
        return True

    def close(self, budget: float) -> None:
        """End the process and start none again."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None and process.is_alive:
            process.stop(budget)

    def _spawn(self, args: Mapping[str, Any], epoch: int, ps_epoch: int, *, restore_step: int) -> None:
        os.makedirs(self._settings.ring_folder, exist_ok=True)
        os.makedirs(self._settings.spool_folder, exist_ok=True)
        environment = child_environment(
            self._environment,
            args,
            settings=self._settings,
            socket_path=self._conversation.server.path,
            port=self._port.port,
        )
        self._conversation.begin()
        self._progress_file.clear()
        self._sharing.starts(args, epoch)
        self._port.release()
        awaited = self._settings.identity.role in AWAITED
        self._state.spawn(
            epoch, ps_epoch, step=restore_step, listening=self._is_listening() if awaited else None
        )
        run = self._state.run
        try:
            self._process = Process(
                self._command,
                environment=environment,
                on_exit=self._exited,
                on_step=lambda step: self._state.printed(run, step),
            )
        except StartFailed as error:
            self._state.exited(error.code, 0, fingerprint=None, tail=str(error))
            raise OperationFailed("spawn: %s" % error, {"code": error.code}) from error
        self._state.spawned(self._process.pid)
        self._log("started process %d for epoch %d at step %d" % (self._process.pid, epoch, restore_step))
        self._process.watch()
        if awaited:
            threading.Thread(
                target=self._await_listener,
                args=(self._process, self._state.run),
                name="listening",
                daemon=True,
            ).start()

    def _is_listening(self) -> Optional[bool]:
        return is_listening(self._settings.pod_ip, self._port.port)

    def _await_listener(self, process: Process, run: int) -> None:
        """Report when the process listens, since others wait for that (TR47)."""
        while self._is_listening() is False:
            if process.wait(LISTEN_PERIOD):
                return
        self._state.listens(run)

    def _exited(self, process: Process, code: int, number: int) -> None:
        self._conversation.ended()
        self._port.retake()
        if process is self._replaced:
            self._log("ended process %d for the next epoch" % process.pid)
            return
        tail = redact(process.tail(), self._environment)
        ended = self._state.exited(
            code, number, fingerprint=None if number else fingerprint(tail), tail=tail[-2048:]
        )
        how = "signal %d" % number if number else "exit code %d" % code
        self._log("process %d ended with %s after step %d" % (process.pid, how, ended.step))

    def _check_restore(self, args: Mapping[str, Any]) -> None:
        """Refuse to start from a checkpoint that does not exist or is not whole.

        Raises: OperationFailed; StoreError when the store is at fault and not the checkpoint.
        """
        restore = args.get("restore")
        if not isinstance(restore, Mapping):
            return
        ckpt = str(restore.get("ckpt", ""))
        identity = self._settings.identity
        try:
            where = store.CheckpointDir(self._open_home(), ckpt)
            decision = index.check_restorable(where, None)
            if not _is_pulled_from_servers(args, identity.role):
                rank = whole(args, "rank", default=0)
                shard = index.shard_for(decision.shards, role=identity.role, rank=rank)
                if identity.role == "ps" and shard not in decision.shards:
                    return  # the checkpoint is sound, but of fewer servers: the process is told so (RS5)
                index.check_restorable(where, shard)
        except index.NotRestorable as error:
            raise OperationFailed("restore: %s" % error, {"ckpt": ckpt}) from error


def _is_pulled_from_servers(args: Mapping[str, Any], role: str) -> bool:
    """Whether this member gets its state from parameter servers and reads no shard."""
    members = args.get("members")
    if role == "ps" or not isinstance(members, list):
        return False
    return any(isinstance(member, Mapping) and member.get("role") == "ps" for member in members)
