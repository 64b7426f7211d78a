"""Order and repetition of log lines."""

from trainer_operator.cli.plugin.loglines import Prefix, Reading, interleave, parse, parse_all, prefixes


def test_lines_of_members_are_interleaved_by_time_and_each_log_keeps_its_order():
    """CL2: nanoseconds, another time zone, and a line without a time."""
    known = prefixes(["worker-0", "ps-0"], colours=False)
    logs = [
        (
            known["worker-0"],
            parse_all(b"2026-01-01T12:00:01.000000001Z a\nno time\n2026-01-01T12:00:03Z c\n"),
        ),
        (known["ps-0"], parse_all(b"2026-01-01T14:00:02+02:00 b\n2026-01-01T12:00:04Z \n")),
    ]
    written = "".join(prefix.write(line) for prefix, line in interleave(logs))
    assert written == "worker-0 | a\nworker-0 | no time\nps-0     | b\nworker-0 | c\nps-0     | \n"


def test_reading_on_repeats_no_line_and_leaves_none_out():
    """CL2: the second look begins at the whole second of the last line."""
    first = parse_all(b"2026-01-01T12:00:01.1Z a\n2026-01-01T12:00:01.5Z b\n2026-01-01T12:00:01.5Z c\n")
    again = parse_all(
        b"2026-01-01T12:00:01.1Z a\n2026-01-01T12:00:01.5Z b\n2026-01-01T12:00:01.5Z c\n"
        b"2026-01-01T12:00:01.5Z d\n2026-01-01T12:00:02Z a\n"
    )
    reading = Reading()
    assert [line.text for line in first if reading.is_new(line)] == ["a", "b", "c"]
    assert [line.text for line in again if reading.is_new(line)] == ["d", "a"]


def test_prefixes_have_one_width_and_colours_only_where_wanted():
    """CL1."""
    plain = prefixes(["worker-0", "worker-10"], colours=False)
    assert plain["worker-0"] == Prefix("worker-0", 9)
    line = parse(b"2026-01-01T12:00:01Z step 1")
    assert plain["worker-0"].write(line) == "worker-0  | step 1\n"
    assert plain["worker-0"].write(line, timestamps=True) == "worker-0  | 2026-01-01T12:00:01Z step 1\n"
    coloured = prefixes(["worker-0"], colours=True)["worker-0"].write(line)
    assert coloured == "\x1b[36mworker-0\x1b[0m | step 1\n"


def test_bytes_that_are_no_text_are_shown_as_such():
    """CL2."""
    assert parse(b"2026-01-01T12:00:01Z \xff!\r").text == "�!"
