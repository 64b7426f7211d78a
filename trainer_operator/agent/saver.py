"""The checkpoint writer: takes what the SDK handed over and makes durable copies, while training goes on (QR3, CS11)."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Tuple

from trainer_operator.agent import packed, store
from trainer_operator.agent.backends import OpenHome, StoreError
from trainer_operator.agent.copying import write_copy
from trainer_operator.agent.records import Malformed
from trainer_operator.agent.settings import Settings
from trainer_operator.agent.state import CopyAck, State

NICENESS = 10
"""Of the threads that hash and write, over training's: on a processor that both want, each weighs a tenth of one that trains."""


@dataclass(frozen=True)
class SaveOrder:
    """What the operator asked of this member for one checkpoint."""

    ckpt: str
    step: int
    shard: int
    copies: Tuple[int, ...]
    epoch: int
    store_id: str = ""
    """Id of the store that earlier checkpoints of this Trainer lie in; empty before the first one (CK7)."""
    base: str = ""
    """Id of the checkpoint whose unchanged data may be referred to; it is pinned until this one is decided (CS1)."""
    intent: Mapping[str, Any] = field(default_factory=dict)
    """What is being attempted, as all holders write it."""

    @property
    def part(self) -> str:
        """Which part of the state these copies are; what a process saved as another part is no base for it."""
        return "%d/%s" % (self.shard, ",".join(map(str, self.copies)))


class Saver:
    """Writes copies one after the other in one thread.

    It steps back behind training: its threads take the processor only where nobody else wants it as much.

    Guarantees: each copy of an order ends in exactly one ack, good or bad; a good one is reported only after chunks,
    index and ack are durable in the store (IV11). The data outlives the process that made it.
    """

    def __init__(
        self, settings: Settings, state: State, *, open_home: OpenHome, log: Callable[[str], None]
    ) -> None:
        self._settings, self._state, self._open_home, self._log = settings, state, open_home, log
        self._queue: "queue.Queue[Optional[Tuple[SaveOrder, str]]]" = queue.Queue()
        self._busy = False
        self.on_differing: Callable[[Tuple[str, ...]], None] = lambda _names: None
        """Told of tensors that the process took for unchanged and that are not (FZ2)."""
        self.on_saved: Callable[[str, int], None] = lambda _ckpt, _shard: None
        """Told of a shard of a checkpoint whose copies are all durable."""
        self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
        self._thread.start()

    def enqueue(self, order: SaveOrder, path: str) -> None:
        """Write the copies of an order from a packed file, then delete the file."""
        self._queue.put((order, path))

    @property
    def is_busy(self) -> bool:
        """Whether copies are being written, or wait to be."""
        return self._busy or not self._queue.empty()

    def fail(self, order: SaveOrder, reason: str) -> None:
        """Report that no copy of an order will come."""
        for copy in order.copies:
            self._state.add_ack(CopyAck(order.ckpt, order.shard, copy, 0, order.step, False, reason))

    def wait_idle(self, timeout: float) -> bool:
        """Stop after what is queued; false when time ran out."""
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        _step_back()
        while True:
            item = self._queue.get()
            if item is None:
                return
            self._busy = True
            order, path = item
            try:
                self._save(order, path)
            except (StoreError, OSError, ValueError) as error:
                self._log("checkpoint %s was not saved: %s" % (order.ckpt, error))
                self.fail(order, error.told if isinstance(error, StoreError) else str(error))
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)
                self._busy = False

    def _save(self, order: SaveOrder, path: str) -> None:
        source = packed.read_header(path)
        if source.step != order.step:
            raise Malformed("the process saved step %d instead of %d" % (source.step, order.step))
        packed.verify(source)
        home = self._open_home()
        where = store.CheckpointDir(home, order.ckpt)
        store.identify(home, expected=order.store_id)
        store.write_intent(where, {**order.intent, "ckpt": order.ckpt})
        identity = self._settings.identity
        for copy in order.copies:
            base = where.sibling(order.base) if order.base else None
            done = write_copy(where, source, shard=order.shard, copy=copy, epoch=order.epoch, base=base)
            if done.differing:
                self.on_differing(done.differing)
                names = ", ".join(done.differing[:8])
                self._log("%s changed unnoticed; from now on all of it is compared: %s" % (order.ckpt, names))
            ack = done.ack(identity.pod_uid, identity.node, step=order.step, epoch=order.epoch)
            store.write_ack(where, order.shard, copy, ack=ack)
            self._state.add_ack(CopyAck(order.ckpt, order.shard, copy, done.bytes, order.step, True))
        self.on_saved(order.ckpt, order.shard)


def _step_back() -> None:
    """Lower the priority of this thread, and so of those that it starts; the rest of the agent keeps its own."""
    with contextlib.suppress(OSError):  # a sandbox may forbid it: then saves compete with training
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS))
