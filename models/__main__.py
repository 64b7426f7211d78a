"""Explore our rules and every weakened one; the exit code is 0 if each is as safe as it should be."""

import sys
from concurrent.futures import ProcessPoolExecutor

from models.explorer import Verdict
from models.variants import ALL, Variant

PROCESSES = 2


def main() -> int:
    """Print one line for each variant, and the trace of each that breaks."""
    wrong = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for variant, verdict in zip(ALL, pool.map(_explore, ALL), strict=True):
            wrong += verdict.safe is not variant.is_safe
            print("\n".join(_report(variant, verdict)), flush=True)
    print(f"{len(ALL) - wrong} of {len(ALL)} variants are as expected")
    return 1 if wrong else 0


def _explore(variant: Variant) -> Verdict:
    return variant.explore()


def _report(variant: Variant, verdict: Verdict) -> list[str]:
    found = "safe" if verdict.safe else f"breaks after {len(verdict.trace)} steps"
    surprise = "" if verdict.safe is variant.is_safe else "   NOT AS EXPECTED"
    lines = [f"{variant.name}: {found}, {verdict.states:,} states{surprise}"]
    lines += [f"  {number:>2} {step}" for number, step in enumerate(verdict.trace, start=1)]
    return lines if verdict.safe else [*lines, f"     {verdict.broken}"]


if __name__ == "__main__":
    sys.exit(main())
