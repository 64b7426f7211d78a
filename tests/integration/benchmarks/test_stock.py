"""A small comparison on the real control plane: without nodes, so that nothing has to be built for it."""

import pytest

from benchmarks.stock import report, results
from benchmarks.stock.journal import Journal
from benchmarks.stock.plan import Plan
from benchmarks.stock.runner import run
from benchmarks.stock.scenario import Group
from benchmarks.stock.scenarios.storm import Storm

MACHINE = {
    "cpus": 2,
    "cpu": "some",
    "memory_gib": 8,
    "load_before": 0.1,
    "python": "3.11",
    "kubernetes": "v1",
}


@pytest.mark.slow
async def test_a_storm_is_timed_and_counted_for_the_operator_and_for_the_raw_limit(tmp_path):
    plan = Plan("tiny", (Group("storm-3", (Storm(3, runs=False),)),), ("ours", "raw"))
    journal = Journal(tmp_path / "journal", plan)
    await run(plan, journal, nodes=0)
    assert [record.errors for record in journal.records] == [{}, {}]
    found = results.document(plan, journal.records, machine=MACHINE, command="make bench-quick")
    (speed,) = results.figures(found, "storm-3", "ours", "pods_per_second")
    assert speed > 0
    (requests,) = results.figures(found, "storm-3", "ours", "requests_per_job")
    assert 6 <= requests <= 20, found["sections"][0]["rows"][0]  # 4 pods, a Service, its status at least once
    assert results.figures(found, "storm-3", "raw", "requests_per_job") == [0]
    assert "this operator" in report.render(found)
