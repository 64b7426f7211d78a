"""The conversation with the training process: what it says becomes state, what it is told becomes orders.

    SDK -> agent   hello, step, phase, epoch, psepoch, accepted, past, saved, unsaved, damaged, restored, done
    agent -> SDK   checkpoint, pause, resume, updateps, distrust

A checkpoint is asked for, accepted or refused as past, then saved: the process hands over a packed file in the spool
and goes on; the saver takes it from there.
"""

from __future__ import annotations

import math
import os
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from trainer_operator.agent import ring
from trainer_operator.agent.layout import LayoutChanged
from trainer_operator.agent.saver import SaveOrder, Saver
from trainer_operator.agent.sdksocket import Message, SdkServer
from trainer_operator.agent.settings import Settings
from trainer_operator.agent.state import PHASES, Result, State

_DRAIN_TIME = 2.0
_NAMES_TOLD = 512


class Conversation:
    """Interprets the SDK's messages and keeps the checkpoints that were asked for.

    Guarantees: a checkpoint that was asked for ends in a result and, once accepted, in acks, also when the process
    ends first.
    """

    def __init__(self, settings: Settings, state: State, *, saver: Saver, socket_path: str) -> None:
        self._settings, self._state, self._saver = settings, state, saver
        self._lock = threading.Lock()
        self._asked: Dict[str, Tuple[SaveOrder, str]] = {}
        self.can_dump = False
        self.on_restored: Callable[[Message], None] = lambda _message: None
        """Told where the bytes of a restore came from."""
        self.start = ""
        """Id of the directive that the process was started by."""
        self.server = SdkServer(socket_path, on_message=self._take)

    # -- towards the process

    def begin(self) -> None:
        """Start over for a new process."""
        self.server.reset()
        self.can_dump = False

    def pause(self, at: int = 0) -> None:
        """Pause at the next step boundary that is not before step `at`."""
        self.server.order("pause", {"t": "pause", "at": at})

    def resume(self) -> None:
        """Go on; a checkpoint that was asked for is still taken, but without the pause."""
        self.server.order("pause", None, say={"t": "resume"})

    def update_servers(self, message: Mapping[str, Any]) -> None:
        """Tell the process of a new parameter-server epoch; snapshots after its step are void (ND5)."""
        ring.cut(self._settings.ring_folder, int(message["step"]))
        self.server.order("updateps", {"t": "updateps", **message})

    def ask_checkpoint(self, order: SaveOrder, *, pause: bool, directive: str) -> None:
        """Ask for a checkpoint; the result of the directive follows when the process accepts or refuses."""
        with self._lock:
            self._asked[order.ckpt] = (order, directive)
        message = {"t": "checkpoint", "ckpt": order.ckpt, "step": order.step, "pause": pause}
        self.server.order("checkpoint", {**message, "base": order.base, "part": order.part})

    def distrust(self, names: Tuple[str, ...]) -> None:
        """Tell the process that these tensors change without a trace (FZ2)."""
        self.server.order("distrust", None, say={"t": "distrust", "names": list(names)[:_NAMES_TOLD]})

    @property
    def is_asked(self) -> bool:
        """Whether a checkpoint was asked for that the process has not handed over yet."""
        return bool(self._asked)

    def refuse(self, order: SaveOrder, reason: str) -> None:
        """Report that none of the copies of a checkpoint will come, without asking the process."""
        self._saver.fail(order, reason)

    def ended(self) -> None:
        """Take the last words of an ended process and fail what it did not save any more."""
        self.server.drain(_DRAIN_TIME)
        self.server.reset()
        with self._lock:
            left, self._asked = list(self._asked.values()), {}
        for order, directive in left:
            if self._state.result_of(directive) is None:
                self._state.add_result(Result(directive, False, None, "the process ended"))
            self._saver.fail(order, "the process ended before it saved")

    # -- from the process

    def _take(self, message: Message) -> None:
        try:
            self._interpret(message)
        except (KeyError, TypeError, ValueError, OverflowError, OSError):
            return  # a foreign or broken SDK must not end the conversation

    def _interpret(self, message: Message) -> None:
        kind = message["t"]
        if kind == "step":
            self._state.stepped(
                int(message["n"]),
                samples=int(message.get("samples", 0)),
                dt_ms=_finite_list(message.get("dt", [])),
                metrics=_metrics(message.get("metrics", {})),
            )
        elif kind == "phase" and message["name"] in PHASES:
            budget = _finite_list([message["budget"]]) if message.get("budget") is not None else []
            self._state.entered(message["name"], budget=budget[0] if budget and budget[0] > 0 else None)
        elif kind == "epoch":
            self._state.finished_data_epoch(int(message["n"]), _metrics(message.get("metrics", {})))
        elif kind == "psepoch":
            self._state.rolled_to(int(message["n"]), int(message["step"]), epoch=int(message.get("epoch", 0)))
        elif kind == "hello":
            self.can_dump = bool(message.get("dump"))
            self._state.greeted(soft_epochs=bool(message.get("softEpochs")))
        elif kind in ("accepted", "past"):
            self._answered(str(message["ckpt"]), past=kind == "past", step=int(message.get("step", 0)))
        elif kind == "saved":
            self._saved(str(message["ckpt"]), str(message["path"]))
        elif kind == "unsaved":
            self._unsaved(str(message["ckpt"]), str(message["error"]))
        elif kind == "restored":
            self.on_restored(message)
        elif kind == "damaged":
            self._damaged(str(message["ckpt"]), str(message["error"]))
        elif kind == "done":
            self._state.entered("done")

    def _answered(self, ckpt: str, *, past: bool, step: int) -> None:
        with self._lock:
            asked = self._asked.get(ckpt)
            if asked is not None and past:
                del self._asked[ckpt]
        if asked is None:
            return
        order, directive = asked
        if not past:
            self._state.add_result(Result(directive, True, {"step": order.step}))
            return
        self.server.order("checkpoint", None)
        if self._state.result_of(directive) is None:
            self._state.add_result(Result(directive, False, {"step": step}, "past"))
        else:
            self._saver.fail(order, "the process was already at step %d" % step)

    def _damaged(self, ckpt: str, error: str) -> None:
        """Take the start for refused: what it was to begin from does not match its hashes (RS2)."""
        if self.start:
            self._state.add_result(Result(self.start, False, {"ckpt": ckpt}, "restore: %s" % error))

    def _unsaved(self, ckpt: str, error: str) -> None:
        """Fail the copies of a state that is not of the registered layout (QR4)."""
        asked = self._take_asked(ckpt)
        if asked is not None:
            self._saver.fail(asked[0], LayoutChanged(error[:1024]).told)

    def _saved(self, ckpt: str, path: str) -> None:
        asked = self._take_asked(ckpt)
        spool = os.path.realpath(self._settings.spool_folder)
        if os.path.dirname(os.path.realpath(path)) != spool:
            if asked is not None:
                self._saver.fail(asked[0], "the process named a file outside of the spool")
            return
        if asked is None:
            os.unlink(path)
            return
        self._saver.enqueue(asked[0], path)

    def _take_asked(self, ckpt: str) -> Optional[Tuple[SaveOrder, str]]:
        """Return the order that the process has answered now; None when nobody asked, or not any more."""
        with self._lock:
            asked = self._asked.pop(ckpt, None)
        if asked is not None:
            self.server.order("checkpoint", None)
            if self._state.result_of(asked[1]) is None:
                self._state.add_result(Result(asked[1], True, {"step": asked[0].step}))
        return asked


def _finite_list(values: Any) -> List[float]:
    return [float(value) for value in list(values)[-16:] if math.isfinite(float(value))]


def _metrics(values: Any) -> Dict[str, float]:
    return {
        str(name)[:64]: float(value)
        for name, value in list(dict(values).items())[:8]
        if math.isfinite(float(value))
    }
