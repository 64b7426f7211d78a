"""Scenarios of failures tell a job that is whole again from one that is not, and never wait for ever."""

import dataclasses

from benchmarks.stock.scenario import Room
from benchmarks.stock.scenarios.crashloop import CrashLoop
from benchmarks.stock.scenarios.failures import full, quick
from benchroom import StandIn

POD_FAILED = quick()[0].scenarios[0]


async def test_job_whose_pod_is_replaced_is_timed_by_the_audit_log(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await POD_FAILED.run(Room(room, room))
    assert outcome.figures == {"created": 1.0, "median": 2.0, "slowest": 2.0, "started": 1.0}


async def test_job_that_stays_broken_is_said_to_be_and_has_no_figure(tmp_path):
    room = StandIn(tmp_path, replaces=False)
    outcome = await dataclasses.replace(POD_FAILED, patience=0.2).run(Room(room, room))
    assert set(outcome.figures.values()) == {None}
    assert outcome.notes == {"created": "not recovered in 0.2 s, failure 1 of 2"}


async def test_crash_loop_counts_what_the_operator_started_and_asked_for(tmp_path):
    room = StandIn(tmp_path, replaces=True)
    outcome = await CrashLoop(duration=0.0).run(Room(room, room))
    assert outcome.figures == {"restarts": 1, "requests": 1}


def test_nobody_expects_bare_pods_to_be_replaced():
    assert all("raw" in group.skipped for group in full())
