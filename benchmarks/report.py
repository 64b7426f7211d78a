"""Results as Markdown, written between two markers of a document so that the text around them stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.result import Ratio, Result, Row

__all__ = ["BEGIN", "END", "render", "write"]

BEGIN = "<!-- results: generated from benchmarks/results, do not edit -->"
END = "<!-- end of results -->"


def render(results: Sequence[tuple[Result, Mapping[str, Any]]]) -> str:
    """Return one section for each result."""
    return "\n\n".join(_section(result, document) for result, document in results)


def write(path: Path, results: Sequence[tuple[Result, Mapping[str, Any]]]) -> None:
    """Replace what is between the markers of the document.

    Raises: ValueError when the document lacks a marker.
    """
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{path.name} lacks the line {END if begin else BEGIN!r}: add it where results belong"
        )
    path.write_text(f"{head}{BEGIN}\n\n{render(results)}\n\n{END}{tail}")


def _section(result: Result, document: Mapping[str, Any]) -> str:
    lines = [f"## {result.title}", "", result.conditions, ""]
    labels = [column.label for column in result.columns]
    lines += [f"| | {' | '.join(labels)} |", "|---|" + "---:|" * len(labels)]
    lines += [_row(result, row) for row in result.rows]
    if result.ratios:
        lines += ["", *(_ratio(ratio) for ratio in result.ratios)]
    lines += ["", f"`{document['command']}` ({document['scale']}) on {_machine(document['machine'])}"]
    return "\n".join(lines)


def _row(result: Result, row: Row) -> str:
    if not row.values:
        cells = [f"not measured: {row.note}", *("" for _ in result.columns[1:])]
    else:
        cells = [
            f"{row.values[column.key]:,.{column.digits}f}" if column.key in row.values else "–"
            for column in result.columns
        ]
    return f"| {row.subject} | {' | '.join(cells)} |"


def _ratio(ratio: Ratio) -> str:
    text = f"- {ratio.what}: **{ratio.value:,.2f}{ratio.unit}**"
    if ratio.is_kept is None:
        return text
    bound = f"at least {ratio.at_least:g}" if ratio.at_least is not None else f"at most {ratio.at_most:g}"
    return f"{text} (target: {bound}{ratio.unit}; {'kept' if ratio.is_kept else 'missed'})"


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(
        f"{name} {machine[name]}"
        for name in (
            "python",
            "aiohttp",
            "msgspec",
            "orjson",
            "uvloop",
            "kubernetes-asyncio",
            "go",
            "client-go",
        )
        if name in machine
    )
    return (
        f"{machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gib']} GiB, load {machine['load_before']} "
        f"before the run; {versions}"
    )
