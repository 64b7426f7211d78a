"""A result as Markdown and as plots, made of the stored JSON alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import BEGIN, END
from benchmarks.result import Ratio
from benchmarks.stock.growth import growth, sizes
from benchmarks.stock.results import claims, figures, is_complete
from benchmarks.stock.spread import spread

__all__ = ["LABELS", "plot", "render", "summary", "write"]

Document = Mapping[str, Any]  # Any: the JSON edge

LABELS = {
    "ours": "**this operator**",
    "ours-clamped": "this operator, clamped to 20 requests/s",
    "stock-tuned": "training-operator, tuned",
    "stock-defaults": "training-operator, defaults",
    "v2-tuned": "Trainer v2 + JobSet, tuned",
    "v2-defaults": "Trainer v2 + JobSet, defaults",
    "raw": "the same pods POSTed, no operator",
}
"""How readers know the arms."""

_COLOURS = {"ours": "#2f81f7", "ours-clamped": "#79b8ff", "raw": "#8c959f"}
_PEER_COLOUR = "#d18616"
_INK = "#7d8590"
"""Readable on white and on near-black."""


def render(found: Document) -> str:
    """Return all sections."""
    parts = [_section(section) for section in found["sections"]]
    met = "\n".join(_claim(ratio) for ratio in claims(dict(found)))
    if met:
        parts.insert(0, f"## Against the targets\n\n{met}")
    return "\n\n".join([*parts, *_growth(found), _origin(found)])


def _growth(found: Document) -> list[str]:
    """Return the section that says how costs grow, where they were measured at several sizes."""
    known = sizes(found)
    if len(known) < 2:
        return []
    (columns,) = (
        section["columns"] for section in found["sections"] if section["name"] == f"scale-{known[-1]}"
    )
    lines = [
        f"## From {known[0]:,} to {known[-1]:,} pods",
        "",
        "How many times as much, for so many times the pods.",
    ]
    lines += ["", f"| | pods | {' | '.join(column['label'] for column in columns)} |"]
    lines.append("|---|" + "---:|" * (len(columns) + 1))
    for arm, label in LABELS.items():
        grown = [growth(found, arm, column["key"]) for column in columns]
        spans = {(each.smallest, each.largest) for each in grown if each is not None}
        for smallest, largest in sorted(spans):
            factors = [
                each and (each.smallest, each.largest) == (smallest, largest) and each.factor
                for each in grown
            ]
            cells = [f"{factor:,.1f}" if factor else "–" for factor in factors]
            lines.append(f"| {label} | {largest / smallest:,.0f} | {' | '.join(cells)} |")
    return ["\n".join(lines)]


def summary(found: Document) -> str:
    """Return what the README shows: a row for a figure, a column for each arm that has any."""
    storms = [s["name"] for s in found["sections"] if s["name"].startswith("storm-") and "x" not in s["name"]]
    biggest = max(storms, key=lambda name: int(name.removeprefix("storm-")), default="")
    idles = [section["name"] for section in found["sections"] if section["name"].startswith("idle-")]
    storming = max(
        (s["name"] for s in found["sections"] if s["name"].startswith("underload-")),
        key=lambda name: int(name.removeprefix("underload-")),
        default="",
    )
    rows: list[tuple[str, str, str, int]] = [
        (biggest, "pods_per_second", f"Pods per second, {_jobs(biggest)} jobs of 4", 0),
        (biggest, "requests_per_job", "API requests per job", 1),
        (biggest, "peak_memory", "Peak memory, MiB", 0),
        *((name, "writes", "API writes while idle", 0) for name in idles[:1]),
        ("pod-failed", "median", "Failed pod replaced and running, s", 2),
        ("pods-failed", "slowest", "The last of 100 that failed at once, s", 1),
        (storming, "created_p99", f"Replacement created in a storm of {_jobs(storming)} jobs, p99 s", 1),
        ("process-hang", "step", "Hung process: next step after s", 0),
        ("node-lost", "median", "Lost node: running elsewhere after s", 0),
    ]
    rows = [row for row in rows if any(figures(dict(found), row[0], arm, row[1]) for arm in LABELS)]
    if not rows:
        return "No figure yet.\n"
    cells = {
        arm: [_brief(found, section, arm, key, digits) for section, key, _, digits in rows] for arm in LABELS
    }
    arms = [arm for arm in LABELS if any(cell != "–" for cell in cells[arm])]
    lines = [f"| | {' | '.join(LABELS[arm] for arm in arms)} |", "|---|" + "---:|" * len(arms)]
    for number, (_, _, label, _) in enumerate(rows):
        lines.append(f"| {label} | {' | '.join(cells[arm][number] for arm in arms)} |")
    return "\n".join(lines) + "\n"


def _jobs(name: str) -> str:
    return f"{int(name.rpartition('-')[2] or 0):,}"


def _brief(found: Document, section: str, arm: str, key: str, digits: int) -> str:
    if not is_complete(dict(found), section, arm, key):
        return "not recovered"
    values = figures(dict(found), section, arm, key)
    return f"{spread(values).median:,.{digits}f}" if values else "–"


def write(path: Path, found: Document, *, plots: Path) -> None:
    """Replace what is between the markers of the page, and draw the plots.

    Raises: ValueError when the page lacks a marker.
    """
    text = path.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"{path.name} lacks the line {END if begin else BEGIN!r}: add it where results belong"
        )
    plot(plots, found)
    image = f"![pods per second by storm]({plots.name})"
    path.write_text(f"{head}{BEGIN}\n\n{image}\n\n{render(found)}\n\n{END}{tail}")


def plot(path: Path, found: Document) -> None:
    """Draw pods per second by storm and arm; the same result gives the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib.figure import Figure

    storms = [section for section in found["sections"] if section["name"].startswith("storm-")]
    settings: dict[Any, Any] = {
        "svg.hashsalt": "stock",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(8, 0.6 + 1.9 * max(1, len(storms))), layout="constrained")
        for number, section in enumerate(storms, 1):
            axes = figure.add_subplot(max(1, len(storms)), 1, number)
            rows = [
                (arm, values)
                for arm in LABELS
                if (values := figures(dict(found), section["name"], arm, "pods_per_second"))
            ]
            spreads = [spread(values) for _, values in rows]
            bars = axes.barh(
                [LABELS[arm].strip("*") for arm, _ in rows],
                [each.median for each in spreads],
                xerr=[[e.median - e.low for e in spreads], [e.high - e.median for e in spreads]],
                color=[_COLOURS.get(arm, _PEER_COLOUR) for arm, _ in rows],
                ecolor=_INK,
            )
            axes.bar_label(bars, [f"{each.median:,.0f}" for each in spreads], padding=4, color=_INK)
            axes.invert_yaxis()
            axes.margins(x=0.12)
            axes.set_title(
                f"{section['title']}: pods created per second", loc="left", color=_INK, fontsize=10
            )
            axes.tick_params(colors=_INK)
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color(_INK)
            axes.patch.set_alpha(0)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def _section(section: Document) -> str:
    columns = section["columns"]
    lines = [f"## {section['title']}", "", section["conditions"], ""]
    lines += [f"| | {' | '.join(column['label'] for column in columns)} |", "|---|" + "---:|" * len(columns)]
    notes: list[str] = []
    keys = {column["key"] for column in columns}
    for row in section["rows"]:
        label = LABELS.get(row["arm"], row["arm"])
        if not row["repetitions"]:
            why = f"broken: {_cell(row['errors'][0])}" if row["errors"] else "not measured yet"
            lines.append(f"| {label} | {why} |" + " |" * (len(columns) - 1))
            continue
        lines.append(f"| {label} | {' | '.join(_figure(column, row['repetitions']) for column in columns)} |")
        last = row["repetitions"][-1]
        in_cells = {key for key in last["notes"] if key in keys and _is_in_cell(key, row["repetitions"])}
        notes += [f"- {label}: {text}" for key, text in sorted(last["notes"].items()) if key not in in_cells]
        if row["errors"]:
            notes.append(f"- {label}: broken in {len(row['errors'])} repetitions: {row['errors'][0]}")
    notes += _counts(section["rows"])
    if again := section.get("again"):
        notes.append(
            f"- Measured again on {again['date']}, all arms in turn, with a load of {again['load_before']} before."
        )
    by_reason: dict[str, list[str]] = {}
    for arm, why in section["skipped"].items():
        by_reason.setdefault(why, []).append(LABELS.get(arm, arm))
    notes += [f"- Not measured: {', '.join(arms)}: {why}." for why, arms in by_reason.items()]
    return "\n".join(lines + (["", *notes] if notes else []))


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say how often whom was measured, where anyone was more than once."""
    by_count: dict[int, list[str]] = {}
    for row in rows:
        if count := len(row["repetitions"]):
            by_count.setdefault(count, []).append(LABELS.get(row["arm"], row["arm"]))
    if max(by_count, default=0) < 2:
        return []
    parts = [
        f"{'once' if count == 1 else f'{count} times'} {', '.join(arms)}"
        for count, arms in sorted(by_count.items(), reverse=True)
    ]
    return [f"- Medians, lowest and highest; measured {'; '.join(parts)}."]


def _is_in_cell(key: str, repetitions: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether the note stands where the figure would."""
    return all(each["figures"].get(key) is None for each in repetitions)


def _figure(column: Mapping[str, Any], repetitions: Sequence[Mapping[str, Any]]) -> str:
    key, digits = column["key"], column["digits"]
    values = [each["figures"][key] for each in repetitions if each["figures"].get(key) is not None]
    if not values:
        return next((_cell(each["notes"][key]) for each in repetitions if key in each["notes"]), "–")
    found = spread(values)
    text = f"{found.median:,.{digits}f}"
    if found.low != found.high:
        text += f" [{found.low:,.{digits}f}–{found.high:,.{digits}f}]"
    without = sum(key in each["figures"] and each["figures"][key] is None for each in repetitions)
    return f"{text}, but not in {without} of {len(repetitions)}" if without else text


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _claim(ratio: Ratio) -> str:
    text = f"- {ratio.what}: **{ratio.value:,.2f}**"
    if ratio.is_kept is None:
        return text
    bound = f"at least {ratio.at_least:g}" if ratio.at_least is not None else f"at most {ratio.at_most:g}"
    return f"{text} (target: {bound}; {'kept' if ratio.is_kept else 'missed'})"


def _origin(found: Document) -> str:
    machine = found["machine"]
    versions = sorted(
        {f"{name} {version}" for each in found["versions"].values() for name, version in each.items()}
    )
    load = f", load {machine['load_before']} before the run" if "load_before" in machine else ""
    cells = found.get("cells", {})
    part = ""
    if cells and cells["measured"] < cells["planned"]:
        part = f" ({cells['measured']} of its {cells['planned']} measurements so far)"
    took = f", in {cells['seconds'] / 60:.0f} minutes" if cells.get("seconds") else ""
    return (
        f"`{found['command']}`{part} on {machine['cpus']} CPUs ({machine['cpu']}), {machine['memory_gib']} GiB"
        f"{load}{took}; Kubernetes {machine['kubernetes']}, Python {machine['python']}; "
        f"{', '.join(versions)}."
    )
