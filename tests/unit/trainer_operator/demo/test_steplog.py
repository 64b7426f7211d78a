"""Step logs are read as they grow, whole lines only."""

import json

import pytest

from trainer_operator.demo.steplog import StepLogs, parse


def line(step=1, member="worker-0", **changes):
    entry = {
        "member": member,
        "epoch": 1,
        "psEpoch": 2,
        "step": step,
        "dataEpoch": 0,
        "from": 0,
        "to": 21,
        "rank": 0,
        "world": 3,
        "pid": 7,
    }
    return json.dumps({**entry, **changes}).encode() + b"\n"


def test_a_line_is_read():
    seen = parse(line(5), at=1.5)
    assert (seen.at, seen.member, seen.server_epoch, seen.step, seen.first, seen.end) == (
        1.5,
        "worker-0",
        2,
        5,
        0,
        21,
    )


@pytest.mark.parametrize("bad", [b"", b"{", b"[]", b"3", b"{}", line(step="x"), line(step=None), b"\xff\xfe"])
def test_a_line_that_is_none_is_left_out(bad):
    assert parse(bad, at=0.0) is None


def test_only_what_is_new_is_read_and_only_whole_lines(tmp_path):
    log, logs = tmp_path / "worker-0.jsonl", StepLogs(tmp_path)
    log.write_bytes(line(1) + line(2)[:20])
    assert [seen.step for seen in logs.read(at=1.0)] == [1]
    assert logs.read(at=2.0) == []
    log.write_bytes(line(1) + line(2) + line(3))
    assert [seen.step for seen in logs.read(at=3.0)] == [2, 3]


def test_a_half_line_of_a_killed_member_is_counted_and_left_out(tmp_path):
    logs = StepLogs(tmp_path)
    (tmp_path / "ps-0.jsonl").write_bytes(
        line(1, "ps-0") + line(2, "ps-0")[:15] + line(2, "ps-0") + line(3, "ps-0")
    )
    assert [seen.step for seen in logs.read(at=1.0)] == [1, 3]
    assert logs.malformed == 1


def test_servers_come_before_workers(tmp_path):
    for member in ("worker-0", "ps-0"):
        (tmp_path / f"{member}.jsonl").write_bytes(line(1, member))
    assert [seen.member for seen in StepLogs(tmp_path).read(at=1.0)] == ["ps-0", "worker-0"]


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path):
    assert StepLogs(tmp_path / "later").read(at=1.0) == []
