"""Refuse modules of 600 lines and more: one that long holds more than one noun."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 600
FOLDERS = ("runtime", "trainer_operator", "models", "tests", "tools", "examples", "benchmarks")


def main() -> int:
    """Print each module that is too long; return the exit code."""
    code = 0
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = path.read_bytes().count(b"\n")
            if lines >= LIMIT:
                print(f"{path.relative_to(ROOT)}: {lines} lines; {LIMIT - 1} are allowed: split it by nouns")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
