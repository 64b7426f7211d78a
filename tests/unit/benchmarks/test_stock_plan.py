"""Whose turn it is, what an interrupted run goes on with, and what a few numbers say of many."""

import dataclasses
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.stock.arm import Broken
from benchmarks.stock.journal import Journal, Record
from benchmarks.stock.plan import ARMS, FULL, QUICK, Plan, new_arm
from benchmarks.stock.progress import Progress
from benchmarks.stock.runner import run, run_cell
from benchmarks.stock.scenario import Group, Outcome
from benchmarks.stock.scenarios.storm import Storm
from benchmarks.stock.spread import percentile, spread
from benchmarks.stock.usage import usage

ROOT = Path(__file__).resolve().parents[3]
PLAN = Plan(
    "test",
    (
        Group("small", (Storm(2),)),
        Group("big", (Storm(9),), {"raw": "it is too big"}),
        Group("once", (Storm(8),), repetitions=1),
        Group("slow", (Storm(7),), rare=("raw",)),
    ),
    ("ours", "stock-tuned", "raw"),
    repetitions=3,
)


def test_arms_take_turns_and_each_repetition_begins_with_another():
    turns = [cell.arm for cell in PLAN.cells() if cell.group == "small"]
    assert turns == ["ours", "stock-tuned", "raw", "stock-tuned", "raw", "ours", "raw", "ours", "stock-tuned"]


def test_a_group_leaves_out_whom_it_names_and_repeats_no_more_than_it_says():
    cells = PLAN.cells()
    assert {cell.arm for cell in cells if cell.group == "big"} == {"ours", "stock-tuned"}
    assert {cell.repetition for cell in cells if cell.group == "once"} == {0}
    assert [cell.repetition for cell in cells if (cell.group, cell.arm) == ("slow", "raw")] == [0]
    assert [cell.repetition for cell in cells if (cell.group, cell.arm) == ("slow", "ours")] == [0, 1, 2]
    assert len(set(cells)) == len(cells)


def test_a_part_of_a_plan_is_what_was_asked_for():
    part = PLAN.limited(arms=["raw"], groups=["small"], repetitions=1)
    assert [(cell.group, cell.arm) for cell in part.cells()] == [("small", "raw")]
    assert PLAN.limited() == PLAN
    with pytest.raises(ValueError, match="no arm named nobody: there are ours, stock-tuned, raw"):
        PLAN.limited(arms=["nobody"])


@pytest.mark.parametrize("plan", [QUICK, FULL], ids=lambda plan: plan.name)
def test_plans_name_known_arms_and_every_scenario_once(plan):
    names = [scenario.name for group in plan.groups for scenario in group.scenarios]
    assert len(set(names)) == len(names)
    assert set(plan.arms) <= set(ARMS)
    assert all({*group.skipped, *group.rare} <= set(ARMS) for group in plan.groups)


@pytest.mark.parametrize("plan", [QUICK, FULL], ids=lambda plan: plan.name)
def test_a_plan_prints_the_same_in_another_process(plan):
    """An interrupted run is gone on with only by a plan that prints alike: no addresses."""
    code = f"from benchmarks.stock.plan import {plan.name.upper()} as plan; print(plan.fingerprint())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert said.stdout.strip() == plan.fingerprint()


def test_every_arm_has_a_storm_in_the_full_plan_and_the_quick_one_is_short():
    """A ratio to an arm with its default limits needs one storm that both went through."""
    assert {cell.arm for cell in FULL.cells() if cell.group == "storm-100"} == set(ARMS)
    assert len(QUICK.cells()) <= 8


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_has_the_name_it_is_asked_for_by(name):
    arm = new_arm(name)
    assert arm.name == name
    assert arm.versions
    assert not arm.pids()


@pytest.mark.parametrize("name", ARMS)
def test_pods_of_every_arm_have_one_container_of_the_same_image(name):
    job = new_arm(name).job("some", pods=3)
    text = str(job)
    assert "registry.example/bench:1" in text
    assert "'cpu': '100m'" in text


PATIENT = Plan(
    "patient",
    (
        Group("quick", (Storm(2),)),
        Group("hang", (Storm(3),), {"raw": "no"}, 1, patient=("stock-tuned", "v2-tuned")),
        Group("node", (Storm(4),), {"raw": "no"}, 1, patient=("stock-tuned", "v2-tuned")),
        Group("last", (Storm(5),), repetitions=1),
    ),
    ("ours", "stock-tuned", "v2-tuned", "raw"),
    repetitions=2,
)


def test_cells_that_only_wait_are_one_step_after_those_of_arms_that_do_not():
    steps = [[(cell.group, cell.arm) for cell in step] for step in PATIENT.steps() if len(step) > 1]
    assert steps == [[(group, arm) for group in ("hang", "node") for arm in ("stock-tuned", "v2-tuned")]]
    singles = [(step[0].group, step[0].arm) for step in PATIENT.steps() if len(step) == 1]
    assert singles[4:7] == [("hang", "ours"), ("node", "ours"), ("last", "ours")]
    assert PATIENT.cells()[6:10] == list(PATIENT.steps()[6])


@pytest.mark.parametrize("plan", [PATIENT, QUICK, FULL], ids=lambda plan: plan.name)
def test_everything_is_measured_once_before_anything_is_measured_again(plan):
    repetitions = [cell.repetition for cell in plan.cells()]
    assert repetitions == sorted(repetitions)
    named = {(group.name, arm) for group in plan.groups for arm in plan.arms if arm not in group.skipped}
    assert {(cell.group, cell.arm) for cell in plan.cells() if not cell.repetition} == named


def test_the_full_plan_waits_once_for_all_that_wait_and_our_own_arm_is_never_among_them():
    (waiting,) = (step for step in FULL.steps() if len(step) > 1)
    waiting_longest = [
        (group, arm) for group in ("process-hang", "node-lost") for arm in ("stock-tuned", "v2-tuned")
    ]
    others = [(group, "v2-tuned") for group in ("failures", "operator-killed")]
    assert [(cell.group, cell.arm) for cell in waiting] == [*waiting_longest, *others]


def test_the_full_plan_repeats_storms_five_times_for_those_that_are_near_each_other():
    for group in ("storm-100", "storm-300"):
        for arm in ("ours", "stock-tuned", "raw"):
            assert [c.repetition for c in FULL.cells() if (c.group, c.arm) == (group, arm)] == [0, 1, 2, 3, 4]


def record(cell, value=1.0):
    outcomes = {"storm-2": Outcome({"speed": value}, {"speed": "so"})}
    return Record(cell, {"it": "1"}, outcomes, {"other": "broke"}, 1000.0, 64.5)


def test_an_interrupted_run_goes_on_with_what_it_has(tmp_path):
    first, second, *_ = PLAN.cells()
    journal = Journal(tmp_path / "journal", PLAN)
    journal.add(record(first))
    journal.add(record(second, 2.0))
    again = Journal(tmp_path / "journal", PLAN)
    assert again.records == journal.records
    assert again.done() == {first, second}


def test_a_record_that_was_cut_off_is_measured_again(tmp_path):
    first, second, *_ = PLAN.cells()
    journal = Journal(tmp_path / "journal", PLAN)
    journal.add(record(first))
    with (tmp_path / "journal").open("a") as lines:
        lines.write('{"cell": {"gro')
    cut = Journal(tmp_path / "journal", PLAN)
    assert cut.done() == {first}
    cut.add(record(second))
    assert Journal(tmp_path / "journal", PLAN).done() == {first, second}


def test_another_plan_begins_anew(tmp_path):
    Journal(tmp_path / "journal", PLAN).add(record(PLAN.cells()[0]))
    other = Journal(tmp_path / "journal", dataclasses.replace(PLAN, repetitions=4))
    assert not other.records
    other.add(record(PLAN.cells()[1]))
    assert Journal(tmp_path / "journal", PLAN).records == []


async def test_a_broken_arm_is_recorded_with_its_error():
    def broken(_name):
        raise Broken("it does not start\non this machine")

    cell = PLAN.cells()[0]
    found = await run_cell(cell, PLAN.group("small"), arm_of=broken, say=lambda _: None, nodes=0)
    assert found.errors == {"storm-2": "it does not start on this machine"}
    assert (found.cell, found.outcomes) == (cell, {})


async def test_broken_arms_side_by_side_are_recorded_and_a_resumed_run_leaves_out_what_is_there(tmp_path):
    def broken(name):
        raise Broken(f"{name} does not start")

    journal = Journal(tmp_path / "journal", PATIENT)
    for cell in PATIENT.steps()[6][1:3]:
        journal.add(record(cell))
    await run(PATIENT, journal, arm_of=broken)
    found = Journal(tmp_path / "journal", PATIENT)
    assert [each.cell for each in found.records[2:]] == [
        cell for cell in PATIENT.cells() if cell not in PATIENT.steps()[6][1:3]
    ]
    assert len(found.done()) == len(found.records) == len(PATIENT.cells())
    (hang,) = (each for each in found.records if (each.cell.group, each.cell.arm) == ("hang", "stock-tuned"))
    assert hang.errors == {"storm-3": "stock-tuned does not start"}


def test_progress_says_how_each_cell_ended_where_there_is_no_terminal(capsys):
    progress = Progress(sys.stderr, total=9, done=1)
    say = progress.begin(PLAN.cells()[0])
    say("nobody sees this")
    progress.end(record(PLAN.cells()[0]))
    said = capsys.readouterr().err
    assert said == "[2/9] 0:00 small, ours, repetition 1: other is broken: broke, 1:04\n"


class Terminal(io.StringIO):
    """A stream that says of itself that it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_shows_all_cells_that_run_side_by_side_on_one_line():
    terminal = Terminal()
    progress = Progress(terminal, total=9)
    first, second, *_ = PLAN.cells()
    for cell in (first, second):
        progress.begin(cell)("waits " + 100 * "x")
    shown = terminal.getvalue().rpartition("\x1b[2K")[2]
    assert shown.startswith("[1/9] 0:00 small, ours, repetition 1: waits x")
    assert " | small, stock-tuned, repetition 1: waits x" in shown
    assert len(shown) < 180
    progress.end(record(second))
    assert terminal.getvalue().rpartition("\n")[2].startswith("\r\x1b[2K[2/9] 0:00 small, ours")


@pytest.mark.parametrize(("share", "value"), [(0, 1), (0.5, 2), (0.51, 3), (0.99, 4), (1, 4)], ids=str)
def test_a_percentile_is_a_value_that_was_measured(share, value):
    assert percentile([4, 2, 3, 1], share) == value


def test_no_values_have_no_percentile_and_no_spread():
    with pytest.raises(ValueError, match="no percentile"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="no repetition"):
        spread([])


def test_a_spread_is_the_median_and_the_extremes():
    found = spread([3, 1, 10])
    assert (found.median, found.low, found.high, found.count) == (3, 1, 10, 3)


def test_usage_is_read_behind_a_name_with_brackets_and_spaces(tmp_path):
    (tmp_path / "7").mkdir()
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["0"] * 10, str(3 * ticks), str(ticks), *["0"] * 20]
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {' '.join(fields)}\n")
    (tmp_path / "7" / "status").write_text("Name:\tit\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    found = usage([7, 8], proc=tmp_path)
    assert (found.cpu, found.peak_memory, found.memory) == (4.0, 2048 * 1024, 1024 * 1024)
