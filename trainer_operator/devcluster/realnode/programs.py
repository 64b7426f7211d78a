"""The programs of a real node: kubelet, containerd and their helpers from pinned Go modules, runc and CNI from Debian.

kubelet is built with the control plane, whose module it shares: built after it, kubelet costs less than a minute.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster import assets
from trainer_operator.devcluster.build import Target, ensure_targets, targets
from trainer_operator.devcluster.errors import AssetsMissing
from trainer_operator.devcluster.paths import cache_root

CONTAINERD_VERSION = "v2.2.0"
"""A test compares it with the pinned Go module."""
CONTAINERD_PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr")


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the programs are."""

    kubelet: Path
    containerd: Path
    ctr: Path
    runc: Path


def ensure(environ: Mapping[str, str] = os.environ) -> Programs:
    """Return the programs, building those that are missing, the control plane's among them.

    Raises: AssetsMissing, BuildFailed.
    """
    runc = shutil.which("runc")
    if runc is None:
        raise AssetsMissing("runc is not there: install the package runc")
    shared = () if environ.get(assets.VARIABLE) else assets.PROGRAMS
    folder = assets.cache_folder(environ)
    ensure_targets(targets((*shared, "kubelet")), folder=folder, environ=environ)
    containerd = containerd_folder(environ)
    ensure_targets(containerd_targets(), folder=containerd, environ=environ)
    return Programs(folder / "kubelet", containerd / "containerd", containerd / "ctr", Path(runc))


def containerd_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which containerd of our version is cached."""
    return cache_root(environ) / "containerd" / CONTAINERD_VERSION


def containerd_targets() -> tuple[Target, ...]:
    """Return how containerd, its runc shim and its client are built; btrfs would need C."""
    module = "github.com/containerd/containerd/v2"
    stamp = f"-s -w -X {module}/version.Version={CONTAINERD_VERSION}"
    return tuple(
        Target(name, "containerd", f"{module}/cmd/{name}", stamp, ("-v",), CONTAINERD_VERSION, "no_btrfs")
        for name in CONTAINERD_PROGRAMS
    )
