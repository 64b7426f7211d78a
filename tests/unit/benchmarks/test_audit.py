"""What the comparison reads out of an audit log."""

import json

import pytest

from benchmarks.runtime.kopfcase.audit import AuditTrail


def line(verb, resource, *, user="me", code=201, at=0, name="", stage="ResponseComplete"):
    return (
        json.dumps(
            {
                "stage": stage,
                "verb": verb,
                "user": {"username": user},
                "objectRef": {"resource": resource, "name": name},
                "responseStatus": {"code": code},
                "requestReceivedTimestamp": f"2026-01-01T00:00:{at:02d}.000000Z",
                "stageTimestamp": f"2026-01-01T00:00:{at:02d}.500000Z",
            }
        ).encode()
        + b"\n"
    )


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "audit.log"
    file.write_bytes(line("create", "configmaps", at=0))
    return file


def test_time_runs_from_the_first_request_to_the_answer_to_the_last_create(log):
    trail = AuditTrail(log, user="me")
    with log.open("ab") as file:
        file.write(line("list", "bundles", at=1, code=200) + line("create", "configmaps", at=5))
        file.write(line("patch", "bundles", at=9, code=200, name="a"))
    asked = trail.read()
    assert asked.seconds == 4.5
    assert (asked.children, asked.parents_written) == (1, {"a"})
    assert asked.requests == {"list bundles": 1, "create configmaps": 1, "patch bundles": 1}


def test_refused_writes_count_as_requests_and_not_as_children(log):
    trail = AuditTrail(log, user="me")
    with log.open("ab") as file:
        file.write(line("create", "configmaps", code=409) + line("patch", "bundles", code=404, name="a"))
    asked = trail.read()
    assert (asked.children, asked.parents_written, sum(asked.requests.values())) == (0, set(), 2)


def test_others_and_the_beginnings_of_watches_are_passed_over(log):
    trail = AuditTrail(log, user="me")
    with log.open("ab") as file:
        file.write(line("create", "configmaps", user="me-too"))
        file.write(line("watch", "bundles", stage="ResponseStarted"))
    assert sum(trail.read().requests.values()) == 0


def test_a_line_that_is_half_written_is_read_when_it_is_whole(log):
    trail = AuditTrail(log, user="me")
    whole = line("create", "configmaps")
    with log.open("ab") as file:
        file.write(whole[:40])
    assert trail.read().children == 0
    with log.open("ab") as file:
        file.write(whole[40:])
    assert trail.read().children == 1


def test_the_clock_starts_with_a_watch_that_has_not_ended(log):
    trail = AuditTrail(log, user="me")
    with log.open("ab") as file:
        file.write(line("watch", "bundles", at=2, stage="ResponseStarted"))
        file.write(line("create", "configmaps", at=5))
    assert trail.read().seconds == 3.5
