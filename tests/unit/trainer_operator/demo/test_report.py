"""The end of the run: JSON, tables, verdict and picture."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from trainer_operator.demo.frame import compose
from trainer_operator.demo.report import Place, document, succeeded, summary, verdict, write, write_svg
from trainer_operator.demo.verify import Check, Reference

PLACES = (Place("report", Path("/state/report.json")), Place("logs", Path("/state/logs")))
GOOD, BAD = Check("it trains", True, "it did"), Check("it is quick", False, "it was not")


@pytest.fixture
def frame(recording, row):
    recording.apply(20).tell(phase="Succeeded", step=20, accuracy=0.9722)
    return compose(
        recording.timeline,
        now=138.4,
        trainer="digits",
        epochs=5,
        rows=[row],
        planned=1,
        checks=[GOOD],
        reference=Reference(0.975, 20),
    )


def test_success_needs_expectations_that_hold(frame):
    assert succeeded(frame)
    assert not succeeded(replace(frame, checks=(GOOD, BAD)))
    assert not succeeded(replace(frame, checks=()))


def test_the_document_holds_verdict_table_and_records(tmp_path, frame, recording):
    path = tmp_path / "report.json"
    write(path, frame, recording.timeline, PLACES)
    found = json.loads(path.read_text())
    assert found == json.loads(json.dumps(document(frame, recording.timeline, PLACES)))
    assert found["succeeded"] is True
    assert found["disturbances"][0]["kind"] == "kill-worker"
    assert found["disturbances"][0]["repeated"] == 1
    assert found["expectations"] == [{"expectation": "it trains", "holds": True, "found": "it did"}]
    assert found["records"]["StatusSeen"][-1]["accuracy"] == 0.9722
    assert found["places"]["logs"] == "/state/logs"


def test_the_verdict_is_a_sentence(frame):
    assert verdict(frame).plain == "✓ survived 1 disturbance, accuracy 97.22%, in 138 s"
    assert verdict(replace(frame, checks=(GOOD, BAD))).plain == "✗ 1 of 2 expectations did not hold (138 s)"


def test_the_summary_says_where_everything_is(frame):
    console = Console(file=StringIO(), width=110, color_system=None)
    console.print(summary(frame, PLACES, width=110))
    text = console.file.getvalue()
    assert "report  /state/report.json" in text
    assert "logs    /state/logs" in text
    assert "● Succeeded" in text


def test_the_picture_is_a_whole_svg_with_the_verdict(tmp_path, frame):
    path = tmp_path / "demo.svg"
    write_svg(path, frame)
    text = "".join(ET.fromstring(path.read_text()).itertext()).replace("\xa0", " ")
    assert "survived 1 disturbance" in text
    assert [file.name for file in tmp_path.iterdir()] == ["demo.svg"]
