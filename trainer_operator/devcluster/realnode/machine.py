"""Whether this machine can run a real node, and what it lacks, in one sentence.

Asked of the kernel by trying: what a capability, a container around us or a security module forbids shows only there.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.realnode.config import CGROUP, CNI_PROGRAMS
from trainer_operator.devcluster.realnode.room import GROUPS

_PACKAGES: Mapping[str, str] = {
    "runc": "runc",
    f"{CNI_PROGRAMS}/bridge": "containernetworking-plugins",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "unshare": "util-linux",
}
"""A program that has to be there, and the Debian package that it is in."""
_ROOM_TRIAL = """
set -e
mkdir -p /run
mount -t tmpfs room /run
mkdir /run/upper /run/work
mount -t overlay -o lowerdir=/var/lib,upperdir=/run/upper,workdir=/run/work room /var/lib
mkdir "$1/upper" "$1/work" /run/merged
mount -t overlay -o "lowerdir=/usr,upperdir=$1/upper,workdir=$1/work" room /run/merged
ip link add trial0 type bridge
ip link add trial1 type veth peer name trial2
"""
"""Tries what a room mounts, and what containerd does in the folder `$1`: not every file system takes its layers."""
_APT_PATIENCE = 300.0


class Unsuitable(ClusterFault):
    """A real node cannot be run on this machine."""


def prepare(folder: Path) -> None:
    """Make sure that this machine can run a real node in this folder, installing Debian packages that it lacks.

    Raises: Unsuitable with the first reason why not.
    """
    if os.geteuid() != 0:
        raise Unsuitable("a real node needs root")
    if platform.system() != "Linux":
        raise Unsuitable("a real node needs Linux")
    missing = missing_packages(shutil.which)
    if missing:
        _install(missing)
    if reason := group_fault(GROUPS):
        raise Unsuitable(reason)
    if reason := room_fault(folder):
        raise Unsuitable(reason)


def missing_packages(find: Callable[[str], str | None]) -> list[str]:
    """Return the Debian packages whose programs are not there."""
    return sorted(package for program, package in _PACKAGES.items() if find(program) is None)


def group_fault(root: Path) -> str:
    """Return why control groups cannot be made below this folder; empty when they can."""
    controllers = root / "cgroup.controllers"
    if controllers.exists():
        if "memory" not in controllers.read_text().split():
            return "there is no memory control group controller"
        parent = root
    elif (root / "memory").is_dir():
        parent = root / "memory"
    else:
        return f"there is no memory control group controller in {root}"
    trial = parent / f"{CGROUP}-trial"
    try:
        trial.mkdir(exist_ok=True)
        trial.rmdir()
    except OSError as error:
        return f"control groups cannot be made in {parent}: {(error.strerror or str(error)).lower()}"
    return ""


def room_fault(folder: Path) -> str:
    """Return why no room can be made here with a node in this folder; empty when one can."""
    folder.mkdir(parents=True, exist_ok=True)
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc"]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        trial = [*unshare, "sh", "-c", _ROOM_TRIAL, "sh", scratch]
        result = subprocess.run(trial, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    reason = (result.stderr.strip().splitlines() or ["no reason given"])[0]
    return f"the kernel does not allow namespaces, overlay mounts or bridges here ({reason})"


def is_about_network(message: str) -> bool:
    """Tell whether a build failed for want of a network and not for what is built."""
    return "could not be downloaded" in message or message.startswith("mmdebstrap")


def _install(packages: list[str]) -> None:
    names = ", ".join(packages)
    if shutil.which("apt-get") is None:
        raise Unsuitable(f"these Debian packages are missing and there is no apt-get: {names}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        try:
            result = subprocess.run(
                ["apt-get", "--quiet=2", *arguments],
                capture_output=True,
                text=True,
                timeout=_APT_PATIENCE,
                env=environ,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unsuitable(f"apt-get did not install {names} within {_APT_PATIENCE:.0f} s") from None
    if missing_packages(shutil.which):
        last = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unsuitable(f"apt-get could not install {names} ({last})")
