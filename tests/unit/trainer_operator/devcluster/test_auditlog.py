"""The audit log as a test reads it: from a mark on, whole lines only, across one rotation."""

import json

import pytest

from trainer_operator.devcluster.auditlog import AuditLog, Mark, parse

START = Mark()


def line(verb="create", *, code=201, stage="ResponseComplete", **changes):
    event = {
        "kind": "Event",
        "stage": stage,
        "verb": verb,
        "user": {"username": "me", "groups": ["g"]},
        "requestURI": "/api/v1/pods",
        "objectRef": {"resource": "pods", "namespace": "ns", "name": "p", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": code},
        "stageTimestamp": "2026-01-01T00:00:00.250000Z",
        **changes,
    }
    return json.dumps(event).encode() + b"\n"


@pytest.fixture
def file(tmp_path):
    return tmp_path / "audit.log"


def verbs(log, mark=START):
    return [event.verb for event in log.since(mark)]


def test_only_what_was_written_after_the_mark_is_read(file):
    file.write_bytes(line("create"))
    log = AuditLog(file)
    mark = log.mark()
    with file.open("ab") as stream:
        stream.write(line("update") + line("delete"))
    assert verbs(log, mark) == ["update", "delete"]
    assert verbs(log) == ["create", "update", "delete"]


def test_a_log_that_does_not_exist_yet_is_empty_and_read_whole_later(file):
    log = AuditLog(file)
    mark = log.mark()
    assert verbs(log, mark) == []
    file.write_bytes(line("create"))
    assert verbs(log, mark) == ["create"]


def test_a_line_is_read_when_it_is_whole(file):
    whole = line("create")
    file.write_bytes(whole[:-9])
    log = AuditLog(file)
    assert verbs(log) == []
    file.write_bytes(whole)
    assert verbs(log) == ["create"]


def test_what_was_rotated_away_since_the_mark_is_read_too(file):
    file.write_bytes(line("get"))
    log = AuditLog(file)
    mark = log.mark()
    with file.open("ab") as stream:
        stream.write(line("create"))
    file.rename(file.with_name("audit-2026-01-01T00-00-00.000.log"))
    file.write_bytes(line("update"))
    assert verbs(log, mark) == ["create", "update"]


def test_the_beginning_of_a_long_answer_is_passed_over(file):
    file.write_bytes(line("watch", stage="ResponseStarted") + line("watch"))
    assert verbs(AuditLog(file)) == ["watch"]


def test_an_event_says_who_did_what_and_how_it_ended():
    refused = parse(line("delete", code=403, responseStatus={"code": 403, "message": "no right"}))
    assert not refused.ok
    assert str(refused) == "00:00:00.250 me: delete pods ns/p -> 403 (no right)"


def test_an_event_about_no_object_is_told_by_its_address():
    event = parse(b'{"verb": "get", "requestURI": "/healthz", "stage": "ResponseComplete"}\n')
    assert "/healthz" in str(event)


def test_a_json_patch_is_a_list():
    event = parse(
        line("patch", requestObject=[{"op": "add", "path": "/metadata/finalizers", "value": ["x"]}])
    )
    assert event.request_object[0]["op"] == "add"
