"""Container logs on disk."""

from datetime import UTC, datetime, timedelta

import pytest

from trainer_operator.devcluster.node.logstore import (
    LogQuery,
    LogTail,
    LogWriter,
    last_words,
    older,
    read_log,
)


class FixedClock:
    def __init__(self):
        self.now = datetime(2026, 12, 2, 8, tzinfo=UTC)

    def utcnow(self):
        return self.now

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        raise AssertionError(seconds)


@pytest.fixture
def clock():
    return FixedClock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "0.log"


def shown(path, **query):
    return b"".join(read_log(path, LogQuery(**query)))


def test_lines_are_put_together_per_stream_and_the_last_one_needs_no_end(path, clock):
    log = LogWriter(path, clock=clock)
    log.feed("stdout", b"one\ntw")
    log.feed("stderr", b"err\n")
    log.feed("stdout", b"o\nthree")
    assert shown(path) == b"one\nerr\ntwo\n"
    log.close()
    assert shown(path) == b"one\nerr\ntwo\nthree\n"
    assert shown(path, stream="stderr") == b"err\n"


def test_endless_line_is_written_in_pieces_and_read_as_one(path, clock):
    log = LogWriter(path, clock=clock)
    log.feed("stdout", b"x" * 40000 + b"\n")
    log.close()
    assert shown(path) == b"x" * 40000 + b"\n"
    assert max(map(len, path.read_bytes().splitlines())) < 17000


def test_tail_since_and_timestamps(path, clock):
    log = LogWriter(path, clock=clock)
    log.feed("stdout", b"old\n")
    clock.now += timedelta(seconds=10)
    log.feed("stdout", b"new\nnewer\n")
    log.close()
    assert shown(path, tail=1) == b"newer\n"
    assert shown(path, tail=0) == b""
    assert shown(path, since=clock.now) == b"new\nnewer\n"
    assert shown(path, tail=1, timestamps=True) == b"2026-12-02T08:00:10.000000000Z newer\n"


def test_log_that_grows_is_rotated_and_both_parts_are_read(path, clock):
    log = LogWriter(path, clock=clock, rotate_at=100)
    tail = LogTail(path, LogQuery())
    text = b""
    followed = b""
    for number in range(6):
        line = b"line %d %s\n" % (number, b"." * 30)
        text += line
        log.feed("stdout", line)
        followed += tail.more()
    log.close()
    followed += tail.more()
    tail.close()
    assert older(path).exists()
    assert followed == text
    assert text.endswith(shown(path))
    assert shown(path, tail=2) == b"".join(text.splitlines(keepends=True)[-2:])


def test_tail_starts_where_the_log_ends_and_waits_for_one_that_is_not_there(path, clock):
    early = LogTail(path, LogQuery())
    assert early.more() == b""
    log = LogWriter(path, clock=clock)
    log.feed("stdout", b"a\n")
    late = LogTail(path, LogQuery())
    log.feed("stdout", b"b\n")
    log.close()
    assert early.more() == b"a\nb\n"
    assert late.more() == b"b\n"
    early.close()
    late.close()


def test_last_words_are_the_end_of_the_log(path, clock):
    log = LogWriter(path, clock=clock)
    log.feed("stderr", b"".join(b"%d\n" % number for number in range(200)))
    log.close()
    words = last_words(path).split()
    assert (words[0], words[-1], len(words)) == ("120", "199", 80)
    assert last_words(path.with_name("none")) == ""
