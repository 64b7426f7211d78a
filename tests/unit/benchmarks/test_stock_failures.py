"""Scenarios of failures tell a job that is whole again from one that is not, and never wait for ever."""

import dataclasses
import json

import pytest

from benchmarks.stock.arm import Broken
from benchmarks.stock.plan import new_arm
from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios.crashloop import CrashLoop
from benchmarks.stock.scenarios.failures import full, quick, waiting
from benchroom import StandIn

SERVER_LOST = next(
    scenario for group in full() for scenario in group.scenarios if scenario.name == "server-lost"
)
POD_FAILED = quick()[0].scenarios[0]
REPLACED = {"created": 1.0, "created_p99": 1.0, "median": 2.0, "slowest": 2.0, "started": 1.0}


async def test_job_whose_pod_is_replaced_is_timed_by_the_audit_log(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await POD_FAILED.run(Room(room, room))
    assert outcome.figures == REPLACED


async def test_a_part_of_the_jobs_fails_where_the_others_are_there_to_be_many(tmp_path):
    """LT: the operator's own share of a replacement, among 1,000 pods that live."""
    room = StandIn(tmp_path, replaces=True)
    await dataclasses.replace(POD_FAILED, jobs=3, failing=1).run(Room(room, room))
    entries = map(json.loads, room.audit_log.read_text().splitlines())
    failed = [each["objectRef"]["name"] for each in entries if each["user"]["username"] == "admin"]
    assert failed == ["pod-failed-0-3"]


async def test_job_that_stays_broken_is_said_to_be_and_has_no_figure(tmp_path):
    room = StandIn(tmp_path, replaces=False)
    outcome = await dataclasses.replace(POD_FAILED, patience=0.2).run(Room(room, room))
    assert set(outcome.figures.values()) == {None}
    assert outcome.notes == {"created": "not recovered in 0.2 s, failure 1 of 2"}


async def test_crash_loop_counts_what_the_operator_started_and_asked_for(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await CrashLoop(duration=0.0).run(Room(room, room))
    assert outcome.figures == {"restarts": 1, "requests": 1}


async def test_the_parameter_server_of_a_job_is_what_fails(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await SERVER_LOST.run(Room(room, room))
    assert outcome.figures == REPLACED
    replaced = {name for name, pod in room.pods.items() if not pod["metadata"]["uid"].endswith("-0")}
    assert {name for name in room.pods if "-ps-" in name} <= replaced


async def test_an_arm_without_parameter_servers_is_broken_there_and_says_why(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    room.served_job = lambda _name, *, pods: None
    with pytest.raises(Broken, match="no parameter servers"):
        await SERVER_LOST.run(Room(room, room))


@pytest.mark.parametrize("name", ["ours", "ours-clamped", "stock-tuned", "stock-defaults"])
def test_jobs_with_a_parameter_server_have_as_many_pods_as_others(name):
    text = str(new_arm(name).served_job("some", pods=4))
    assert "'replicas': 1" in text or "'parameterServers': 1" in text
    assert "'replicas': 3" in text or "'workers': 3" in text
    assert "registry.example/bench:1" in text


def test_nobody_expects_bare_pods_to_be_replaced():
    assert all("raw" in group.skipped for group in (*full(), *waiting()))
