"""`python -m benchmarks [name…] [--quick] [--table]`: measure, store and render."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import report
from benchmarks.machine import facts
from benchmarks.result import FOLDER, Result, Scale, read_all
from benchmarks.runtime import against_kopf, creation, events, growth, lag, memory, sync, workqueue

BENCHMARKS: Mapping[str, Callable[[Scale], Result]] = {
    "events": events.measure,
    "memory": memory.measure,
    "sync": sync.measure,
    "lag": lag.measure,
    "growth": growth.measure,
    "workqueue": workqueue.measure,
    "creation": creation.measure,
    "kopf": against_kopf.measure,
}
"""All benchmarks by name, in the order in which they run."""

DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks" / "runtime.md"
"""Where the tables go."""


def main() -> int:
    """Run what was asked for; the exit code is 1 when a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, store and render.")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is stored")
    parser.add_argument("--table", action="store_true", help="only render the stored results")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark named {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the subjects too, as Ctrl-C does
    scale = Scale.QUICK if chosen.quick else Scale.FULL
    missed = False
    for name in () if chosen.table else chosen.names or BENCHMARKS:
        machine = facts()
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        result = BENCHMARKS[name](scale)
        command = f"python -m benchmarks {name}" + (" --quick" if chosen.quick else "")
        document = {"machine": machine, "scale": scale.value, "command": command}
        print(report.render([(result, document)]), end="\n\n", flush=True)
        missed = missed or any(ratio.is_kept is False for ratio in result.ratios)
        if scale is Scale.FULL:
            result.store(FOLDER, scale=scale, machine=machine, command=command)
            report.write(DOCUMENT, read_all(FOLDER))
    if chosen.table:
        report.write(DOCUMENT, read_all(FOLDER))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
