"""The README's table is that of a stored run, and says so when it isn't."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def readmetable():
    spec = importlib.util.spec_from_file_location("readmetable", ROOT / "tools" / "readmetable.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_shows_the_stored_run(readmetable):
    assert readmetable.main(["--check"]) == 0


def test_the_stored_run_succeeded_with_every_expectation_held():
    report = json.loads((ROOT / "docs" / "demo.json").read_text())
    assert report["succeeded"] is True
    assert all(expectation["holds"] for expectation in report["expectations"])
    assert all(row["survived"] for row in report["disturbances"])


def test_a_row_tells_pause_rollback_and_charge(readmetable):
    row = {
        "title": "kill",
        "detected": 0.04,
        "next_step": None,
        "step_before": 90,
        "step_after": 80,
        "failures": 1,
        "disruptions": 2,
    }
    text = readmetable.table({"disturbances": [row], "expectations": [{"holds": False}], "seconds": 60})
    assert "| kill | < 0.1 s | no pause | 90 → 80 | 1 failure, 2 disruptions |" in text
    assert "0 of 1 expectations met" in text


def test_only_what_stands_between_the_markers_changes(readmetable):
    readme = f"head\n{readmetable.BEGIN}old\n{readmetable.END}tail\n"
    assert readmetable.replaced(readme, "new\n") == f"head\n{readmetable.BEGIN}new\n{readmetable.END}tail\n"
