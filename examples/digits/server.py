"""A synchronous parameter server, and the workers' side of it.

The server owns some tensors and their momentum. A step is applied when every rank has pushed its gradient for it; a
push for another step or another psEpoch is refused, a repeated one counts once. So what the server holds after step s
does not depend on how often workers or servers were restarted on the way.

    worker -> server   {"op": "pull"}                          -> {"step"}, parameters
                       {"op": "pull", "at"}                    -> the same as they were one step before
                       {"op": "push", "step", "rank"}, grads   -> {"step"}, parameters, after the step is applied
                       {"op": "done", "rank"}                  -> {"step"}
    standby -> server  {"op": "follow", "after"}               -> {"step", "hash"}, the newest snapshot; or {"over"}
    every request carries "psEpoch"; {"error"} refuses it (PSR6)

With several servers a worker may die after it pushed to some of them only. Those are then one step ahead for good,
unless its successor computes the same step again; for that each server still knows its parameters before that step.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import model
import numpy as np
import wire
from data import Floats

SNAPSHOT_STEPS = 20
_FOLLOW = 1.0
"""Seconds after which a standby without news is answered all the same, so that each side knows of the other."""
_POLL = 0.05
_LAST_PATIENCE = 10.0
"""Seconds that a server with all steps applied waits for workers that may be gone already."""


class Job(Protocol):
    """What the server needs of the SDK's job."""

    ps_epoch: int
    world: int

    def step(self, n: int, samples: int = 0) -> None:
        """Report a finished step."""

    def should_checkpoint(self, n: int) -> bool:
        """Whether to save step n."""

    def save(self, n: int, state: model.Tensors) -> None:
        """Save step n."""

    def snapshot(self, n: int, state: model.Tensors) -> None:
        """Keep step n in the ring."""

    def pause_point(self) -> None:
        """Wait while paused."""

    def ps_update(self) -> Any:
        """Return a new parameter-server epoch, if there is one."""

    def restore_at(self, step: int) -> Any:
        """Return the state of an earlier step."""


def owned(index: int, servers: int) -> tuple[str, ...]:
    """Return the names of the tensors that one server of several owns."""
    return tuple(name for position, name in enumerate(model.NAMES) if position % servers == index)


def copied(state: model.Tensors) -> model.Tensors:
    """Return a state that later steps do not change."""
    return {name: np.array(value) for name, value in state.items()}


def digest(state: model.Tensors) -> str:
    """Return a hash over names and values."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(name.encode() + np.ascontiguousarray(state[name]).tobytes())
    return found.hexdigest()


class Server:
    """Serves its tensors until every worker is done.

    Guarantees: `step` rises by one at a time, but for a rollback that the operator ordered; replies carry the state
    of exactly the step that they name.
    """

    def __init__(
        self,
        job: Job,
        state: model.Tensors,
        step: int,
        *,
        total: int,
        batch_size: Callable[[int], int],
        consumed: Callable[[int], int],
        on_applied: Callable[[int], None],
        fresh: Callable[[], model.Tensors],
    ) -> None:
        self._job, self._step = job, step
        self._parameters, self._momentum = model.from_state(state)
        self._total = total
        self._batch_size, self._consumed, self._on_applied, self._fresh = (
            batch_size,
            consumed,
            on_applied,
            fresh,
        )
        self._changed = threading.Condition()
        self._ps_epoch = job.ps_epoch
        self._earlier = {name: value.copy() for name, value in self._parameters.items()}
        self._released = step
        self._snapshot = (step, copied(state))
        self._pushed: dict[int, dict[str, Floats]] = {}
        self._done: set[int] = set()
        self._heard = time.monotonic()
        self._over = False

    def serve(self, listener: socket.socket) -> None:
        """Serve until all workers said that they are done."""
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        while not self._is_over():
            self._job.pause_point()
            update = self._job.ps_update()
            if update is not None:
                self._roll_to(update)
            with self._changed:
                if len(self._pushed) < self._job.world:
                    self._changed.wait(_POLL)
                if len(self._pushed) < self._job.world:
                    continue
                self._apply()
            self._after_step()
        with self._changed:
            self._over = True
            self._changed.notify_all()
        time.sleep(_POLL)  # let the last replies leave

    def _apply(self) -> None:
        by_rank = [self._pushed[rank] for rank in sorted(self._pushed)]
        total = {name: np.sum([pushed[name] for pushed in by_rank], axis=0) for name in self._parameters}
        self._earlier = {name: value.copy() for name, value in self._parameters.items()}
        self._step += 1
        model.apply(self._parameters, self._momentum, total, batch=self._batch_size(self._step))
        self._pushed.clear()

    def _after_step(self) -> None:
        """Report and keep the step before any worker hears of it: what a worker knows can be restored."""
        step = self._step
        snapshot = self._snapshot
        self._on_applied(step)
        self._job.step(step, samples=self._consumed(step))
        if step % SNAPSHOT_STEPS == 0 or step == self._total:
            snapshot = (step, copied(model.to_state(self._parameters, self._momentum)))
            self._job.snapshot(*snapshot)
        if self._job.should_checkpoint(step):
            self._job.save(step, model.to_state(self._parameters, self._momentum))
        with self._changed:
            self._released, self._snapshot = step, snapshot
            self._changed.notify_all()

    def _roll_to(self, update: Any) -> None:
        """Go to the step that all servers share: back after a loss (PSR4), our own when only the workers change (ME5)."""
        with self._changed:
            if update.step != self._step:
                restored = self._job.restore_at(update.step)
                state = restored.state if restored is not None else self._fresh()
                self._parameters, self._momentum = model.from_state(state)
                self._earlier = {name: value.copy() for name, value in self._parameters.items()}
            self._step, self._released, self._ps_epoch = update.step, update.step, update.ps_epoch
            self._snapshot = (self._step, copied(model.to_state(self._parameters, self._momentum)))
            self._pushed.clear()
            self._done.clear()
            self._changed.notify_all()

    def _is_over(self) -> bool:
        with self._changed:
            quiet = time.monotonic() - self._heard
            return len(self._done) >= self._job.world or (
                self._step >= self._total and quiet > _LAST_PATIENCE
            )

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:  # the listener is closed: training is over
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(wire.Lost, KeyError, TypeError, ValueError):
            while True:
                request, gradients = wire.receive(peer)
                header, tensors = self._answer(request, gradients)
                wire.send(peer, header, tensors)

    def _answer(
        self, request: dict[str, Any], gradients: dict[str, Floats]
    ) -> tuple[dict[str, Any], model.Tensors]:
        with self._changed:
            if request["op"] != "follow":  # that one says nothing of workers
                self._heard = time.monotonic()
            ps_epoch = self._ps_epoch
            if request["psEpoch"] != ps_epoch:
                return {"error": f"psEpoch is {ps_epoch} here"}, {}
            if request["op"] == "done":
                self._done.add(request["rank"])
                self._changed.notify_all()
                return {"step": self._step}, {}
            if request["op"] == "follow":
                return self._follow(request["after"])
            if request["op"] == "push" and request["step"] == self._step + 1:
                self._pushed[request["rank"]] = gradients
                self._changed.notify_all()
                self._changed.wait_for(
                    lambda: self._released >= request["step"] or self._ps_epoch != ps_epoch
                )
            else:
                self._changed.wait_for(lambda: self._released == self._step or self._ps_epoch != ps_epoch)
            self._heard = time.monotonic()
            wanted = request.get("at", request.get("step", self._step))
            if self._ps_epoch == ps_epoch and wanted == self._step:
                return {"step": self._step}, {name: value.copy() for name, value in self._parameters.items()}
            if self._ps_epoch == ps_epoch and request["op"] == "pull" and wanted == self._step - 1:
                return {"step": wanted}, {name: value.copy() for name, value in self._earlier.items()}
            return {"error": f"step {wanted} is not at hand: {self._step} of psEpoch {self._ps_epoch} is"}, {}

    def _follow(self, held: int) -> tuple[dict[str, Any], model.Tensors]:
        """Answer a standby that holds this step: with a newer snapshot, or the same one when there is none in time."""
        ps_epoch = self._ps_epoch
        self._changed.wait_for(
            lambda: self._snapshot[0] > held or self._over or self._ps_epoch != ps_epoch, _FOLLOW
        )
        if self._ps_epoch != ps_epoch:
            return {"error": f"psEpoch is {self._ps_epoch} here"}, {}
        step, state = self._snapshot
        return {"step": step, "hash": digest(state), "over": self._over}, state


def follow(place: tuple[str, int], *, source: str, ps_epoch: int) -> Iterator[tuple[int, model.Tensors]]:
    """Yield the snapshots of the server that we stand by for, each once and checked by its hash, until it is over (PSR1).

    Raises: wire.Lost when it is gone or refuses us: the psEpoch is over then.
    """
    held = -1
    with contextlib.closing(wire.connect(*place, source=source, patience=0.0)) as peer:
        peer.settimeout(3 * _FOLLOW)  # a node that is gone closes no connection
        while True:
            wire.send(peer, {"op": "follow", "after": held, "psEpoch": ps_epoch})
            header, state = wire.receive(peer)
            if "error" in header:
                raise wire.Lost(f"the server refused: {header['error']}")
            if digest(state) != header["hash"]:
                raise wire.Lost(f"the snapshot of step {header['step']} is damaged")
            if header["step"] > held:
                held = header["step"]
                yield held, state
            if header["over"]:
                return


class Client:
    """A worker's connections to all servers of one psEpoch.

    Raises: wire.Lost from any method when a server is gone or refuses us: the psEpoch is over then.
    """

    def __init__(
        self, servers: Sequence[tuple[str, int]], *, source: str, ps_epoch: int, patience: float
    ) -> None:
        self._ps_epoch = ps_epoch
        self._peers: list[socket.socket] = []
        try:
            for address, port in servers:
                self._peers.append(wire.connect(address, port, source=source, patience=patience))
        except wire.Lost:
            self.close()
            raise

    def pull(self) -> tuple[int, model.Tensors]:
        """Return the step that all servers have applied, and all parameters at that step."""
        steps, parameters = self._ask([({"op": "pull"}, {}) for _ in self._peers])
        if len(steps) > 1:
            at = {"op": "pull", "at": min(steps)}
            steps, parameters = self._ask([(at, {}) for _ in self._peers])
        if len(steps) != 1:
            raise wire.Lost(f"the servers stand at different steps: {sorted(steps)}")
        return steps.pop(), parameters

    def push(self, step: int, rank: int, gradients: model.Tensors) -> model.Tensors:
        """Give our gradients for a step; return the parameters after it."""
        requests = []
        for index in range(len(self._peers)):
            mine = {name: gradients[name] for name in owned(index, len(self._peers))}
            requests.append(({"op": "push", "step": step, "rank": rank}, mine))
        return self._ask(requests)[1]

    def done(self, rank: int) -> None:
        """Say that this worker needs the servers no more."""
        self._ask([({"op": "done", "rank": rank}, {}) for _ in self._peers])

    def close(self) -> None:
        """Close all connections."""
        for peer in self._peers:
            peer.close()

    def _ask(
        self, requests: Sequence[tuple[dict[str, Any], model.Tensors]]
    ) -> tuple[set[int], model.Tensors]:
        for peer, (header, tensors) in zip(self._peers, requests, strict=True):
            wire.send(peer, {**header, "psEpoch": self._ps_epoch}, tensors)
        parameters: model.Tensors = {}
        steps: set[int] = set()
        for peer in self._peers:
            header, tensors = wire.receive(peer)
            if "error" in header:
                raise wire.Lost(f"a server refused: {header['error']}")
            steps.add(int(header["step"]))
            parameters.update(tensors)
        return steps, parameters
