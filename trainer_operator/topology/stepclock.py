"""How long a step takes, and from which age on a missing one is suspicious (SL2).

The rule and its figures are the design's: robust statistics of the last 64 steps, the longest of the last 512, a
floor for fast steps, and a factor that grows when an alarm proves false.
"""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW = 64
LONG_WINDOW = 512
NEEDED = 16
"""Steps before anything is judged."""
SOFT_FLOOR = 30.0
HARD_FLOOR = 60.0
MAX_FACTOR = 8
CLEAN_STEPS = 2000
_NORMAL = 1.4826  # turns a median absolute deviation into a standard deviation


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Ages of the last step in seconds: from `soft` on a member is suspect, from `hard` on it is stalled."""

    soft: float
    hard: float


class StepClock:
    """Durations of one member's latest steps; constant memory.

    Guarantees: nothing is judged before 16 steps; `thresholds` is computed only when it is asked for.
    """

    __slots__ = ("_clean", "_factor", "_longest", "_recent", "_thresholds")

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._longest: deque[float] = deque(maxlen=LONG_WINDOW)
        self._factor = 1
        self._clean = 0
        self._thresholds: Thresholds | None = None

    def add(self, seconds: Iterable[float]) -> None:
        """Take the durations of finished steps, oldest first."""
        for duration in seconds:
            self._recent.append(duration)
            self._longest.append(duration)
            self._clean += 1
        if self._clean > CLEAN_STEPS and self._factor > 1:
            self._factor, self._clean = self._factor // 2, 0
        self._thresholds = None

    def false_alarm(self) -> None:
        """Note that the step came after all although its age had passed the hard threshold."""
        self._factor, self._clean = min(MAX_FACTOR, self._factor * 2), 0
        self._thresholds = None

    @property
    def median(self) -> float | None:
        """Seconds of a usual step; None before anything may be judged."""
        return statistics.median(self._recent) if len(self._recent) >= NEEDED else None

    @property
    def thresholds(self) -> Thresholds | None:
        """What holds now; None before anything may be judged."""
        median = self.median
        if median is None:
            return None
        if self._thresholds is None:
            deviation = statistics.median(abs(each - median) for each in self._recent)
            soft = max(SOFT_FLOOR, median + 8 * _NORMAL * deviation, 5 * median)
            hard = max(HARD_FLOOR, 20 * median, 2 * max(self._longest)) * self._factor
            self._thresholds = Thresholds(soft, hard)
        return self._thresholds
