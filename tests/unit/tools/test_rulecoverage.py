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
    """W1, RT10 (not W10 or XW3)."""
class TestTwo:
    """PY2."""
    async def test_three(self):
        """Q1-Q3."""
'''


@pytest.fixture
def tool():
    return runpy.run_path(str(ROOT / "tools" / "rulecoverage.py"))


def test_only_docstrings_of_tests_cite(tool):
    assert tool["cited"](TEST) == {"S3", "W1", "RT10", "W10", "PY2", "Q1", "Q3"}


def test_comments_of_the_list_are_no_rules(tool):
    assert tool["rules"]("# heading\n\nW1   one thing\nRT2\n") == {"W1": "one thing", "RT2": ""}


@pytest.mark.parametrize(("docstring", "code"), [("W1, G1, G2.", 0), ("W1, G1.", 0), ("G1, G2.", 1)])
def test_a_rule_without_a_test_fails_the_check_by_name(tmp_path, capsys, docstring, code):
    """A gate may be cited by a benchmark, a rule may not."""
    for folder in ("tools", "tests/unit", "benchmarks", "docs/rules"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "rulecoverage.py", tmp_path / "tools")
    (tmp_path / "docs" / "rules" / "runtime.txt").write_text("W1 one\nG1 two\nG2 three\n")
    (tmp_path / "tests" / "unit" / "test_x.py").write_text(f'def test_x():\n    """{docstring}"""\n')
    (tmp_path / "benchmarks" / "y.py").write_text('"""G2, W1."""\n')
    assert runpy.run_path(str(tmp_path / "tools" / "rulecoverage.py"))["main"]() == code
    assert ("W1: no test cites it (one)" in capsys.readouterr().out) == bool(code)


def test_the_list_names_every_rule_once():
    """Otherwise the second summary would hide the first."""
    lines = (ROOT / "docs" / "rules" / "runtime.txt").read_text().splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert len(names) == len(set(names)) == 136
