"""Find the control plane's programs: etcd, kube-apiserver and their peers.

Looked for in this order: the folder that `KUBEBUILDER_ASSETS` names (the envtest convention), this user's cache, by
version; only then are they built (`build.py`). A folder that was named but does not hold what is needed is an error
and not passed over: who names a folder wants those programs and no others.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.errors import AssetsMissing
from trainer_operator.devcluster.paths import cache_root

KUBERNETES_VERSION = "v1.36.3"
"""Version of the programs that are built; a test compares it with the pinned Go module."""

OLDEST_MINOR = 32
"""Oldest Kubernetes minor version whose programs are taken from `KUBEBUILDER_ASSETS`; design/runtime.md names 1.32."""

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
VARIABLE = "KUBEBUILDER_ASSETS"


@dataclass(frozen=True, slots=True)
class Assets:
    """A folder that holds the control plane's programs."""

    folder: Path

    def path(self, program: str) -> Path:
        """Return the path of one program."""
        return self.folder / program


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which programs of our version are cached."""
    return cache_root(environ) / "controlplane" / KUBERNETES_VERSION


def missing_in(folder: Path, programs: Iterable[str]) -> list[str]:
    """Return which of these programs the folder does not hold as executable files."""
    return [
        name for name in programs if not os.access(folder / name, os.X_OK) or not (folder / name).is_file()
    ]


def find(programs: Iterable[str] = PROGRAMS, *, environ: Mapping[str, str] = os.environ) -> Assets | None:
    """Return the programs that are there already, or None when they have to be built first.

    Raises: AssetsMissing when `KUBEBUILDER_ASSETS` is set to a folder without them, or with too old ones.
    """
    named = environ.get(VARIABLE)
    if named:
        folder = Path(named).expanduser()
        missing = missing_in(folder, programs)
        if missing:
            raise AssetsMissing(
                f"{VARIABLE} is {named}, which has no {', no '.join(missing)}: add them, or unset {VARIABLE} to have "
                f"Kubernetes {KUBERNETES_VERSION} built from source"
            )
        if "kube-apiserver" in programs:
            _check_version(folder / "kube-apiserver")
        return Assets(folder.resolve())
    folder = cache_folder(environ)
    return None if missing_in(folder, programs) else Assets(folder)


def require(programs: Iterable[str] = PROGRAMS, *, environ: Mapping[str, str] = os.environ) -> Assets:
    """Return the programs, or say how to get them.

    Raises: AssetsMissing.
    """
    assets = find(programs, environ=environ)
    if assets is None:
        raise AssetsMissing(
            f"the control plane's programs ({KUBERNETES_VERSION}) are not in {cache_folder(environ)}: run `make assets` "
            f"(about 8 minutes, once), or set {VARIABLE} to a folder that holds {', '.join(programs)}"
        )
    return assets


def minor_version(text: str) -> int | None:
    """Read the minor version from what `kube-apiserver --version` prints, such as `Kubernetes v1.36.3`."""
    parts = text.strip().removeprefix("Kubernetes ").lstrip("v").split(".")
    if len(parts) < 2 or parts[0] != "1" or not parts[1].isdigit():
        return None
    return int(parts[1])


def _check_version(program: Path) -> None:
    try:
        result = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise AssetsMissing(
            f"{program} does not run on this machine ({_short(error)}): unset {VARIABLE} to build another"
        ) from error
    minor = minor_version(result.stdout)
    if minor is None or minor < OLDEST_MINOR:
        raise AssetsMissing(
            f"{program} is {result.stdout.strip() or 'of unknown version'}, which is older than v1.{OLDEST_MINOR}: "
            f"point {VARIABLE} to a newer one or unset it"
        )


def _short(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
