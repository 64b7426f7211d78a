"""Time at the edge to the API."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from runtime.clock import LoopClock, SystemClock, format_microtime, format_time, parse_time
from runtime.testing.simloop import run_simulated

MOMENT = datetime(2026, 12, 2, 8, 5, 7, 123456, tzinfo=UTC)


def test_times_are_written_in_utc_whatever_zone_they_came_in():
    """L4, PY10."""
    elsewhere = MOMENT.astimezone(timezone(timedelta(hours=-5)))
    assert format_time(elsewhere) == "2026-12-02T08:05:07Z"
    assert format_microtime(elsewhere) == "2026-12-02T08:05:07.123456Z"


@pytest.mark.parametrize(
    "text", ["2026-12-02T08:05:07Z", "2026-12-02T08:05:07.000000Z", "2026-12-02T03:05:07-05:00"]
)
def test_times_are_read_with_and_without_a_fraction(text):
    """L4."""
    assert parse_time(text) == MOMENT.replace(microsecond=0)


def test_nanoseconds_of_other_clients_are_read():
    """L4."""
    assert parse_time("2026-12-02T08:05:07.123456789Z") == MOMENT


@pytest.mark.parametrize("text", ["2026-12-02T08:05:07", "yesterday", ""])
def test_a_time_without_a_zone_or_sense_is_refused(text):
    """PY10."""
    with pytest.raises(ValueError):
        parse_time(text)


def test_loop_clock_tells_the_loops_time_and_a_reproducible_date():
    """P3."""

    async def main():
        clock = LoopClock(origin=datetime(2026, 1, 1, tzinfo=UTC))
        before, wall = clock.monotonic(), clock.utcnow()
        await clock.sleep(3600)
        return clock.monotonic() - before, clock.utcnow() - wall

    assert run_simulated(main()) == (3600, timedelta(hours=1))


def test_system_clock_is_aware_and_does_not_go_back():
    """PY10."""
    clock = SystemClock()
    first = clock.monotonic()
    assert clock.utcnow().utcoffset() == timedelta(0)
    assert clock.monotonic() >= first
