"""Trainer SDK: what a training loop tells the agent beside it, and what it is told (AG4).

    import trainer_sdk as sdk

    job = sdk.init()
    restored = job.restore()
    start = restored.step if restored else 0
    for n in range(start + 1, total + 1):
        job.pause_point()
        train_one_step()
        job.step(n, samples=batch)
        if job.should_checkpoint(n):
            job.save(n, {"weights": weights})
    job.done()

One file, standard library, numpy if it is there. Without an agent every call works and does nothing, so the same
program runs on a laptop. `step` costs a few microseconds and never waits; only `save` (for the copy), `pause_point`
and `wait_ps` may block. The loop must call `should_checkpoint` after each step: a checkpoint names one step.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

SEND_INTERVAL = 0.02
"""Seconds between two step messages; steps in between travel together."""
WAIT_PS_BUDGET = 600.0
_MAX_LINE = 1 << 20


class RestoreFailed(Exception):
    """The state that this process shall start from cannot be read; the message says why."""


class ServersLost(Exception):
    """No new parameter-server epoch came within the budget."""


@dataclass(frozen=True)
class Member:
    """One member of the epoch and where it listens."""

    role: str
    index: int
    rank: int
    address: str
    port: int


@dataclass(frozen=True)
class Restored:
    """State to start from. `state` holds numpy arrays, or bytearrays where there is no numpy."""

    step: int
    state: Dict[str, Any]
    meta: Dict[str, Any]


@dataclass(frozen=True)
class PsUpdate:
    """A new parameter-server epoch: where the servers are, and the step that everybody goes on from.

    It may bring a soft epoch with it: then `members` are all members, and `epoch` and `world` are not 0.
    """

    ps_epoch: int
    members: Tuple[Member, ...]
    step: int
    epoch: int = 0
    world: int = 0


@dataclass
class _Order:
    ckpt: str
    step: int
    pause: bool
    base: str
    part: str


def init(*, soft_epochs: bool = False) -> "Job":
    """Connect to the agent, if there is one, and return the job as this process sees it.

    With `soft_epochs` the program promises to go by `job.rank` and `job.world` as they are after `ps_update` or
    `wait_ps`. Then workers come and go without a restart; one that comes waits in here until it is let in.
    Raises: ServersLost when the agent is gone before that.
    """
    job = Job(os.environ, soft_epochs=soft_epochs)
    if os.environ.get("TRAINER_JOIN"):
        job.join()
    return job


class Job:
    """The training as this process sees it. Use it from one thread, the training loop."""

    def __init__(self, environment: Mapping[str, str], *, soft_epochs: bool = False) -> None:
        get = environment.get
        self.name = get("TRAINER_NAME", "local")
        self.role = get("TRAINER_ROLE", "worker")
        self.index = int(get("TRAINER_INDEX") or 0)
        self.rank = int(get("TRAINER_RANK") or 0)
        self.world = int(get("TRAINER_WORLD_SIZE") or 1)
        self.epoch = int(get("TRAINER_EPOCH") or 0)
        self.ps_epoch = int(get("TRAINER_PS_EPOCH") or 0)
        self.epochs = int(get("TRAINER_EPOCHS") or 0)
        self.restore_step = int(get("TRAINER_RESTORE_STEP") or 0)
        self.address = get("TRAINER_ADDRESS") or "127.0.0.1"
        self.port = int(get("TRAINER_PORT") or 0)
        self.ring_dir = get("TRAINER_RING_DIR") or ""
        self.members = _members(json.loads(get("TRAINER_MEMBERS") or "[]"))
        self._restore_ckpt = get("TRAINER_RESTORE_CKPT") or ""
        self._restore_ring = bool(get("TRAINER_RESTORE_RING"))
        self._store = get("TRAINER_STORE") or ""
        self._store_credentials = get("TRAINER_STORE_CREDENTIALS") or ""
        self._open_home: Optional[Callable[[], Any]] = None
        self._memory: Any = None
        self._layout: Any = None
        self._distrusted: List[str] = []
        self._spool_dir = get("TRAINER_SPOOL_DIR") or ""
        self._cache_dir = get("TRAINER_CACHE_DIR") or ""
        self._peers_file = get("TRAINER_PEERS_FILE") or ""
        self._told = threading.Condition()
        self._order: Optional[_Order] = None
        self._asked = self.restore_step
        self._pause_at: Optional[int] = None
        self._update: Optional[PsUpdate] = None
        self._phase = "init"
        self._step = self.restore_step
        self._step_at: Optional[float] = None
        self._samples = 0
        self._durations: Deque[float] = deque(maxlen=16)
        self._metrics: Dict[str, float] = {}
        self._sent_at = 0.0
        self._unsent = False
        self._sending = threading.RLock()
        self._agent = _connect(get("TRAINER_AGENT_SOCK") or "")
        if self._agent is not None:
            dump = _register_dump()
            self._send({"t": "hello", "v": 1, "pid": os.getpid(), "dump": dump, "softEpochs": soft_epochs})
            threading.Thread(
                target=self._listen, args=(self._agent,), name="trainer-sdk", daemon=True
            ).start()
            atexit.register(self._flush)

    @property
    def workers(self) -> List[Member]:
        """The members that train, by rank."""
        return sorted((m for m in self.members if m.role != "ps"), key=lambda m: m.rank)

    @property
    def servers(self) -> List[Member]:
        """The parameter servers, by rank."""
        return sorted((m for m in self.members if m.role == "ps"), key=lambda m: m.rank)

    @property
    def is_standby(self) -> bool:
        """Whether this parameter server holds copies of what `servers[rank]` serves, until it is its turn."""
        return self.role == "ps" and all(member.index != self.index for member in self.servers)

    # -- progress

    def step(self, n: int, samples: int = 0, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Say that step n is finished. `samples` counts all samples consumed so far, globally. Never waits."""
        now = time.monotonic()
        if self._step_at is not None:
            self._durations.append((now - self._step_at) * 1000.0)
        first = self._phase != "train"
        self._step, self._step_at, self._phase = n, now, "train"
        self._samples = samples
        if metrics:
            self._metrics.update(metrics)
        self._unsent = True
        if first or now - self._sent_at >= SEND_INTERVAL:
            if first and self._agent is not None:
                self._send({"t": "phase", "name": "train"})
            self._flush()

    def epoch_done(self, n: int, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Say that n passes over the data are finished."""
        self._flush()
        self._send({"t": "epoch", "n": n, "metrics": dict(metrics or {})})

    def phase(self, name: str, budget: Optional[float] = None) -> None:
        """Say what the process does now: init, rendezvous, train, eval, ...; stall clocks depend on it (SL1).

        `budget`: the seconds that it may take, where that is not what the phase usually may; not for `train`.
        """
        self._flush(wait=True)  # whoever hears of the phase shall know the step
        self._phase, self._step_at = name, None
        self._send({"t": "phase", "name": name, **({} if budget is None else {"budget": budget})})

    def done(self) -> None:
        """Say that training is finished; the process shall exit with 0 afterwards."""
        self._flush()
        self._phase = "done"
        self._send({"t": "done"})

    # -- checkpoints

    def should_checkpoint(self, n: int) -> bool:
        """Whether step n is the one that a checkpoint was asked for. Call it after each step."""
        with self._told:
            self._asked = n
            order = self._order
            if order is None or n < order.step:
                return False
            if n == order.step:
                return True
            self._order = None
        self._send({"t": "past", "ckpt": order.ckpt, "step": n})
        return False

    def register(self, state: Mapping[str, Any]) -> None:
        """Say which tensors the state has, by name, type and shape: a restore and all saves are held against it.

        Without it, what is restored or saved first counts. Call it before `restore`, and after a change on purpose.
        """
        if self._agent is not None or self._store:
            self._layout = _agent_part("layout").layout_of_state(state)

    def save(self, n: int, state: Mapping[str, Any], meta: Optional[Mapping[str, Any]] = None) -> None:
        """Hand the state of step n to the agent; returns when it is copied, or after the pause that was ordered.

        The copy in the store is made by the agent while training goes on. Without an order it does nothing. Of torch
        tensors and read-only numpy arrays that did not change since the last checkpoint not even a copy is made.
        State of another layout than is registered is not saved; the operator's events and conditions say so.
        Raises: OSError when the copy cannot be written.
        """
        order = self._order
        if order is None or order.step != n or self._agent is None:
            return
        before = self._phase
        self.phase("checkpoint")
        answer = self._hand_over(order, state, dict(meta or {}))
        with self._told:
            if self._order is order:
                self._order = None
            if order.pause:  # a resume that came in between has cleared it
                self._pause_at = n
        self._send({**answer, "ckpt": order.ckpt})
        self.pause_point()
        if self._phase != before:
            self.phase(before)

    def restore(self) -> Optional[Restored]:
        """Return the state to start from, verified by hash, or None for a fresh start.

        Raises: RestoreFailed.
        """
        if self.restore_step == 0:
            return None
        if self._restore_ring or not self._restore_ckpt:
            return self.restore_at(self.restore_step)
        return self._from_store(self._restore_ckpt)

    def restore_at(self, step: int) -> Optional[Restored]:
        """Return the state of an earlier step: a snapshot of the ring, else a committed checkpoint; None for step 0.

        Raises: RestoreFailed.
        """
        if step == 0:
            return None
        found = self._from_ring(step)
        if found is not None:
            return found
        if self._store:
            backends = _agent_part("backends")
            try:
                committed = _agent_part("store").committed(self._home(), step=step)
            except backends.StoreError as error:
                raise RestoreFailed("step %d: %s" % (step, error)) from error
            if committed:
                return self._from_store(committed[0])
        raise RestoreFailed("neither the ring nor the store has step %d" % step)

    def snapshot(self, n: int, state: Mapping[str, Any], meta: Optional[Mapping[str, Any]] = None) -> None:
        """Keep the state of step n on the pod's own volume; the last three stay (PSR1)."""
        if not self.ring_dir:
            return
        ring = _agent_part("ring")
        path = ring.path_of(self.ring_dir, n, self.ps_epoch)
        _agent_part("packed").write(
            path, _agent_part("arrays").sources(state), step=n, ps_epoch=self.ps_epoch, meta=dict(meta or {})
        )
        ring.trim(self.ring_dir)

    # -- waiting

    def join(self) -> None:
        """Wait for the epoch that this process was started for; `init` does it.

        Raises: ServersLost when the agent is gone before that.
        """
        self.phase("rendezvous")
        with self._told:
            while not self._has_update() and self._agent is not None:
                self._told.wait()
        if self.ps_update() is None:
            raise ServersLost("the agent is gone, and with it the epoch that this process was to join")
        self.restore_step = self._step

    def pause_point(self) -> None:
        """Wait here while the operator wants a pause; a new parameter-server epoch ends the wait.

        Call it at each step boundary.
        """
        if not self._must_pause():
            return
        before = self._phase if self._phase != "checkpoint" else "train"
        self.phase("paused")
        with self._told:
            while self._must_pause():
                self._told.wait()
        self.phase(before)

    def wait_ps(self, timeout: Optional[float] = None) -> Optional[PsUpdate]:
        """Wait for a newer parameter-server epoch and take it; None when `timeout` passed first.

        Raises: ServersLost after 600 s without a timeout.
        """
        if self._phase != "waiting_ps":
            self.phase("waiting_ps")
        deadline = time.monotonic() + (WAIT_PS_BUDGET if timeout is None else timeout)
        with self._told:
            while not self._has_update() and self._agent is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._told.wait(left)
        update = self.ps_update()
        if update is None and timeout is None:
            raise ServersLost("no new parameter-server epoch after %d came in time" % self.ps_epoch)
        return update

    def ps_update(self) -> Optional[PsUpdate]:
        """Take a newer parameter-server epoch if there is one. Never waits."""
        if self._update is None:
            return None
        with self._told:
            update, self._update = self._update, None
            if update is None or update.ps_epoch <= self.ps_epoch:
                return None
            self.ps_epoch = update.ps_epoch
            self.epoch, self.world = max(self.epoch, update.epoch), update.world or self.world
            named = {member.role for member in update.members}
            others = tuple(member for member in self.members if member.role not in named)
            self.members = others + update.members
            for member in self.members:
                if (member.role, member.index) == (self.role, self.index):
                    self.rank = member.rank
            self._asked = self._step = update.step
            self._step_at, self._unsent = None, False
        if (
            self.role == "ps" and self.ring_dir
        ):  # snapshots after the step belong to a history that is void now
            _agent_part("ring").cut(self.ring_dir, update.step)
        self._send({"t": "psepoch", "n": update.ps_epoch, "step": update.step, "epoch": self.epoch})
        return update

    # -- private

    def _must_pause(self) -> bool:
        if self._pause_at is None or self._has_update():
            return False
        return max(self._asked, self._step) >= self._pause_at

    def _hand_over(self, order: _Order, state: Mapping[str, Any], meta: Dict[str, Any]) -> Dict[str, Any]:
        """Write the spool file of a checkpoint; return what the agent is to be told."""
        found = _agent_part("layout").layout_of_state(state)
        problem = _agent_part("layout").difference(found, self._layout)
        if problem:
            return {"t": "unsaved", "error": problem + "; if that is meant, call job.register(state) first"}
        self._layout = found
        path = os.path.join(self._spool_dir, order.ckpt + ".spool")
        if self._memory is None:
            self._memory = _agent_part("fingerprints").Memory()
        with self._told:
            distrusted, self._distrusted = self._distrusted, []
        self._memory.distrust(distrusted)
        sources = self._memory.sources(
            state, ckpt=order.ckpt, part=order.part, base=order.base, whole=_agent_part("arrays").source
        )
        about = {"step": order.step, "ps_epoch": self.ps_epoch, "meta": meta}
        _agent_part("packed").write(path, sources, hashed=False, **about)
        return {"t": "saved", "path": path}

    def _has_update(self) -> bool:
        return self._update is not None and self._update.ps_epoch > self.ps_epoch

    def _from_ring(self, step: int) -> Optional[Restored]:
        if not self.ring_dir:
            return None
        packed, array = _agent_part("packed"), _agent_part("arrays").array
        snapshot = _agent_part("ring").find(self.ring_dir, step)
        if snapshot is None:
            return None
        tensors = {t.name: array(packed.read_tensor(snapshot, t), t.dtype, t.shape) for t in snapshot.tensors}
        return Restored(snapshot.step, tensors, dict(snapshot.meta))

    def _home(self) -> Any:
        """Return this Trainer's part of the store, opened at first use."""
        if self._open_home is None:
            self._open_home = _agent_part("backends").HomeOpener(self._store, self._store_credentials)
        return self._open_home()

    def _from_store(self, ckpt: str) -> Restored:
        index, backends = _agent_part("index"), _agent_part("backends")
        try:
            reading = _agent_part("restoring").read(
                self._home(),
                ckpt,
                cache_folder=self._cache_dir,
                peers_file=self._peers_file,
                role=self.role,
                rank=self.rank,
                servers=len(self.servers),
            )
        except index.NotRestorable as error:
            self._send(
                {"t": "damaged", "ckpt": ckpt, "error": str(error)[:1024]}
            )  # so that an older one is taken
            raise RestoreFailed("checkpoint %s: %s" % (ckpt, error)) from error
        except backends.StoreError as error:
            raise RestoreFailed("checkpoint %s: %s" % (ckpt, error)) from error
        self._send({"t": "restored", **reading.told})
        found, data = reading.index, reading.data
        layout = _agent_part("layout").layout_of(found.tensors)
        problem = _agent_part("layout").difference(layout, self._layout)
        if problem:
            raise RestoreFailed("checkpoint %s is of another layout: %s" % (ckpt, problem))
        self._layout, array = layout, _agent_part("arrays").array
        return Restored(
            found.step,
            {t.name: array(data[t.name], t.dtype, t.shape) for t in found.tensors},
            dict(found.meta),
        )

    def _flush(self, *, wait: bool = False) -> None:
        """Send the progress that was not sent yet; steps that happened meanwhile travel together."""
        with self._sending:  # two threads flush, and no step may overtake a later one
            if not self._unsent or self._agent is None:
                return
            self._unsent, self._sent_at = False, time.monotonic()
            durations = []
            while self._durations:
                durations.append(self._durations.popleft())
            message = {
                "t": "step",
                "n": self._step,
                "samples": self._samples,
                "dt": durations,
                "metrics": self._metrics,
            }
            self._metrics = {}
            if not self._send(message, wait=wait):
                self._unsent = True

    def _send(self, message: Mapping[str, Any], *, wait: bool = True) -> bool:
        """Send one line; false when it did not go out."""
        agent = self._agent
        if agent is None:
            return False
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            with self._sending:
                if wait:
                    agent.sendall(line)
                else:
                    agent.send(line, socket.MSG_DONTWAIT)  # a line this short goes as a whole or not at all
        except OSError:
            return False
        return True

    def _listen(self, agent: socket.socket) -> None:
        buffer = b""
        while True:
            readable, _, _ = select.select([agent], [], [], 0.1)
            if self._unsent and time.monotonic() - self._sent_at >= 0.1:
                self._flush()
            if not readable:
                continue
            try:
                data = agent.recv(65536)
            except OSError:
                data = b""
            if not data or len(buffer) > _MAX_LINE:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(KeyError, TypeError, ValueError):
                    self._hear(json.loads(line))
        with self._told:  # the agent is gone: nobody could end a wait any more
            self._agent, self._pause_at = None, None
            self._told.notify_all()
        agent.close()

    def _hear(self, message: Mapping[str, Any]) -> None:
        kind = message["t"]
        answer: Optional[Dict[str, Any]] = None
        with self._told:
            if kind == "pause":
                self._pause_at = int(message.get("at", 0))
            elif kind == "resume":
                self._pause_at = None
                if self._order is not None:
                    self._order.pause = False
            elif kind == "updateps":
                update = PsUpdate(
                    int(message["psEpoch"]),
                    _members(message["members"]),
                    int(message["step"]),
                    int(message.get("epoch", 0)),
                    int(message.get("world", 0)),
                )
                if update.ps_epoch > max(self.ps_epoch, self._update.ps_epoch if self._update else 0):
                    self._update = update
            elif kind == "distrust":
                self._distrusted += [str(name) for name in message["names"]]
            elif kind == "checkpoint":
                ckpt, step = str(message["ckpt"]), int(message["step"])
                if self._asked >= step:
                    answer = {"t": "past", "ckpt": ckpt, "step": self._asked}
                else:
                    base, part = str(message.get("base", "")), str(message.get("part", ""))
                    self._order = _Order(ckpt, step, bool(message.get("pause")), base, part)
                    if self._pause_at is not None and self._pause_at < step:
                        self._pause_at = None  # it would keep us from the step that all shall save
                    answer = {"t": "accepted", "ckpt": ckpt, "step": step}
            self._told.notify_all()
        if answer is not None:
            self._send(answer)


def _connect(path: str) -> Optional[socket.socket]:
    if not path:
        return None
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        agent.connect(path)
    except OSError as error:
        agent.close()
        sys.stderr.write("trainer_sdk: no agent at %s (%s); going on without\n" % (path, error))
        return None
    return agent


def _register_dump() -> bool:
    """Have SIGUSR1 print all stacks, unless the program wants the signal for itself."""
    try:
        if signal.getsignal(signal.SIGUSR1) is not signal.SIG_DFL:
            return False
        faulthandler.register(signal.SIGUSR1, all_threads=True)
    except (OSError, ValueError, RuntimeError, AttributeError):
        return False
    return True


def _agent_part(name: str) -> Any:
    """Import a module of the agent; it lies in the zipapp beside this file."""
    import importlib

    full = "trainer_operator.agent." + name
    try:
        return importlib.import_module(full)
    except ImportError:
        archive = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.pyz")
        if archive in sys.path:
            raise
        sys.path.append(archive)
        return importlib.import_module(full)


def _members(entries: Any) -> Tuple[Member, ...]:
    return tuple(
        Member(str(e["role"]), int(e["index"]), int(e["rank"]), str(e["address"]), int(e["port"]))
        for e in entries
    )
