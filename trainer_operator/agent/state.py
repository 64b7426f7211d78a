"""What the agent knows of its process, shared by the threads that learn it and those that report it.

One lock, short sections, no I/O inside. `news()` marks what must be told at once: an exit, a phase, a preparation, an
ack or a result (TX6); mere steps wait for the next beat.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

Clock = Callable[[], float]
MAX_RESULTS = 512
OVERHEARD = 5.0
"""Seconds between a first number in the output and taking it for a step: the SDK's hello may come right after."""
PHASES = ("init", "rendezvous", "train", "checkpoint", "eval", "waiting_ps", "paused", "draining", "done")


@dataclass(frozen=True)
class Exit:
    """How the process ended. `code` is 128 + signal when a signal ended it."""

    code: int
    sig: int
    step: int
    fingerprint: Optional[str]
    tail: str


@dataclass(frozen=True)
class Result:
    """What became of a directive."""

    id: str
    ok: bool
    value: Any = None  # JSON edge: its shape depends on the directive
    error: Optional[str] = None


@dataclass(frozen=True)
class CopyAck:
    """One copy of one shard that is durable, or why it is not."""

    ckpt: str
    shard: int
    copy: int
    bytes: int
    step: int
    ok: bool
    error: Optional[str] = None


@dataclass
class Progress:
    """What the SDK said of the current run. Ages are counted from these monotonic times."""

    step: int = 0
    base: int = 0
    """Step that the run began at."""
    steps: str = "none"
    """Who tells of steps: sdk, output, or none so far (AG5)."""
    printed: int = -1
    """Number that was printed or written last."""
    printed_at: float = 0.0
    overheard_at: Optional[float] = None
    """When the first one was."""
    highest: int = -1
    step_at: float = 0.0
    phase: str = "init"
    phase_at: float = 0.0
    phase_budget: Optional[float] = None
    dt_ms: Deque[float] = field(default_factory=lambda: deque(maxlen=16))
    samples: int = 0
    data_epoch: int = 0
    metrics: Dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """A consistent copy of the state, for one beat."""

    epoch: int
    ps_epoch: int
    run: int
    seq: int
    port: int
    listening: Optional[bool]
    proc: str
    pid: Optional[int]
    exit: Optional[Exit]
    prepared: int
    step: int
    steps: str
    step_age: float
    phase: str
    phase_age: float
    phase_budget: Optional[float]
    dt_ms: Tuple[float, ...]
    samples: int
    data_epoch: int
    metrics: Mapping[str, float]
    acks: Tuple[CopyAck, ...]
    results: Tuple[Result, ...]
    soft_epochs: bool


class State:
    """The facts behind the beats.

    Guarantees: `prepared`, `run` and `seq` only rise; results are kept by directive id, so that a repeated directive
    finds what it did before (MG1).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._urgent = threading.Event()
        self._progress = Progress()
        self._epoch = 0
        self._ps_epoch = 0
        self._run = 0
        self._seq = 0
        self._port = 0
        self._listening: Optional[bool] = None
        self._proc = "none"
        self._pid: Optional[int] = None
        self._exit: Optional[Exit] = None
        self._exited_at: Optional[float] = None
        self._prepared = 0
        self._soft_epochs = False
        self._uses_sdk = False
        """Whether any process of this pod spoke through the SDK; the next ones will, too."""
        self._acks: "OrderedDict[Tuple[str, int, int], CopyAck]" = OrderedDict()
        self._results: "OrderedDict[str, Result]" = OrderedDict()
        self._told: Dict[str, None] = {}
        self.heard_at: Optional[float] = None

    # -- read

    def view(self) -> View:
        """Take a copy for the next beat; raises `seq`."""
        with self._lock:
            self._seq += 1
            now, progress = self._clock(), self._progress
            return View(
                self._epoch,
                self._ps_epoch,
                self._run,
                self._seq,
                self._port,
                self._listening,
                self._proc,
                self._pid,
                self._exit,
                self._prepared,
                progress.step,
                progress.steps,
                max(0.0, now - progress.step_at),
                progress.phase,
                max(0.0, now - progress.phase_at),
                progress.phase_budget,
                tuple(progress.dt_ms),
                progress.samples,
                progress.data_epoch,
                dict(progress.metrics),
                tuple(self._acks.values()),
                tuple(result for key, result in self._results.items() if key not in self._told),
                self._soft_epochs,
            )

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._proc in ("starting", "running")

    @property
    def step(self) -> int:
        """The last finished step of this run."""
        return self._progress.step

    def standing(self) -> Tuple[int, float]:
        """Return the last finished step and the seconds since then."""
        with self._lock:
            return self._progress.step, max(0.0, self._clock() - self._progress.step_at)

    @property
    def phase(self) -> str:
        """The phase of this run."""
        return self._progress.phase

    @property
    def epoch(self) -> int:
        """The membership epoch of the process."""
        return self._epoch

    @property
    def ps_epoch(self) -> int:
        """The parameter-server epoch that the process has taken."""
        return self._ps_epoch

    @property
    def run(self) -> int:
        """The number of the last process that was started."""
        return self._run

    @property
    def prepared(self) -> int:
        """The highest epoch prepared."""
        return self._prepared

    @property
    def last_exit(self) -> Optional[Exit]:
        """How the last process ended, if none runs."""
        return self._exit

    def silent_for(self) -> Optional[float]:
        """Seconds since both the process ended and the operator was heard; None while a process may come or runs."""
        with self._lock:
            if self._exited_at is None or self._proc != "exited":
                return None
            return self._clock() - max(self._exited_at, self.heard_at or 0.0)

    # -- urgency

    def news(self) -> None:
        """Ask for a beat at once."""
        self._urgent.set()

    def wait_news(self, timeout: float) -> bool:
        """Wait until there is something urgent; consumes it."""
        found = self._urgent.wait(timeout)
        self._urgent.clear()
        return found

    # -- the process

    def prepare(self, epoch: int, port: int) -> None:
        """Note that nothing older than this epoch runs any more, and where the process will listen."""
        with self._lock:
            self._prepared = max(self._prepared, epoch)
            self._port, self._proc, self._pid, self._exit = port, "none", None, None
            self._exited_at = self._listening = None
            self._set_phase("init")
        self.news()

    def spawn(self, epoch: int, ps_epoch: int, *, step: int, listening: Optional[bool] = None) -> None:
        """Begin a new run: what was known of the last one is void (TX7). `listening`: None if nobody looks for it."""
        with self._lock:
            self._run += 1
            self._epoch, self._ps_epoch = epoch, ps_epoch
            self._proc, self._pid, self._exit, self._exited_at = "starting", None, None, None
            self._listening = listening
            self._soft_epochs = False
            now = self._clock()
            self._progress = Progress(step=step, base=step, step_at=now, phase="init", phase_at=now)

    def spawned(self, pid: int) -> None:
        """Note the pid of the run."""
        with self._lock:
            self._proc, self._pid = "running", pid
        self.news()

    def listens(self, run: int) -> None:
        """Note that the process of this run listens on its port."""
        with self._lock:
            if run != self._run:
                return
            self._listening = True
        self.news()

    def exited(self, code: int, sig: int, *, fingerprint: Optional[str], tail: str) -> Exit:
        """Note how the run ended."""
        with self._lock:
            if self._progress.overheard_at is not None and not self._uses_sdk:
                self._take_printed()
            self._exit = Exit(code, sig, self._progress.step, fingerprint, tail)
            self._proc, self._pid = "exited", None
            self._exited_at = self._clock()
            if code == 0 and sig == 0 and self._progress.phase != "draining":
                self._set_phase("done")
            result = self._exit
        self.news()
        return result

    # -- progress

    def stepped(self, step: int, *, samples: int, dt_ms: List[float], metrics: Mapping[str, float]) -> None:
        """Note a finished step; the first one of a run, and one after a wait, is also a change of phase."""
        with self._lock:
            progress = self._progress
            first = progress.phase in ("init", "rendezvous", "waiting_ps")
            progress.step, progress.step_at, progress.steps = step, self._clock(), "sdk"
            progress.samples = max(progress.samples, samples)
            progress.dt_ms.extend(dt_ms)
            progress.metrics.update(metrics)
            if first:
                self._set_phase("train")
        if first:
            self.news()

    def greeted(self, *, soft_epochs: bool) -> None:
        """Note what the program of this run can do; what it printed before counts no longer (AG5)."""
        with self._lock:
            self._soft_epochs, self._uses_sdk = soft_epochs, True
            progress = self._progress
            taken_for_plain = progress.steps != "sdk" and progress.phase == "train"
            if progress.steps != "sdk":
                progress.step, progress.step_at, progress.steps = progress.base, self._clock(), "sdk"
                progress.dt_ms.clear()
            if taken_for_plain:
                self._set_phase("init")
        if taken_for_plain:
            self.news()

    def printed(self, run: int, step: int) -> None:
        """Note a number that may be a step of a program without the SDK; any other than the last is progress.

        The highest one counts: evaluation may count anew.
        """
        with self._lock:
            progress = self._progress
            if run != self._run or progress.steps == "sdk" or self._uses_sdk or step == progress.printed:
                return
            now = self._clock()
            if step > progress.printed >= 0:
                progress.dt_ms.append(1000 * (now - progress.printed_at) / (step - progress.printed))
            progress.printed, progress.printed_at = step, now
            progress.highest = max(progress.highest, step)
            if progress.overheard_at is None:
                progress.overheard_at = now
            if progress.steps == "output":
                self._take_printed()

    def settle(self, after: float) -> None:
        """Take a program that prints steps, or said nothing for `after` seconds, for one without the SDK (AG5).

        It trains, as far as anybody can tell.
        """
        with self._lock:
            progress, now = self._progress, self._clock()
            if self._uses_sdk or progress.steps != "none" or self._proc != "running":
                return
            if progress.overheard_at is not None:
                if now - progress.overheard_at < OVERHEARD:
                    return
                self._take_printed()
            elif progress.phase != "init" or now - progress.phase_at < after:
                return
            if progress.phase == "init":
                self._set_phase("train")
        self.news()

    def _take_printed(self) -> None:
        progress = self._progress
        progress.steps = "output"
        progress.step, progress.step_at = max(progress.base, progress.highest), progress.printed_at

    @property
    def is_plain(self) -> bool:
        """Whether the process trains without the SDK, so that it can't be asked for anything."""
        return self._progress.phase == "train" and self._progress.steps != "sdk"

    def entered(self, phase: str, *, budget: Optional[float] = None) -> None:
        """Note a phase that the process announced, and how many seconds it says that it may take."""
        with self._lock:
            changed = self._progress.phase not in (phase, "draining")
            if changed:
                self._set_phase(phase)
                self._progress.phase_budget = budget
        if changed:
            self.news()

    def finished_data_epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Note a finished pass over the data; it may be short, so it waits for the next beat."""
        with self._lock:
            self._progress.data_epoch = max(self._progress.data_epoch, number)
            self._progress.metrics.update(metrics)

    def rolled_to(self, ps_epoch: int, step: int, *, epoch: int = 0) -> None:
        """Note that the process took a new parameter-server epoch, or a soft epoch with it, and stands at `step`."""
        with self._lock:
            self._ps_epoch = max(self._ps_epoch, ps_epoch)
            self._epoch, self._prepared = max(self._epoch, epoch), max(self._prepared, epoch)
            self._progress.step, self._progress.step_at = step, self._clock()
        self.news()

    # -- acks and results

    def add_ack(self, ack: CopyAck) -> None:
        """Report a copy until its checkpoint is decided; a success is never replaced by a failure."""
        with self._lock:
            key = (ack.ckpt, ack.shard, ack.copy)
            known = self._acks.get(key)
            if known is None or not known.ok:
                self._acks[key] = ack
        self.news()

    def decided(self, outcomes: Mapping[str, str]) -> None:
        """Stop reporting the copies of checkpoints whose outcome the operator named."""
        if outcomes:
            with self._lock:
                for key in [key for key in self._acks if key[0] in outcomes]:
                    del self._acks[key]

    @property
    def has_undecided(self) -> bool:
        """Whether copies wait for their decision."""
        return bool(self._acks)

    def add_result(self, result: Result) -> None:
        """Keep what became of a directive."""
        with self._lock:
            self._results[result.id] = result
            self._told.pop(result.id, None)
            while len(self._results) > MAX_RESULTS:
                old, _ = self._results.popitem(last=False)
                self._told.pop(old, None)
        self.news()

    def result_of(self, directive: str) -> Optional[Result]:
        """Return what became of a directive, if it was done."""
        with self._lock:
            return self._results.get(directive)

    def listed(self, directives: List[str], reported: List[str]) -> bool:
        """Take a reply's list: of what we had reported, results that it no longer lists are not reported again.

        Returns whether the reply lists something already done: its result is reported again.
        """
        with self._lock:
            for key in reported:
                if key not in directives and key in self._results:
                    self._told[key] = None
            again = [key for key in directives if key in self._results]
            for key in again:
                self._told.pop(key, None)
        return bool(again)

    def heard(self) -> None:
        """Note that the operator answered."""
        with self._lock:
            self.heard_at = self._clock()

    def _set_phase(self, phase: str) -> None:
        self._progress.phase, self._progress.phase_at = phase, self._clock()
        self._progress.phase_budget = None
