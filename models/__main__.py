"""Explore our rules and every weakened one; the exit code is 0 if each is as safe as it should be."""

import sys
from concurrent.futures import ProcessPoolExecutor

from models.checkpoints import Checkpoints
from models.explorer import Verdict
from models.variants import OURS, WEAKENED, Variant

PROCESSES = 2


def main() -> int:
    """Print one line for each variant, and the trace of each that breaks."""
    variants = (*OURS, *WEAKENED)
    wrong = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for variant, verdict in zip(variants, pool.map(_explore, variants), strict=True):
            wrong += verdict.safe is not variant.is_safe
            print("\n".join(_report(variant, verdict)), flush=True)
    print(f"{len(variants) - wrong} of {len(variants)} variants are as expected")
    return 1 if wrong else 0


def _explore(variant: Variant) -> Verdict:
    return Checkpoints(variant.rules).explore()


def _report(variant: Variant, verdict: Verdict) -> list[str]:
    found = "safe" if verdict.safe else f"breaks after {len(verdict.trace)} steps"
    surprise = "" if verdict.safe is variant.is_safe else "   NOT AS EXPECTED"
    lines = [f"{variant.name}: {found}, {verdict.states:,} states{surprise}"]
    lines += [f"  {number:>2} {step}" for number, step in enumerate(verdict.trace, start=1)]
    return lines if verdict.safe else [*lines, f"     {verdict.broken}"]


if __name__ == "__main__":
    sys.exit(main())
