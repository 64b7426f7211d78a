"""What benchmarks store, and the table that is made of it alone."""

import pytest

from benchmarks import report
from benchmarks.result import FOLDER, Column, Ratio, Result, Row, Scale, read_all

MACHINE = {"cpus": 2, "cpu": "some", "memory_gib": 8, "load_before": 0.1, "python": "3.11.0"}
RESULT = Result(
    "speed",
    "Speed",
    "On a table.",
    (Column("rate", "per second", 0), Column("micros", "µs")),
    (Row("ours", {"rate": 12_345.6, "micros": 81.04}), Row("theirs", note="it is not installed")),
    (Ratio("ours against theirs", 5.5, at_least=5.0), Ratio("lag", 60.0, at_most=50.0, unit=" ms")),
)


def test_a_stored_result_reads_back_as_it_was(tmp_path):
    RESULT.store(tmp_path, scale=Scale.FULL, machine=MACHINE, command="python -m benchmarks speed")
    ((result, document),) = read_all(tmp_path)
    assert result == RESULT
    assert document["machine"] == MACHINE


def test_the_table_says_figures_targets_and_why_a_row_is_empty():
    text = report.render([(RESULT, {"machine": MACHINE, "scale": "full", "command": "run it"})])
    assert "| ours | 12,346 | 81.0 |" in text
    assert "| theirs | not measured: it is not installed |  |" in text
    assert "ours against theirs: **5.50** (target: at least 5; kept)" in text
    assert "lag: **60.00 ms** (target: at most 50 ms; missed)" in text
    assert "`run it` (full) on 2 CPUs (some), 8 GiB" in text


def test_only_what_is_between_the_markers_changes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write(page, [(RESULT, {"machine": MACHINE, "scale": "full", "command": "run it"})])
    text = page.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n\n## Speed\n")
    assert text.endswith(f"\n\n{report.END}\nafter\n")
    assert "old" not in text


def test_a_page_without_markers_is_refused_and_left_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("mine\n")
    with pytest.raises(ValueError, match=r"page\.md lacks the line"):
        report.write(page, [])
    assert page.read_text() == "mine\n"


@pytest.mark.parametrize("content", ["", "[]", '{"name": "speed"}'])
def test_a_file_that_is_no_result_is_named(tmp_path, content):
    (tmp_path / "speed.json").write_text(content)
    with pytest.raises(ValueError, match=r"speed\.json is no benchmark result"):
        read_all(tmp_path)


def test_the_page_shows_the_stored_results():
    """A result that was stored without its table, or a table edited by hand, would tell two stories."""
    page = FOLDER.parents[1] / "docs" / "benchmarks" / "runtime.md"
    assert report.render(read_all(FOLDER)) in page.read_text()
