"""The result of a comparison, and what is made of it alone."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.report import BEGIN, END
from benchmarks.stock import report, results
from benchmarks.stock.journal import Record
from benchmarks.stock.plan import Plan
from benchmarks.stock.scenario import Group, Outcome
from benchmarks.stock.scenarios.failures import full, waiting
from benchmarks.stock.scenarios.idle import Idle
from benchmarks.stock.scenarios.scale import Scale
from benchmarks.stock.scenarios.storm import Storm

ROOT = Path(__file__).resolve().parents[3]
FAILURES = {scenario.name: scenario for group in (*full(), *waiting()) for scenario in group.scenarios}
MACHINE = {
    "cpus": 2,
    "cpu": "some",
    "memory_gib": 8,
    "load_before": 0.1,
    "python": "3.11.0",
    "kubernetes": "v1.36.3",
}
PLAN = Plan(
    "quick",
    (Group("storm-300", (Storm(300), Idle(300)), {"stock-defaults": "it takes minutes"}),),
    ("ours", "stock-tuned", "raw", "stock-defaults"),
    repetitions=2,
)


def found():
    def storm(speed, requests, **notes):
        return Outcome({"pods_per_second": speed, "requests_per_job": requests, "peak_memory": 100.0}, notes)

    idle = Outcome({"writes": 0, "requests": 0}, {})
    by_arm = {
        "ours": [
            {"storm-300": storm(600, 7), "idle-300": idle},
            {"storm-300": storm(800, 8), "idle-300": idle},
        ],
        "stock-tuned": [{"storm-300": storm(175, 14, requests_per_job="4 create | pods")}, {}],
        "raw": [{"storm-300": storm(1000, 0)}, {"storm-300": storm(1000, 0)}],
    }
    records = [
        Record(
            cell,
            {"program": f"of {cell.arm}"},
            by_arm[cell.arm][cell.repetition],
            {
                "idle-300": "it | ended",
                **({} if by_arm[cell.arm][cell.repetition] else {"storm-300": "it hung"}),
            }
            if cell.arm == "stock-tuned"
            else {},
        )
        for cell in PLAN.cells()
    ]
    return results.document(PLAN, records, machine=MACHINE, command="make bench-quick")


def test_a_stored_result_is_whole_and_of_json_only(tmp_path):
    path = results.store(found(), tmp_path)
    assert path.name == "stock-quick.json"
    assert results.load(tmp_path) == json.loads(json.dumps(found()))
    assert results.figures(found(), "storm-300", "ours", "pods_per_second") == [600, 800]


def test_the_full_result_comes_before_the_quick_one(tmp_path):
    assert results.load(tmp_path) is None
    results.store(found(), tmp_path)
    results.store({**found(), "name": "stock-full"}, tmp_path)
    assert results.load(tmp_path)["name"] == "stock-full"
    (tmp_path / "stock-full.json").write_text("{")
    with pytest.raises(ValueError, match=r"stock-full\.json is no benchmark result"):
        results.load(tmp_path)


def test_claims_compare_medians_of_one_run_with_their_targets():
    claims = {claim.what: claim for claim in results.claims(found())}
    assert claims["pods/s against tuned training-operator, storm-300"].value == 4.0
    assert claims["pods/s against tuned training-operator, storm-300"].is_kept
    assert claims["pods/s against the raw limit, storm-300"].value == pytest.approx(0.7)
    assert claims["requests per job, storm-300"].value == 7.5
    assert claims["API writes while idle, idle-300"].is_kept
    assert not any("defaults" in what for what in claims)


def test_tables_say_spread_broken_arms_and_who_was_left_out():
    text = report.render(found())
    assert "| **this operator** | 700 [600–800] |" in text
    assert "| training-operator, tuned | 175 |" in text
    assert "broken in 1 repetitions: it hung" in text
    assert "| training-operator, tuned | broken: it / ended |" in text
    assert "- Not measured: training-operator, defaults: it takes minutes." in text
    assert "pods/s against tuned training-operator, storm-300: **4.00** (target: at least 4; kept)" in text
    assert "Kubernetes v1.36.3" in text


def test_a_figure_that_did_not_come_about_is_told_in_words():
    said = found()
    ours = said["sections"][0]["rows"][0]["repetitions"]
    for each in ours:
        each["figures"]["pods_per_second"] = None
        each["notes"]["pods_per_second"] = "not within 10 min"
    assert "| **this operator** | not within 10 min |" in report.render(said)


def test_what_did_not_happen_once_is_told_beside_the_figure_and_makes_no_ratio():
    said = found()
    said["sections"][0]["rows"][0]["repetitions"][0]["figures"]["pods_per_second"] = None
    assert "| **this operator** | 800, but not in 1 of 2 |" in report.render(said)
    assert not any("pods/s" in claim.what for claim in results.claims(said))


def test_costs_are_said_to_grow_where_they_were_measured_at_two_sizes():
    plan = Plan(
        "full", tuple(Group(f"scale-{n}", (Scale(n),)) for n in (100, 10_000)), ("ours", "stock-tuned")
    )
    costs = {("ours", "scale-100"): 2.0, ("ours", "scale-10000"): 7.0, ("stock-tuned", "scale-100"): 1.0}
    records = [
        Record(cell, {}, {cell.group: Outcome({"ready": costs[cell.arm, cell.group], "requests": 0})})
        for cell in plan.cells()
        if (cell.arm, cell.group) in costs
    ]
    text = report.render(results.document(plan, records, machine=MACHINE, command="make bench"))
    grown = text.partition("## From 100 to 10,000 pods")[2]
    assert "| **this operator** | 100 | 3.5 | – | – | – | – | – | – |" in grown
    assert "training-operator" not in grown
    assert "## From" not in report.render(found())


def test_the_summary_has_a_column_for_each_arm_that_was_measured():
    lines = report.summary(found()).splitlines()
    assert (
        lines[0] == "| | **this operator** | training-operator, tuned | the same pods POSTed, no operator |"
    )
    assert lines[2] == "| Pods per second, 300 jobs of 4 | 700 | 175 | 1,000 |"
    assert lines[3] == "| API requests per job | 7.5 | 14.0 | 0.0 |"
    assert len(lines) == 6


def test_the_summary_says_who_does_not_recover():
    plan = Plan("full", (Group("node-lost", (FAILURES["node-lost"],)),), ("ours", "stock-tuned"))
    records = [
        Record(cell, {}, {"node-lost": Outcome({"median": 371.2 if cell.arm == "ours" else None})})
        for cell in plan.cells()
    ]
    lines = report.summary(
        results.document(plan, records, machine=MACHINE, command="make bench")
    ).splitlines()
    assert lines[0] == "| | **this operator** | training-operator, tuned |"
    assert lines[2:] == ["| Lost node: running elsewhere after s | 371 | not recovered |"]


def test_the_page_shows_the_stored_result(tmp_path):
    """Written anew by `python -m benchmarks.stock --table`."""
    page = ROOT / "docs" / "benchmarks" / "stock.md"
    stored = results.load()
    if stored is None:
        assert "No result is stored yet." in page.read_text()
        return
    copy = tmp_path / page.name
    copy.write_text(page.read_text())
    report.write(copy, stored, plots=tmp_path / "stock.svg")
    assert copy.read_text() == page.read_text()


def test_a_page_is_written_between_its_markers_with_a_plot_that_does_not_change(tmp_path):
    page, plot = tmp_path / "page.md", tmp_path / "page.svg"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    report.write(page, found(), plots=plot)
    text, drawn = page.read_text(), plot.read_bytes()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert b"this operator" in drawn
    assert b"background" not in drawn
    report.write(page, found(), plots=plot)
    assert page.read_text() == text
    assert plot.read_bytes() == drawn


def test_a_page_without_markers_is_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match=r"page.md lacks the line"):
        report.write(page, found(), plots=tmp_path / "page.svg")
    assert page.read_text() == "nothing"


def test_a_page_says_how_often_whom_was_measured():
    counts = "measured 2 times **this operator**, the same pods POSTed, no operator; once training-operator, tuned."
    assert f"- Medians, lowest and highest; {counts}" in report.render(found())


def test_what_an_interrupted_run_has_measured_says_how_much_that_is():
    """A page must not look as if all was measured; what was not begun has no section."""
    plan = dataclasses.replace(PLAN, groups=(*PLAN.groups, Group("storm-8", (Storm(8),))))
    first = plan.cells()[0]
    outcomes = {"storm-300": Outcome({"pods_per_second": 1.0})}
    part = [Record(first, {"program": "1"}, outcomes, {}, 1000.0, 119.0)]
    machine = {name: fact for name, fact in MACHINE.items() if name != "load_before"}
    said = results.document(plan, part, machine=machine, command="make bench")
    assert [section["name"] for section in said["sections"]] == ["storm-300", "idle-300"]
    assert "| training-operator, tuned | not measured yet | |" in report.render(said)
    text = report.render(said)
    assert (
        f"`make bench` (1 of its {len(plan.cells())} measurements so far) on 2 CPUs (some), 8 GiB, in 2 minutes; "
        in text
    )
