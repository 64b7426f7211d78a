"""A small comparison on the real control plane: without nodes, so that nothing has to be built for it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.stock import report, results
from benchmarks.stock.journal import Journal, Record
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


ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0


@dataclass(frozen=True)
class Waits:
    """A scenario in which nothing happens, for ever."""

    name: str

    async def run(self, room):
        room.only_waits()
        await asyncio.Event().wait()


SIDE_BY_SIDE = Plan(
    "side by side",
    (
        Group("storm-2", (Storm(2, runs=False),), repetitions=1),
        *(Group(name, (Waits(name),), patient=("raw",)) for name in ("a", "b")),
    ),
    ("raw",),
)
PLAN = Plan(
    "interrupted", (Group("storm-2", (Storm(2, runs=False, patience=1e9),)),), ("raw",), repetitions=2
)
PROGRAM = """
import sys
from pathlib import Path
from test_stock import {plan} as PLAN
from benchmarks.stock.interruption import finished
from benchmarks.stock.journal import Journal
from benchmarks.stock.runner import run
sys.exit(0 if finished(run(PLAN, Journal(Path(sys.argv[1]), PLAN), nodes=0)) else 130)
"""


def children(parent):
    """Return the programs that a process has started, by name."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")  # comm is cut at 15 characters
        except OSError:
            continue
        if int(rest.split()[1]) == parent:
            found[int(stat.parent.name)] = name
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clusters"), [("PLAN", 1), ("SIDE_BY_SIDE", 2)])
async def test_a_run_that_is_interrupted_ends_its_programs_and_keeps_what_it_measured(
    tmp_path, name, clusters
):
    plan = globals()[name]
    first, *_ = plan.cells()
    Journal(tmp_path / "journal", plan).add(Record(first))
    program = [sys.executable, "-c", PROGRAM.format(plan=name), str(tmp_path / "journal")]
    path = {"PYTHONPATH": f"{Path(__file__).parent}:{ROOT}", "TMPDIR": str(tmp_path)}
    deadline = time.monotonic() + PATIENCE
    with subprocess.Popen(program, cwd=ROOT, env={**os.environ, **path}, stderr=subprocess.PIPE) as run:
        try:
            while list((started := children(run.pid)).values()).count("kube-apiserver") < clusters:
                assert run.poll() is None
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            run.send_signal(signal.SIGINT)
            _, said = await asyncio.to_thread(run.communicate, timeout=PATIENCE)
        finally:
            run.kill()
    assert run.returncode == 130, said.decode()
    assert said == b""
    assert not [name for pid, name in started.items() if (Path("/proc") / str(pid)).exists()]
    assert Journal(tmp_path / "journal", plan).done() == {first}
    assert not list(tmp_path.glob("bench-*"))
