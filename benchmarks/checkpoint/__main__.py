"""`python -m benchmarks.checkpoint [--quick] [--only QUESTION] [--table]`: measure, store and render."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.checkpoint import many, recovery, shards, torchpause
from benchmarks.machine import facts
from benchmarks.result import FOLDER, Scale, read_all

_RESULTS = FOLDER / "checkpoint"
_QUESTIONS = {
    "recovery": recovery.measure,
    "pause": torchpause.measure,
    "shards": shards.measure,
    "many": many.measure,
}
_DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks" / "checkpoints.md"


def main() -> int:
    """Run everything; the exit code is 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is stored")
    parser.add_argument("--only", choices=_QUESTIONS, help="one question only")
    parser.add_argument("--table", action="store_true", help="only render the stored results")
    chosen = parser.parse_args()
    missed = False
    if not chosen.table:
        scale = Scale.QUICK if chosen.quick else Scale.FULL
        for name in [chosen.only] if chosen.only else _QUESTIONS:
            command = f"python -m benchmarks.checkpoint{' --quick' if chosen.quick else ''} --only {name}"
            machine = facts()
            result = _QUESTIONS[name](scale)
            print(
                report.render([(result, {"machine": machine, "scale": scale.value, "command": command})]),
                flush=True,
            )
            missed |= any(ratio.is_kept is False for ratio in result.ratios)
            if scale is Scale.FULL:
                result.store(_RESULTS, scale=scale, machine=machine, command=command)
    if not chosen.quick:
        report.write(_DOCUMENT, read_all(_RESULTS))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
