"""The check that every rule has a test."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

TEST = '''"""S3."""
# W4 in a comment is no proof
X = "W5"
def test_one():
    """W1, RT10, FC03 (not W10, W03x or XW3)."""
class TestTwo:
    """PY2."""
    async def test_three(self):
        """Q1-Q3."""
'''


@pytest.fixture
def tool():
    return runpy.run_path(str(ROOT / "tools" / "rulecoverage.py"))


def test_only_docstrings_of_tests_cite(tool):
    assert tool["cited"](TEST) == {"S3", "W1", "RT10", "FC03", "W10", "PY2", "Q1", "Q3"}


def test_comments_of_the_list_are_no_rules(tool):
    assert tool["rules"]("# heading\n\nW1   one thing\nRT2\n") == {"W1": "one thing", "RT2": ""}


@pytest.mark.parametrize(
    ("docstring", "code"), [("W1, G1, G2, GC1.", 0), ("W1, G1, GC1.", 0), ("G1, G2, GC1.", 1)]
)
def test_a_rule_without_a_test_fails_the_check_by_name(tmp_path, capsys, docstring, code):
    """A gate may be cited by a benchmark, a rule may not."""
    for folder in ("tools", "tests/unit", "benchmarks", "docs/rules"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "rulecoverage.py", tmp_path / "tools")
    (tmp_path / "docs" / "rules" / "runtime.txt").write_text("W1 one\nG1 two\nG2 three\n")
    (tmp_path / "docs" / "rules" / "other.txt").write_text("GC1 four\nKT1 five\n")
    (tmp_path / "tests" / "unit" / "test_x.py").write_text(f'def test_x():\n    """{docstring}"""\n')
    (tmp_path / "benchmarks" / "y.py").write_text('"""G2, W1, KT1."""\n')
    assert runpy.run_path(str(tmp_path / "tools" / "rulecoverage.py"))["main"]() == code
    assert ("W1: no test cites it (one)" in capsys.readouterr().out) == bool(code)


def test_a_benchmark_is_no_proof_of_a_rule_of_collection(tmp_path):
    """GC1 is a rule, G1 a gate."""
    for folder in ("tools", "tests", "benchmarks", "docs/rules"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "rulecoverage.py", tmp_path / "tools")
    (tmp_path / "docs" / "rules" / "all.txt").write_text("GC1 one\n")
    (tmp_path / "benchmarks" / "y.py").write_text('"""GC1."""\n')
    assert runpy.run_path(str(tmp_path / "tools" / "rulecoverage.py"))["uncited"]() == {"GC1": "one"}


def test_the_lists_name_every_rule_once():
    """Otherwise the second summary would hide the first."""
    names = [
        line.split()[0]
        for file in sorted((ROOT / "docs" / "rules").glob("*.txt"))
        for line in file.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(names) == len(set(names)) > 136
