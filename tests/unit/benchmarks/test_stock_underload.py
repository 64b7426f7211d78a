"""Failures in the midst of a storm are spread over it, timed one by one, and told in words when nobody replaces."""

import dataclasses

import pytest

from benchmarks.stock.arm import Broken
from benchmarks.stock.audit import Entry
from benchmarks.stock.recovery import Mark, Pod, created_after, ran_after
from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios.underload import UnderLoad
from benchroom import StandIn


def request(verb, what, name, *, at, user="bench:it", job="", ok=True):
    labels = (("job", job),) if job else ()
    return Entry(verb, what, "bench", name, user, ok, received=at, answered=at + 0.5, labels=labels)


def failure(name, *, at):
    return request("patch", "pods/status", name, at=at, user="admin")


MARKS = {"a": Mark("patch", "pods/status", "a-0"), "b": Mark("patch", "pods/status", "b-0")}


def test_a_replacement_is_the_first_pod_of_the_job_that_was_asked_for_after_the_failure():
    entries = [
        request("create", "pods", "", at=1.0, job="a"),
        failure("a-0", at=5.0),
        request("create", "pods", "", at=6.0, job="of the storm"),
        request("create", "pods", "", at=7.0, job="a", ok=False),
        request("create", "pods", "", at=8.0, job="a"),
        request("create", "pods", "", at=9.0, job="a"),
        failure("b-0", at=10.0),
    ]
    assert created_after(entries, MARKS, label="job", node="kwok") == {"a": 3.5}


def test_a_replacement_that_is_logged_before_the_failure_it_answers_counts():
    """The server answers the failure's request after it has told the operator."""
    entries = [request("create", "pods", "", at=5.1, job="a"), failure("a-0", at=5.0)]
    assert created_after(entries, MARKS, label="job", node="kwok") == {"a": pytest.approx(0.6)}


def test_a_new_pod_of_the_old_name_runs_when_its_node_says_so_after_the_failure():
    entries = [
        request("patch", "pods/status", "a-0", at=1.0, user="kwok"),
        failure("a-0", at=5.0),
        request("patch", "pods/status", "a-0", at=9.0, user="kwok"),
        request("patch", "pods/status", "a-0", at=11.0, user="kwok"),
    ]
    fresh = {"a": [Pod("a-0", "new", "a", "node", is_running=True, containers=())]}
    assert ran_after(entries, MARKS, fresh, node="kwok") == {"a": 4.5}
    with pytest.raises(Broken, match="does not say when a-0 ran"):
        ran_after(entries[:2], MARKS, fresh, node="kwok")


async def test_every_failure_of_a_storm_is_timed_by_the_audit_log(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await UnderLoad(6, failures=3).run(Room(room, room))
    assert outcome.figures == {"created_p50": 1.0, "created_p99": 1.0, "running_p50": 2.0, "running_p99": 2.0}


async def test_pods_that_nobody_replaces_are_counted_and_give_no_figure(tmp_path):
    room = StandIn(tmp_path, replaces=False)
    outcome = await dataclasses.replace(UnderLoad(2, failures=2), patience=0.0).run(Room(room, room))
    assert set(outcome.figures.values()) == {None}
    assert outcome.notes == {"created_p50": "2 of 2 not replaced in 0 min"}
