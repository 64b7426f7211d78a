"""How fast messages go to one destination: a token bucket (NT4). Pure; the caller brings the time."""


class Pace:
    """Lets `burst` messages through at once, then `per_second`."""

    def __init__(self, *, per_second: float, burst: int, now: float) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = now

    def wait(self, now: float) -> float:
        """Return the seconds until the next message may go."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    def take(self, now: float) -> None:
        """Note that a message goes."""
        self._fill(now)
        self._tokens -= 1.0

    def _fill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
