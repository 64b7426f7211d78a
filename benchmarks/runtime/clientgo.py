"""The Go yardstick: built once from `tools/clientgo` into the user's cache, where there is a Go toolchain."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.child import Failed, run
from trainer_operator.devcluster.paths import cache_root

__all__ = ["STRIPPED", "SUBJECT", "measure"]

SUBJECT = "client-go, JSON informer"
STRIPPED = "client-go, JSON informer, managed fields dropped"

_SOURCE = Path(__file__).parents[2] / "tools" / "clientgo"


def measure(server: str, *, pods: int, events: int = 0, strip: bool = False) -> dict[str, Any]:
    """Run the program against a server and return its figures.

    Raises: Failed when it cannot be built or did not end well.
    """
    arguments = [f"-server={server}", f"-pods={pods}", f"-events={events}", *(["-strip"] if strip else [])]
    return run([str(_program()), *arguments])


def _program() -> Path:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((_SOURCE / name).read_bytes())
    program = cache_root() / "benchmarks" / f"clientgo-{digest.hexdigest()[:12]}"
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        raise Failed("there is no Go on the PATH to build it with")
    program.parent.mkdir(parents=True, exist_ok=True)
    incoming = program.with_suffix(".incoming")
    built = subprocess.run(
        [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(incoming), "."],
        cwd=_SOURCE,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise Failed(f"the build failed: {(built.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    os.replace(incoming, program)
    return program
