"""What a soak run leaves behind: a JSON file a seed, and the page that is made from those files alone."""

import dataclasses
import json
import os
import platform
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "soak"
PAGE = FOLDER.with_suffix(".md")

INTRODUCTION = """\
# The soak, recorded

`make soak SEED=1 RECORD=1` runs it for ten minutes on 2,000 ConfigMaps, stores the outcome in `docs/soak` and makes
this page from what is stored there. Three informers and a controller work through the fault proxy on a real API
server, while objects are made, changed, moved between selections and deleted past the proxy, at 10 to 80 changes a
second where the machine lets them, for all of it but the server is in one process. Once the faults are over, all
caches have to equal a fresh list, the last state of each object has to be reconciled, and no key may ever have been
reconciled twice at once.

The seed draws the same faults and the same changes again, though not at the same instants. Time as the runtime's
backoff sees it runs faster than the wall clock, so that ten minutes hold many of its waits.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run."""

    seed: int
    seconds: float
    objects: int
    changes: int
    reconciles: int
    requests: int
    calm_after: float
    """Seconds from the end of the faults until everything was in order; -1.0 if it never was."""
    wrong: list[str]
    faults: dict[str, int]
    kubernetes: str

    def store(self):
        """Write the file of this seed, and the page anew."""
        FOLDER.mkdir(exist_ok=True)
        stored = {
            "command": f"make soak SEED={self.seed} RECORD=1",
            **dataclasses.asdict(self),
            "result": "passed" if not self.wrong else "failed",
            "machine": {"processors": os.cpu_count(), "python": platform.python_version()},
        }
        (FOLDER / f"seed-{self.seed}.json").write_text(json.dumps(stored, indent=2) + "\n")
        PAGE.write_text(page([json.loads(file.read_text()) for file in FOLDER.glob("seed-*.json")]))


def page(runs):
    """Return the page of these runs."""
    runs = sorted(runs, key=lambda run: run["seed"])
    rows = [
        ("command", [f"`{run['command']}`" for run in runs]),
        ("result", [f"**{run['result']}**" for run in runs]),
        ("seconds of faults", [f"{run['seconds']:g}" for run in runs]),
        ("objects", [f"{run['objects']:,}" for run in runs]),
        ("changes of the load", [f"{run['changes']:,}" for run in runs]),
        ("changes a second", [f"{run['changes'] / run['seconds']:.1f}" for run in runs]),
        ("reconciles", [f"{run['reconciles']:,}" for run in runs]),
        ("requests through the proxy", [f"{run['requests']:,}" for run in runs]),
        ("in order after, s", [f"{run['calm_after']:.1f}" for run in runs]),
        ("faults", [f"{sum(run['faults'].values()):,}" for run in runs]),
    ]
    kinds = sorted({kind for run in runs for kind in run["faults"]})
    rows += [(kind.replace("_", " "), [str(run["faults"].get(kind, 0)) for run in runs]) for kind in kinds]
    lines = [
        "| | " + " | ".join(f"seed {run['seed']}" for run in runs) + " |",
        "|---|" + "---:|" * len(runs),
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows),
    ]
    machines = sorted(
        {
            f"Kubernetes {run['kubernetes']}, Python {run['machine']['python']}, "
            f"{run['machine']['processors']} processors"
            for run in runs
        }
    )
    notes = sorted({run["note"] for run in runs if "note" in run})
    told = "; ".join(machines) + "." + "".join(f" {note}" for note in notes)
    return INTRODUCTION + "\n" + "\n".join(lines) + "\n\n" + told + "\n"
