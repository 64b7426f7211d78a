"""The agent as a whole: wires the parts, waits for the reason to end, and leaves the last words (AG6, AG7, AG8)."""

from __future__ import annotations

import os
import random
import secrets
import signal
import sys
import tempfile
import threading
import time
from typing import Any, Callable, List, Mapping, Optional, Tuple

from trainer_operator.agent import apiserver, beats, probes, ring
from trainer_operator.agent.backends import HomeOpener
from trainer_operator.agent.chunkcache import keeping
from trainer_operator.agent.conversation import Conversation
from trainer_operator.agent.counters import OVERDUE, Counters
from trainer_operator.agent.directives import Executor
from trainer_operator.agent.fence import Fence
from trainer_operator.agent.lastwords import last_words
from trainer_operator.agent.launcher.launcher import Launcher
from trainer_operator.agent.link import Addresses, Connection, Link, tls_context
from trainer_operator.agent.saver import Saver
from trainer_operator.agent.settings import BadSettings, Settings
from trainer_operator.agent.sharing import Sharing
from trainer_operator.agent.state import State

_TERMINATED = 128 + signal.SIGTERM
_LONGEST_SOCKET_PATH = 100
_LAST_BEAT_TIME = 2.0
_GRACE_RESERVE = 2.0
"""Seconds of the pod's grace kept for the last beat and the last words."""
_SAVE_RESERVE = 5.0
"""Seconds of the grace kept for the process's end, when a checkpoint is taken before it (CS10)."""
_SAVE_PATIENCE = 5.0
"""Seconds that the process trains on when its pod is deleted, for the operator to ask for a checkpoint."""
_SAVE_POLL = 0.1


class Agent:
    """One agent for one pod.

    Guarantees: only `close`, SIGTERM or a long silence after the process's end make it end; a lost operator never
    does (AG8).
    """

    def __init__(
        self,
        settings: Settings,
        command: List[str],
        *,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wire the parts.

        Raises: BadSettings.
        """
        self._settings = settings
        self._boot = secrets.token_hex(8)
        self._ending = threading.Event()
        self._closed = threading.Event()
        self._terminated = False
        self._clock = clock
        self.state = State(clock)
        open_home = HomeOpener(settings.store, settings.store_credentials)
        kept = keeping(open_home, settings.cache_folder)
        self._saver = Saver(settings, self.state, open_home=kept, log=self._log)
        self._conversation = Conversation(
            settings, self.state, saver=self._saver, socket_path=_socket_path(settings.folder, self._boot)
        )
        self._sharing = Sharing(settings, news=self.state.news, log=self._log)
        self._saver.on_saved, self._conversation.on_restored = self._sharing.saved, self._sharing.restored
        self._launcher = Launcher(
            command,
            environment=environment,
            settings=settings,
            state=self.state,
            conversation=self._conversation,
            sharing=self._sharing,
            open_home=open_home,
            log=self._log,
        )
        self._executor = Executor(
            settings,
            self.state,
            launcher=self._launcher,
            conversation=self._conversation,
            open_home=open_home,
            is_saving=self._is_saving,
            log=self._log,
        )
        self._counters = Counters(settings.pod_ip)
        self._executor.on_wait = self._sharing.waits
        self._fence = self._make_fence(clock)
        self._link = self._make_link(clock)

    def run(self) -> int:
        """Serve until there is a reason to end, and return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._serve_probes, name="probes-start", daemon=True).start()
        self._sharing.start()
        self._executor.start()
        if self._link is not None:
            self._link.start()
            if self._settings.api_server is not None:
                threading.Thread(
                    target=self._fence.run, args=(self._ending,), name="fence", daemon=True
                ).start()
        while not self._ending.wait(1.0):
            self._launcher.look()
            silent = self.state.silent_for()
            if silent is not None and silent >= self._settings.linger:
                self._log("the process ended and the operator was silent for %d s" % silent)
                break
        return self._end()

    def _end(self) -> int:
        began, had_process = self._clock(), self.state.is_running
        if self._terminated:
            self._let_save(began)
        grace = began + self._settings.grace - _GRACE_RESERVE - self._clock()
        self._launcher.close(max(1.0, grace) if self._terminated else self._settings.stop_budget)
        ended = self.state.last_exit
        self._write_last_words(
            last_words(ended)
        )  # first of all: the rest may be cut short by the end of the grace
        self._saver.wait_idle(_GRACE_RESERVE if self._terminated else self._settings.grace)
        if self._link is not None:
            self._link.stop()
            if self._terminated:
                self._link.post_once(_LAST_BEAT_TIME)
        self._conversation.server.close()
        self._sharing.close()
        if self._terminated and (ended is None or (had_process and ended.sig)):
            return _TERMINATED
        return ended.code if ended is not None else 0

    def _let_save(self, began: float) -> None:
        """Let the process train on while the operator may want a checkpoint before the pod goes (CS10).

        It ends at once where none can be taken: without a store, without the SDK, or with little grace.
        """
        deadline = began + self._settings.grace - _SAVE_RESERVE
        patience = began + _SAVE_PATIENCE
        if not self._settings.store or not self._conversation.server.is_connected or deadline <= patience:
            return
        while self.state.is_running and self.state.phase != "draining":
            now = self._clock()
            if self._is_saving():
                patience = max(patience, now + 1.0)  # the decision of one that is written follows at once
            if now >= min(patience, deadline) or self._closed.wait(_SAVE_POLL):
                return

    def _is_saving(self) -> bool:
        return self._conversation.is_asked or self._saver.is_busy or self.state.has_undecided

    def _make_fence(self, clock: Callable[[], float]) -> Fence:
        address = self._settings.api_server
        return Fence(
            self.state,
            lost_after=self._settings.lost_after,
            reaches_api=lambda: address is not None and apiserver.is_reachable(address),
            pause=self._conversation.pause,
            resume=self._conversation.resume,
            log=self._log,
            clock=clock,
            rng=random.Random(self._boot),
        )

    def _make_link(self, clock: Callable[[], float]) -> Optional[Link]:
        if not self._settings.urls:
            self._log("TRAINER_OPERATOR_URLS is empty: nobody will say when to start")
            return None
        try:
            context = tls_context(self._settings.ca)
        except ValueError as error:
            raise BadSettings(str(error)) from error
        return Link(
            Addresses(self._settings.urls),
            connect=lambda url: Connection(url, context=context, token_file=self._settings.token_file),
            make_beat=self._make_beat,
            on_reply=self._on_reply,
            wait_news=self.state.wait_news,
            log=self._log,
            clock=clock,
            rng=random.Random(self._boot),
        )

    def _make_beat(self, hold: float) -> Tuple[bytes, List[str]]:
        have = ring.steps(self._settings.ring_folder) if self._settings.identity.role == "ps" else []
        view = self.state.view()
        seen = self._counters.read(view.pid, overdue=view.phase == "train" and view.step_age >= OVERDUE)
        told = {**seen, **self._sharing.told()}
        beat = beats.build(self._settings, view, boot=self._boot, have=have, hold=hold, seen=told)
        return beats.encode(beat), [result["id"] for result in beat["results"]]

    def _on_reply(self, reply: beats.Reply, reported: List[str]) -> None:
        self.state.heard()
        self._fence.heard(reply.epoch, reply.hb)
        self._sharing.learn(reply.epoch, reply.key)
        if self.state.listed([directive.id for directive in reply.directives], reported):
            self.state.news()
        self.state.decided(reply.decided)
        self._executor.submit(reply.directives)
        if reply.close:
            self._closed.set()
            self._ending.set()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._terminated = True
        self._ending.set()

    def _serve_probes(self) -> None:
        address = (self._settings.pod_ip, self._settings.port)
        while not self._ending.is_set():
            try:
                probes.ProbeServer(address, ready=self._is_ready)
            except OSError as error:
                self._log("probes cannot listen on %s:%d, trying again: %s" % (*address, error))
                self._ending.wait(1.0)
            else:
                return

    def _is_ready(self) -> bool:
        return probes.is_ready(running=self.state.is_running, phase=self.state.phase)

    def _write_last_words(self, words: bytes) -> None:
        try:
            with open(self._settings.termination_log, "wb") as file:
                file.write(words)
        except OSError as error:
            self._log("the last words were not written: %s" % error)

    def _log(self, text: str) -> None:
        try:
            sys.stderr.write("[agent] %s\n" % text)
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads us any more
            return


def _socket_path(folder: str, boot: str) -> str:
    """Return where the SDK's socket lies; the kernel allows 107 bytes."""
    path = os.path.join(folder, "sdk-%s.sock" % boot)
    if len(path) <= _LONGEST_SOCKET_PATH and os.access(folder, os.W_OK):
        return path
    return os.path.join(tempfile.mkdtemp(prefix="trainer-"), "sdk.sock")
