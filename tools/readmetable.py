"""Write the README's tables from the stored reports of real runs: the demo, and the comparison with other operators.

`python tools/readmetable.py [--check]` reads docs/demo.json, which is the report that `make demo` leaves, and the result
that `make bench` or `make bench-quick` stored, and replaces what stands between the markers. With --check nothing is
written; exit code 1 says that a table is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo table: make demo -->\n", "<!-- end -->\n"
STOCK = "<!-- comparison: make bench -->\n"


def table(report: dict[str, Any]) -> str:
    """Return the table of a report."""
    lines = [
        "| Disturbance | Noticed | Next training step | Step before → after | Charged |",
        "|---|---:|---:|---:|---|",
    ]
    for row in report["disturbances"]:
        noticed = f"{row['detected']:.1f} s" if row["detected"] >= 0.1 else "< 0.1 s"
        pause = "no pause" if row["next_step"] is None else f"{row['next_step']:.1f} s"
        step = f"{row['step_before']}"
        if row["step_after"] != row["step_before"]:
            step += f" → {row['step_after']}"
        lines.append(f"| {row['title']} | {noticed} | {pause} | {step} | {charged(row)} |")
    met = sum(bool(expectation["holds"]) for expectation in report["expectations"])
    lines += ["", f"{met} of {len(report['expectations'])} expectations met, in {report['seconds']:.0f} s."]
    return "\n".join(lines) + "\n"


def charged(row: dict[str, Any]) -> str:
    """Say what a disturbance was charged to."""
    parts = [
        f"{row[name]} {name if row[name] > 1 else name[:-1]}"
        for name in ("failures", "disruptions")
        if row[name]
    ]
    return ", ".join(parts) or "nothing"


def comparison() -> str:
    """Return the table of the stored comparison."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.stock import report, results

    found = results.load()
    if found is None:
        return "Not measured yet: run `make bench-quick`.\n"
    machine = found["machine"]
    return f"{report.summary(found)}\n`{found['command']}` on {machine['cpus']} processors that all programs share.\n"


def replaced(readme: str, text: str, begin: str = BEGIN) -> str:
    """Return the README with the text between its markers."""
    head, _, rest = readme.partition(begin)
    _, _, tail = rest.partition(END)
    return head + begin + text + END + tail


def main(arguments: list[str]) -> int:
    """Write or check the table; return the exit code."""
    path = ROOT / "README.md"
    readme = path.read_text()
    wanted = replaced(readme, table(json.loads((ROOT / "docs" / "demo.json").read_text())))
    wanted = replaced(wanted, comparison(), STOCK)
    if "--check" in arguments:
        return int(readme != wanted)
    path.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
