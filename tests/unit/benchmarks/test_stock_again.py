"""Groups that are measured again take their place in a stored result, and say so."""

import pytest

from benchmarks.stock import report, results
from benchmarks.stock.again import merged, require_same_machine
from benchmarks.stock.journal import Record
from benchmarks.stock.plan import Plan
from benchmarks.stock.scenario import Group, Outcome
from benchmarks.stock.scenarios.storm import Storm

MACHINE = {"cpu": "some", "cpus": 2, "memory_gib": 8, "kubernetes": "v1.36.3", "python": "3.11.0"}
PLAN = Plan("full", (Group("small", (Storm(100),)), Group("large", (Storm(300),))), ("ours", "raw"))


def result(plan=PLAN, *, speed, load=0.1, version="1", machine=MACHINE):
    records = [
        Record(
            cell,
            {"program": version},
            {plan.group(cell.group).scenarios[0].name: Outcome({"pods_per_second": speed})},
            seconds=60.0,
        )
        for cell in plan.cells()
    ]
    return results.document(plan, records, machine={**machine, "load_before": load}, command="make bench")


def again(**kwargs):
    return result(PLAN.limited(groups=["large"]), **kwargs)


def test_only_what_was_measured_again_is_replaced():
    found = merged(result(speed=100.0), again(speed=200.0, load=0.3), date="2030-01-02")
    assert results.figures(found, "storm-100", "ours", "pods_per_second") == [100.0]
    assert results.figures(found, "storm-300", "ours", "pods_per_second") == [200.0]
    assert [section["name"] for section in found["sections"]] == ["storm-100", "storm-300"]
    assert len(found["cells"]["each"]) == 4


def test_the_page_says_which_sections_are_of_another_hour():
    pages = report.render(merged(result(speed=100.0), again(speed=200.0, load=0.3), date="2030-01-02")).split(
        "## "
    )
    told = "Measured again on 2030-01-02, all arms in turn, with a load of 0.3 before."
    assert [told in page for page in pages if page.startswith("Storm")] == [False, True]


def test_results_of_two_machines_do_not_stand_together():
    other = {**MACHINE, "cpus": 64}
    with pytest.raises(ValueError, match=r"another machine \(cpus: 2, now 64\)"):
        merged(result(speed=1.0), again(speed=1.0, machine=other), date="2030-01-02")


def test_results_of_two_versions_of_a_peer_do_not_stand_together():
    with pytest.raises(ValueError, match="other versions of ours"):
        merged(result(speed=1.0), again(speed=1.0, version="2"), date="2030-01-02")


def test_what_was_never_stored_cannot_be_measured_again():
    quick = result(PLAN.limited(groups=["small"]), speed=1.0)
    with pytest.raises(ValueError, match="nothing of storm-300"):
        merged(quick, again(speed=1.0), date="2030-01-02")
    with pytest.raises(ValueError, match="no result of a whole run is stored yet"):
        require_same_machine(None, MACHINE)
