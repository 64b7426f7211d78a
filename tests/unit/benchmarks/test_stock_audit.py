"""What the comparison with other operators reads out of the API server's audit log."""

import json

from benchmarks.stock.audit import (
    JOB_CONTROLLER,
    Tail,
    by_controllers,
    creations,
    placements,
    requests,
    runs,
    submissions,
)


def line(verb, what, name="", *, user="bench:x", code=201, at=0, labels=None):
    resource, _, subresource = what.partition("/")
    event = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": user},
        "objectRef": {"resource": resource, "subresource": subresource, "namespace": "bench", "name": name},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-01-01T00:00:{at:02d}.000000Z",
        "stageTimestamp": f"2026-01-01T00:00:{at:02d}.500000Z",
    }
    if labels is not None:
        event["requestObject"] = {"metadata": {"labels": labels}}
    return json.dumps(event) + "\n"


def read(tmp_path, *lines):
    log = tmp_path / "audit.log"
    log.touch()
    tail = Tail(log)
    log.write_text("".join(lines))
    return tail.read()


def test_a_half_written_line_is_read_once_when_it_is_whole(tmp_path):
    log = tmp_path / "audit.log"
    log.write_text(line("create", "pods", "before"))
    tail = Tail(log)
    text = line("create", "pods", "a")
    with log.open("a") as stream:
        stream.write(text + text[:40])
        stream.flush()
        assert [entry.name for entry in tail.read()] == ["a"]
        stream.write(text[40:])
        stream.flush()
        assert [entry.name for entry in tail.read()] == ["a"]
    assert tail.read() == []


def test_a_log_that_does_not_exist_yet_is_empty(tmp_path):
    assert Tail(tmp_path / "none").read() == []


def test_a_job_is_submitted_when_received_and_its_pods_are_created_when_answered(tmp_path):
    found = read(
        tmp_path,
        line("create", "trainers", "job", user="me", at=1),
        line("create", "pods", "job-0", at=2, labels={"of": "job"}),
        line("create", "pods", "", at=4, labels={"of": "job"}),
        line("create", "pods", "refused", at=5, labels={"of": "job"}, code=403),
        line("create", "pods", "stranger", at=6, labels={}),
    )
    (submitted,) = submissions(found, resource="trainers", label="of").values()
    created = creations(found, label="of")["job"]
    assert [round(time - submitted, 3) for time in created] == [1.5, 3.5]


def test_bare_pods_are_submitted_with_the_first_of_them(tmp_path):
    found = read(
        tmp_path,
        line("create", "pods", "a-0", at=3, labels={"of": "a"}),
        line("create", "pods", "a-1", at=7, labels={"of": "a"}),
    )
    submitted = submissions(found, resource="pods", label="of")
    assert list(submitted) == ["a"]
    assert submitted["a"] == found[0].received


def test_a_pod_runs_with_the_first_status_of_its_node_and_not_of_the_scheduler(tmp_path):
    found = read(
        tmp_path,
        line("patch", "pods/status", "a", user="scheduler", code=200, at=1),
        line("patch", "pods/status", "a", user="kwok", code=409, at=2),
        line("patch", "pods/status", "a", user="kwok", code=200, at=3),
        line("patch", "pods/status", "a", user="kwok", code=200, at=9),
    )
    assert runs(found, node="kwok") == {"a": found[2].answered}


def test_requests_are_counted_by_kind_for_the_arm_and_what_works_for_it_without_watches(tmp_path):
    found = read(
        tmp_path,
        line("create", "pods", "a", labels={}),
        line("create", "pods", "b", user=JOB_CONTROLLER, labels={}),
        line("watch", "pods", code=200),
        line("create", "pods", "c", user="somebody", labels={}),
        line("update", "jobs/status", "a", code=200),
    )
    assert requests(by_controllers(found, prefix="bench:")) == {"create pods": 2, "update jobs/status": 1}


def test_a_pod_is_placed_when_its_binding_was_answered(tmp_path):
    found = read(
        tmp_path,
        line("create", "pods/binding", "a", code=409, at=1),
        line("create", "pods/binding", "a", at=2),
        line("create", "pods/eviction", "b", at=3),
    )
    assert placements(found).keys() == {"a"}
    assert placements(found)["a"] % 60 == 2.5
