"""Which events are written, counted up or dropped."""

from dataclasses import replace
from datetime import UTC, datetime

from runtime.events.correlator import (
    ALIKE_LIMIT,
    ALIKE_WINDOW,
    BURST,
    COMBINED_PREFIX,
    LONGEST_MESSAGE,
    REFILL_PERIOD,
    Bump,
    Correlator,
    Create,
    Drop,
    Happening,
    shorten,
)
from runtime.events.reference import ObjectReference

MOMENT = datetime(2026, 12, 2, 8, tzinfo=UTC)
ABOUT = ObjectReference("v1", "Pod", "ns", "a", "u1")
HAPPENING = Happening(ABOUT, "Normal", "Started", "it runs", MOMENT)


def write(correlator, happening, now, name="event-1"):
    verdict = correlator.judge(happening, now=now)
    if not isinstance(verdict, Drop):
        correlator.wrote(verdict, name=name, at=happening.at)
    return verdict


def test_the_same_event_is_counted_up():
    """R8."""
    correlator = Correlator()
    assert isinstance(write(correlator, HAPPENING, 0), Create)
    verdict = write(correlator, HAPPENING, 1)
    assert isinstance(verdict, Bump)
    assert (verdict.name, verdict.count, verdict.first) == ("event-1", 2, MOMENT)
    assert write(correlator, HAPPENING, 2).count == 3


def test_an_event_that_could_not_be_written_is_not_counted():
    """R8."""
    correlator = Correlator()
    correlator.judge(HAPPENING, now=0)
    assert isinstance(correlator.judge(HAPPENING, now=1), Create)


def test_an_event_that_expired_on_the_server_is_written_anew():
    """R8."""
    correlator = Correlator()
    write(correlator, HAPPENING, 0)
    bump = correlator.judge(HAPPENING, now=1)
    correlator.forget(bump)
    assert isinstance(correlator.judge(HAPPENING, now=2), Create)


def test_many_alike_are_combined_into_one():
    """R8: after ten different messages within ten minutes."""
    correlator = Correlator()
    for number in range(ALIKE_LIMIT):
        verdict = write(correlator, replace(HAPPENING, message=f"node {number}"), number, f"event-{number}")
        assert isinstance(verdict, Create)
        assert not verdict.message.startswith(COMBINED_PREFIX)
    verdict = write(correlator, replace(HAPPENING, message="node 10"), 10, "combined")
    assert isinstance(verdict, Create)
    assert verdict.message == COMBINED_PREFIX + "node 10"
    verdict = write(correlator, replace(HAPPENING, message="node 11"), 11)
    assert isinstance(verdict, Bump)
    assert (verdict.name, verdict.message) == ("combined", COMBINED_PREFIX + "node 11")


def test_combining_ends_after_a_quiet_spell():
    """R8."""
    correlator = Correlator()
    for number in range(ALIKE_LIMIT + 1):
        write(correlator, replace(HAPPENING, message=str(number)), 0)
    later = ALIKE_WINDOW + 1
    verdict = correlator.judge(replace(HAPPENING, message="fresh"), now=later)
    assert verdict.message == "fresh"


def test_a_talkative_object_is_cut_off_and_earns_one_event_in_five_minutes():
    """R8."""
    correlator = Correlator()
    verdicts = [write(correlator, HAPPENING, 0) for _ in range(BURST + 5)]
    assert [isinstance(verdict, Drop) for verdict in verdicts] == [False] * BURST + [True] * 5
    assert isinstance(correlator.judge(HAPPENING, now=REFILL_PERIOD * 0.9), Drop)
    assert isinstance(correlator.judge(HAPPENING, now=REFILL_PERIOD), Bump)
    assert isinstance(correlator.judge(HAPPENING, now=REFILL_PERIOD), Drop)


def test_one_objects_talk_does_not_cost_another_its_events():
    """R8."""
    correlator = Correlator()
    for _ in range(BURST + 1):
        write(correlator, HAPPENING, 0)
    other = replace(HAPPENING, about=replace(ABOUT, uid="u2"))
    assert isinstance(correlator.judge(other, now=0), Create)


def test_memory_is_bounded():
    """R8, RT30."""
    correlator = Correlator(table_size=100)
    for number in range(1000):
        write(correlator, replace(HAPPENING, about=replace(ABOUT, name=str(number))), number)
    assert len(correlator) == 100


def test_a_long_message_is_cut_at_a_kibibyte_of_utf_8():
    """R8."""
    verdict = Correlator().judge(replace(HAPPENING, message="ü" * 5000), now=0)
    assert len(verdict.message.encode()) <= LONGEST_MESSAGE
    assert verdict.message.endswith("…")
    assert shorten("short", 128) == "short"
