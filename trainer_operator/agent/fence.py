"""Self-fence: a training whose agent is cut off from everybody pauses, for others may go on without it (AG8, ND5).

    trains ──operator silent for 3 lost windows, and API server out of reach──▶ paused
    paused ──operator heard, epoch unchanged──▶ trains on;  epoch moved on──▶ the operator's orders end the process

An operator that is down alone changes nothing, which is what the API server is asked for. A pod that could never reach
it, because a network policy forbids that, cannot tell the two apart and never pauses.
"""

from __future__ import annotations

import random
import threading
from typing import Callable, Optional

from trainer_operator.agent.state import State

WINDOWS = 3
LOOK_PERIOD = 1.0
Clock = Callable[[], float]


class Fence:
    """Pauses the training of an agent that is cut off, and lets it go on.

    Guarantees: the process is never ended; it is paused at a step boundary, at most once until the operator is heard.
    A training that the operator had paused is left as it is.
    """

    def __init__(
        self,
        state: State,
        *,
        lost_after: float,
        reaches_api: Callable[[], bool],
        pause: Callable[[], None],
        resume: Callable[[], None],
        log: Callable[[str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._state, self._reaches_api = state, reaches_api
        self._pause, self._resume, self._log = pause, resume, log
        self._clock, self._rng = clock, rng
        self._lock = threading.Lock()
        self._lost_after = lost_after
        self._window = lost_after
        self._heard_at = clock()
        self._next_look = 0.0
        self._can_tell = False
        self._paused_run: Optional[int] = None

    def run(self, ending: threading.Event) -> None:
        """Look every second until the agent ends."""
        while not ending.wait(LOOK_PERIOD):
            self.look()

    def heard(self, epoch: int, hb: float) -> None:
        """Note an answer of the operator: its present epoch, and the heartbeat that the lost window follows (DT3)."""
        with self._lock:
            self._heard_at = self._clock()
            self._window = max(3 * hb, self._lost_after)
            if self._paused_run is None or epoch != self._state.epoch:
                return
            same_run, self._paused_run = self._paused_run == self._state.run, None
            if same_run:
                self._log("the operator answers and the epoch is unchanged: training goes on")
                self._resume()

    def look(self) -> None:
        """Pause if nobody is heard; the API server is asked once in three windows, by each agent at its own time."""
        if not self._state.is_running or self._paused_run is not None or self._clock() < self._next_look:
            return
        if self._can_tell and not self._is_silent():
            return
        reached = self._reaches_api()
        self._next_look = self._clock() + WINDOWS * self._window * self._rng.uniform(0.5, 1.0)
        if reached:
            self._can_tell = True
        elif self._can_tell:
            self._pause_if_still_silent()

    def _is_silent(self) -> bool:
        return self._clock() - self._heard_at > WINDOWS * self._window

    def _pause_if_still_silent(self) -> None:
        with self._lock:
            if not self._is_silent() or self._state.phase == "paused":
                return
            self._paused_run = self._state.run
            self._log(
                "neither the operator, for %d s, nor the API server can be reached: training pauses at the next step, "
                "since others may go on without it" % (self._clock() - self._heard_at)
            )
            self._pause()
