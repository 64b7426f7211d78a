"""Directives carried out once per id (MG1), each kind by one small function.

Three lanes, each in order: the process lane (Prepare may take seconds, a Go must not overtake it), the store lane, so
that no store operation ever delays a process, and the scrub lane, so that no scrub of hours delays a decision. Orders
to the SDK are quick and go with the process lane.
"""

from __future__ import annotations

import queue
import threading
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Set, Tuple

from trainer_operator.agent import scrub, storeops
from trainer_operator.agent.backends import OpenHome, StoreError
from trainer_operator.agent.beats import Directive
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.launcher.launcher import Launcher
from trainer_operator.agent.saver import SaveOrder
from trainer_operator.agent.settings import Settings
from trainer_operator.agent.state import Result, State
from trainer_operator.agent.store import step_of
from trainer_operator.agent.storeops import BadArguments, OperationFailed, text, whole

_LATER = object()
"""Returned by a handler whose result comes from the process, not from the handler."""
_MAX_COPIES = 16


class Executor:
    """Carries out directives.

    Guarantees: an id is carried out at most once; each that is carried out gets a result, also when it is malformed
    or of an unknown kind. A start that its store keeps from happening is not carried out yet, and is asked for again.
    """

    def __init__(
        self,
        settings: Settings,
        state: State,
        *,
        launcher: Launcher,
        conversation: Conversation,
        open_home: OpenHome,
        is_saving: Callable[[], bool],
        log: Callable[[str], None],
    ) -> None:
        self._settings, self._state, self._open_home = settings, state, open_home
        self._is_saving, self._log = is_saving, log
        self._launcher, self._conversation = launcher, conversation
        self.on_wait: Callable[[str], None] = lambda _reason: None
        """Told why a start waits for the store, and with an empty reason that none does any more."""
        self._lock = threading.Lock()
        self._taken: Set[str] = set()
        self._process_lane: "queue.Queue[Directive]" = queue.Queue()
        self._lanes: Dict[str, "queue.Queue[Directive]"] = {"Store": queue.Queue(), "Scrub": queue.Queue()}
        self._kinds: Dict[str, Callable[[Directive], Any]] = {
            "Prepare": self._prepare,
            "Go": self._go,
            "Checkpoint": self._checkpoint,
            "Pause": self._pause,
            "Resume": self._resume,
            "UpdatePS": self._update_servers,
            "Store": self._store,
            "Scrub": self._scrub,
            "DumpStacks": self._dump_stacks,
            "Drain": self._drain,
            "RestartProcess": self._restart_process,
        }

    def start(self) -> None:
        """Start the lanes in daemon threads."""
        for name, lane in {"Process": self._process_lane, **self._lanes}.items():
            threading.Thread(
                target=self._work, args=(lane,), name=name.lower() + "-lane", daemon=True
            ).start()

    def submit(self, directives: Iterable[Directive]) -> None:
        """Take what a reply lists; what was taken before is passed over."""
        for directive in directives:
            with self._lock:
                if directive.id in self._taken or self._state.result_of(directive.id) is not None:
                    continue
                self._taken.add(directive.id)
            self._lanes.get(directive.kind, self._process_lane).put(directive)

    def execute(self, directive: Directive) -> Optional[Result]:
        """Carry out one directive; None when its result comes later."""
        handler = self._kinds.get(directive.kind)
        if handler is None:
            return Result(directive.id, False, None, "this agent does not know %r" % directive.kind[:64])
        try:
            value = handler(directive)
        except OperationFailed as error:
            return Result(directive.id, False, error.value, str(error))
        except StoreError as error:
            if directive.kind == "Go":  # the store is at fault, not the checkpoint: the next reply asks again
                self._log("the start waits for the store: %s" % error.told)
                self.on_wait(error.told)
                self._let_repeat(directive)
                return None
            return Result(directive.id, False, None, error.told)
        except (BadArguments, OSError, TypeError, ValueError) as error:
            return Result(directive.id, False, None, str(error) or type(error).__name__)
        return None if value is _LATER else Result(directive.id, True, value)

    def _work(self, lane: "queue.Queue[Directive]") -> None:
        while True:
            directive = lane.get()
            result = self.execute(directive)
            if result is not None:
                if directive.kind == "Go":
                    self.on_wait("")
                self._state.add_result(result)
                self._let_repeat(directive)

    def _let_repeat(self, directive: Directive) -> None:
        with self._lock:
            self._taken.discard(directive.id)

    def _prepare(self, directive: Directive) -> Any:
        return self._launcher.prepare(whole(directive.args, "epoch"))

    def _go(self, directive: Directive) -> Any:
        self._conversation.start = directive.id
        return self._launcher.go(directive.args)

    def _checkpoint(self, directive: Directive) -> Any:
        order = _save_order(directive.args, self._state.epoch)
        pause = bool(directive.args.get("pause"))
        if not self._state.is_running:
            raise self._refused(order, "no process")
        if not order.copies:
            if pause:
                self._conversation.pause(order.step)
            return {"step": order.step}
        if not self._settings.store:
            raise self._refused(order, "this pod has no store mounted")
        if self._state.is_plain:
            raise self._refused(order, "the training code does not use trainer_sdk, so nothing can be saved")
        if self._state.step >= order.step:
            raise OperationFailed("past", {"step": self._state.step})
        self._conversation.ask_checkpoint(order, pause=pause, directive=directive.id)
        if self._state.last_exit is not None and self._state.result_of(directive.id) is None:
            self._conversation.ended()  # it ended while we asked
        return _LATER

    def _refused(self, order: SaveOrder, reason: str) -> OperationFailed:
        """Say that no copy will come, so that nobody waits for it."""
        self._conversation.refuse(order, reason)
        return OperationFailed(reason)

    def _pause(self, directive: Directive) -> Any:
        self._conversation.pause(whole(directive.args, "step", default=0))
        return None

    def _resume(self, _directive: Directive) -> Any:
        self._conversation.resume()
        return None

    def _update_servers(self, directive: Directive) -> Any:
        args = directive.args
        members = args.get("members")
        if not isinstance(members, list):
            raise BadArguments("members must be a list")
        message = {
            "psEpoch": whole(args, "psEpoch"),
            "step": whole(args, "step", default=0),
            "epoch": whole(args, "epoch", default=0),
            "world": whole(args, "world", default=0),
            "members": members,
        }
        self._conversation.update_servers(message)
        return None

    def _store(self, directive: Directive) -> Any:
        return storeops.run(self._open_home(), directive.args)

    def _scrub(self, directive: Directive) -> Any:
        return scrub.run(self._open_home(), directive.args, is_busy=self._is_saving)

    def _dump_stacks(self, _directive: Directive) -> Any:
        step, age = self._state.standing()  # first: a step that comes meanwhile makes the stacks old
        return {"stacks": self._launcher.dump_stacks(), "step": step, "age": age}

    def _restart_process(self, directive: Directive) -> Any:
        """End the run that was given up; the next Go starts another one."""
        return {"ended": self._launcher.end_run(whole(directive.args, "run"))}

    def _drain(self, directive: Directive) -> Any:
        """End the process of a pod that is about to be deleted; the successor of that pod must not take it for its own."""
        pod, own = text(directive.args, "pod"), self._settings.identity.pod_uid
        if pod != own:
            raise OperationFailed("meant for pod %s" % pod[:64])
        return {"draining": self._launcher.drain(float(whole(directive.args, "budget")))}


def _save_order(args: Mapping[str, Any], epoch: int) -> SaveOrder:
    ckpt, step = text(args, "ckpt"), whole(args, "step")
    if step_of(ckpt) != step:
        raise BadArguments("checkpoint %s does not name step %d" % (ckpt, step))
    copies = args.get("copies")
    if not isinstance(copies, list) or len(copies) > _MAX_COPIES:
        raise BadArguments("copies must be a list of at most %d numbers" % _MAX_COPIES)
    numbers: Tuple[int, ...] = tuple(whole({"copy": copy}, "copy") for copy in copies)
    intent = args.get("intent")
    return SaveOrder(
        ckpt,
        step,
        whole(args, "shard", default=0),
        numbers,
        epoch,
        store_id=str(args.get("storeId") or ""),
        base=str(args.get("base") or ""),
        intent=intent if isinstance(intent, Mapping) else {},
    )
