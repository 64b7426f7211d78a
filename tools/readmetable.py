"""Write the README's table of the demo from the stored report of a real run.

`python tools/readmetable.py [--check]` reads docs/demo.json, which is the report that `make demo` leaves, and replaces
what stands between the markers. With --check nothing is written; exit code 1 says that the table is out of date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- demo table: make demo -->\n", "<!-- end -->\n"


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


def replaced(readme: str, text: str) -> str:
    """Return the README with the text between its markers."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + text + END + tail


def main(arguments: list[str]) -> int:
    """Write or check the table; return the exit code."""
    path = ROOT / "README.md"
    readme = path.read_text()
    wanted = replaced(readme, table(json.loads((ROOT / "docs" / "demo.json").read_text())))
    if "--check" in arguments:
        return int(readme != wanted)
    path.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
