"""`python -m benchmarks.stock [--quick] [--arms …] [--groups …] [--table]`: measure, store and render."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.machine import facts
from benchmarks.stock import report, results
from benchmarks.stock.again import merged, require_same_machine
from benchmarks.stock.costs import costs
from benchmarks.stock.interruption import finished
from benchmarks.stock.journal import Journal
from benchmarks.stock.plan import FULL, QUICK, Plan
from benchmarks.stock.runner import run
from runtime.clock import SystemClock
from trainer_operator.devcluster.assets import KUBERNETES_VERSION

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "stock.md"
PLOTS = PAGE.with_suffix(".svg")


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the exit code says whether it was measured, not who won."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stock", description="Compare with other operators."
    )
    parser.add_argument("--quick", action="store_true", help="one repetition of less; minutes, not hours")
    parser.add_argument("--arms", default="", help="only these, with commas; nothing is stored")
    parser.add_argument("--groups", default="", help="only these, with commas; nothing is stored")
    parser.add_argument(
        "--repetitions", type=int, default=0, help="another number of them; nothing is stored"
    )
    parser.add_argument(
        "--again",
        default="",
        metavar="GROUPS",
        help="measure these anew, all arms, and store them in place of what is stored of them",
    )
    parser.add_argument("--fresh", action="store_true", help="begin anew, also after an interrupted run")
    parser.add_argument(
        "--so-far",
        action="store_true",
        help="store what an interrupted run has measured, and measure nothing",
    )
    parser.add_argument("--table", action="store_true", help="only render the stored result")
    chosen = parser.parse_args(arguments)
    if chosen.table:
        return _render()
    whole = QUICK if chosen.quick else FULL
    if chosen.again and (chosen.quick or chosen.arms or chosen.groups or chosen.repetitions or chosen.so_far):
        parser.error(
            "--again takes all arms and repetitions of the whole run; only --fresh can stand beside it"
        )
    stored = results.load()
    machine = {**facts(), "kubernetes": KUBERNETES_VERSION}
    try:
        if chosen.again:
            require_same_machine(stored, machine)
        plan = whole.limited(
            arms=list(filter(None, chosen.arms.split(","))),
            groups=list(filter(None, (chosen.again or chosen.groups).split(","))),
            repetitions=chosen.repetitions,
        )
    except ValueError as error:
        parser.error(str(error))
    command = "make bench-quick" if chosen.quick else "make bench"
    journal_file = results.FOLDER / f"{plan.name}-{plan.fingerprint()}.journal"
    if chosen.fresh:
        journal_file.unlink(missing_ok=True)
    journal = Journal(journal_file, plan)
    if chosen.so_far and not journal.records:
        print("no run was interrupted: nothing to store", file=sys.stderr)
        return 1
    if chosen.so_far:
        del machine["load_before"]  # it is that of now, after the run
    elif not _measure(plan, journal):
        print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        print(costs(journal.records), file=sys.stderr)
        return 130
    print(costs(journal.records), file=sys.stderr)
    found = results.document(plan, journal.records, machine=machine, command=command)
    if chosen.again and stored is not None:
        try:
            found = merged(stored, found, date=SystemClock().utcnow().date().isoformat())
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
    if not chosen.so_far:
        journal.remove()
    if plan != whole and not chosen.again:
        print(report.render(found))
        return 0
    print(f"stored in {results.store(found).name}", file=sys.stderr)
    return _render()


def _measure(plan: Plan, journal: Journal) -> bool:
    """Measure what the journal has not yet; return whether that was all."""
    if journal.records:
        print(
            f"going on after {len(journal.records)} of {len(plan.cells())} cells", file=sys.stderr, flush=True
        )
    return finished(run(plan, journal))


def _render() -> int:
    found = results.load()
    if found is None:
        print("no result is stored yet: run `make bench-quick`", file=sys.stderr)
        return 1
    report.write(PAGE, found, plots=PLOTS)
    print(report.render(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
