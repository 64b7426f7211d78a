"""The outbox in the status: nothing is left out, nothing floods, and what we did not write does no harm."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from trainer_operator.notify.notice import Notice, try_read
from trainer_operator.notify.outbox import FLOOR, MOST, Outbox, due_times
from trainer_operator.notify.triggers import Happening, Severity, Trigger

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALL = {"slack": Severity.Info}


def happening(trigger=Trigger.RECOVERING, transition="a", **more):
    return Happening(trigger, transition, "worker-0 failed", **more)


def after(seconds):
    return NOW + timedelta(seconds=seconds)


def with_(*added, stored=((), ()), routes=ALL):
    outbox = Outbox(*stored)
    for what, at in added:
        outbox.add(what, routes, at)
    return outbox


def test_a_message_is_put_in_for_each_service_whose_severity_it_has():
    """NT1."""
    outbox = with_(
        (happening(), NOW), routes={"a": Severity.Info, "b": Severity.Warning, "c": Severity.Critical}
    )
    assert sorted(try_read(line).service for line in outbox.lines()[0]) == ["a", "b"]


def test_the_first_message_of_a_trigger_is_due_at_once_and_the_next_after_the_floor():
    """NT3: 5 minutes."""
    first = with_((happening(), NOW))
    ((notice, due),) = due_times(*first.lines())
    assert due == NOW
    first.settle("u", {notice.key("u"): ""})
    second = with_((happening(transition="b"), after(10)), stored=first.lines())
    ((_, due),) = due_times(*second.lines())
    assert due == after(FLOOR)


def test_what_happens_while_a_message_waits_becomes_one_with_it_and_is_counted():
    """NT3: neither lost nor repeated."""
    first = with_((happening(), NOW))
    stored = with_(
        *[(happening(transition=str(n)), after(n)) for n in range(1, 6)], stored=first.lines()
    ).lines()
    ((notice, due),) = due_times(*stored)
    assert (notice.count, notice.transition, due) == (6, "5", after(FLOOR))


def test_another_trigger_does_not_wait():
    outbox = with_((happening(), NOW), (happening(Trigger.FAILED), after(1)))
    assert [due for _, due in due_times(*outbox.lines())] == [NOW, after(1)]


def test_what_is_settled_leaves_and_what_was_given_up_is_told():
    outbox = with_((happening(), NOW))
    ((notice, _),) = due_times(*outbox.lines())
    assert Outbox(*outbox.lines()).settle("u", {notice.key("other"): ""}) == []
    assert outbox.settle("u", {notice.key("u"): "it hangs"}) == [(notice, "it hangs")]
    assert outbox.lines()[0] == []


def test_the_acknowledgement_of_an_older_message_leaves_the_newer_one():
    outbox = with_((happening(), NOW))
    ((old, _),) = due_times(*outbox.lines())
    newer = with_((happening(transition="b"), after(1)), stored=outbox.lines())
    newer.settle("u", {old.key("u"): ""})
    assert [notice.transition for notice, _ in due_times(*newer.lines())] == ["b"]


def test_a_damaged_checkpoint_is_told_once_as_long_as_it_exists():
    damaged = Happening(Trigger.CHECKPOINT_DAMAGED, "Corrupt", "c", "t-1")
    first = with_((damaged, NOW))
    for notice, _ in due_times(*first.lines()):
        first.settle("u", {notice.key("u"): ""})
    second = with_((damaged, after(1000)), stored=first.lines())
    assert second.lines()[0] == []
    second.keep_subjects(Trigger.CHECKPOINT_DAMAGED, [])
    second.add(damaged, ALL, after(2000))
    assert len(second.lines()[0]) == 1


def test_a_service_that_no_longer_exists_loses_its_messages():
    outbox = with_((happening(), NOW), routes={"a": Severity.Info, "b": Severity.Info})
    outbox.keep_services(frozenset({"b"}))
    assert [try_read(line).service for line in outbox.lines()[0]] == ["b"]


def test_the_outbox_is_bounded_and_the_least_severe_gives_way():
    """NT4, TR18."""
    routes = {f"s{n}": Severity.Info for n in range(20)}
    outbox = with_((happening(Trigger.FAILED), NOW), (happening(Trigger.RUNNING), NOW), routes=routes)
    kept = [try_read(line).trigger for line in outbox.lines()[0]]
    assert len(kept) == MOST
    assert kept.count(Trigger.FAILED) == 20
    assert {notice.trigger for notice in outbox.crowded_out} == {Trigger.RUNNING}


texts = st.text(max_size=2000)


@given(text=texts, count=st.integers(1, 10**6), seconds=st.integers(0, 10**8))
def test_a_line_is_read_back_as_it_was_written_and_fits_the_status(text, count, seconds):
    """NT3, NT5: whatever the text is."""
    notice = Notice(
        Trigger.FAILED, "s" * 63, after(seconds), count, "Recovering>Failed/e12345.r12345/g12345", text
    )
    line = notice.line()
    assert len(line) <= 1024
    assert len(line.splitlines()) <= 1
    read = try_read(line)
    assert (read.key("u"), read.at, read.count) == (notice.key("u"), notice.at, count)
    assert read.line() == line, "what is stored again is the same, so that an idle Trainer is not written"


@given(lines=st.lists(texts, max_size=5), told=st.lists(texts, max_size=5))
def test_what_somebody_wrote_into_the_status_does_no_harm(lines, told):
    outbox = with_((happening(), NOW), stored=(lines, told))
    assert Trigger.RECOVERING in {notice.trigger for notice, _ in due_times(*outbox.lines())}


@given(gaps=st.lists(st.integers(0, 900), min_size=1, max_size=40))
def test_messages_of_a_trigger_are_five_minutes_apart_and_stand_for_every_transition(gaps):
    """NT3: each message is taken as soon as it is due, as a good destination does."""
    now, sent, lines = 0, [], ((), ())
    for number, gap in enumerate(gaps):
        now += gap
        lines = _take(lines, now, sent)
        lines = with_((happening(transition=str(number)), after(now)), stored=lines).lines()
    _take(lines, now + 1000, sent)
    assert sum(count for _, count in sent) == len(gaps)
    starts = [due for due, _ in sent]
    assert all((late - early).total_seconds() >= FLOOR for early, late in pairwise(starts))


def _take(lines, now, sent):
    outbox = Outbox(*lines)
    for notice, due in due_times(*lines):
        if due <= after(now):
            sent.append((due, notice.count))
            outbox.settle("u", {notice.key("u"): ""})
    return outbox.lines()
