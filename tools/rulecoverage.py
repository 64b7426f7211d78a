"""Tell which rules no test cites (`make rules`).

A rule counts as cited when its ID stands in the docstring of a test, of a test's class, or of a module of tests; a
gate or target (G…, KT…) also in a benchmark's. Ranges such as "W1-W5" cite their ends only: what covers everything proves little.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "docs" / "rules"
_KINDS = "RT|PY|[WSQCRLKPG]|CK|QR|DE|CS|GC|FZ|PB|RS|BK|IV|CP|KT|FC|AG|TX|MG|ST|DT|SL|ME|PSR|RC|ND|LT|FT|TR"
_ID = re.compile(rf"(?<![A-Za-z0-9])(?:{_KINDS})(?:0[1-9]|[1-9][0-9]?)(?![A-Za-z0-9])")
_MEASURED = ("G", "KT")


def rules(text: str) -> dict[str, str]:
    """Return the rules of a list: ID and summary."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {parts[0]: parts[1] if len(parts) > 1 else "" for parts in lines}


def all_rules() -> dict[str, str]:
    """Return the rules of all lists."""
    return {
        name: summary
        for file in sorted(RULES.glob("*.txt"))
        for name, summary in rules(file.read_text()).items()
    }


def cited(source: str) -> set[str]:
    """Return the IDs in the docstrings of a module's tests."""
    tree = ast.parse(source)
    return {found for text in _docstrings(tree) for found in _ID.findall(text)}


def uncited() -> dict[str, str]:
    """Return the rules without a test."""
    known = all_rules()
    measured = {name for name in known if name.rstrip("0123456789") in _MEASURED}
    found: set[str] = set()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        found |= cited(file.read_text())
    for file in sorted((ROOT / "benchmarks").rglob("*.py")):
        found |= cited(file.read_text()) & measured
    return {name: summary for name, summary in known.items() if name not in found}


def _docstrings(tree: ast.Module) -> Iterator[str]:
    yield ast.get_docstring(tree) or ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield ast.get_docstring(node) or ""


def main() -> int:
    """Print the uncited rules and return 1 if there are any."""
    missing = uncited()
    for name, summary in missing.items():
        print(f"{name}: no test cites it ({summary})")
    print(f"{len(all_rules()) - len(missing)} rules are cited, {len(missing)} are not")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
