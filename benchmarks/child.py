"""Subjects measured in processes of their own: nothing that one allocates or imports weighs on another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["Failed", "python", "run", "serving"]


class Failed(Exception):
    """A subject ended without figures."""


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this project."""
    return [sys.executable, "-W", "ignore", "-m", module, *arguments]


def run(
    command: Sequence[str], *, timeout: float = 900.0, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a subject and return the JSON object on its last line of output.

    Raises: Failed with the last line it had to say.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"no figures within {timeout:g} s") from None
    except OSError as error:
        raise Failed(f"does not start: {error.strerror}") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        said = (done.stderr.strip().splitlines() or lines or ["it said nothing"])[-1]
        raise Failed(f"ended with code {done.returncode}: {said[:200]}")
    figures: dict[str, Any] = json.loads(lines[-1])
    return figures


@contextmanager
def serving(command: Sequence[str]) -> Iterator[str]:
    """Run a server for the length of the context and give the first line it prints, its address."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            if not address:
                raise Failed(f"{command[-1]} did not start")
            yield address
        finally:
            process.terminate()
