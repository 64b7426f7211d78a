"""Where a process node keeps its pods on disk, and how files get there.

    <state>/pods/<uid>/volumes/<name>/          emptyDir and projected volumes
    <state>/pods/<uid>/containers/<name>/       base/ (where the root is assembled), termination-log, hosts,
                                                <restart>.log
Projected files are swapped as the kubelet swaps them: a new hidden folder, then one rename of the link `..data`, so
that a reader sees all old or all new files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_operator.devcluster.node.environment import Unresolved
from trainer_operator.devcluster.node.volumes import File, HostFolder, Mount

_DATA = "..data"
LARGEST_MESSAGE = 4096
"""Bytes of a termination message, the API's limit."""


@dataclass(frozen=True, slots=True)
class PodFolders:
    """The folders of one pod."""

    root: Path

    def volume(self, name: str) -> Path:
        """Make and return the folder of a volume."""
        folder = self.root / "volumes" / name
        folder.mkdir(parents=True, exist_ok=True)
        # A pod's processes may run as any user; who may look in here is decided by the folders above.
        folder.chmod(0o777)
        return folder

    def container(self, name: str) -> Path:
        """Make and return the folder of a container."""
        folder = self.root / "containers" / name
        (folder / "base").mkdir(parents=True, exist_ok=True)
        return folder

    def log(self, container: str, restarts: int) -> Path:
        """Return the log file of one run of a container."""
        return self.root / "containers" / container / f"{restarts}.log"

    def remove(self) -> None:
        """Delete all of it; what cannot be deleted stays."""
        shutil.rmtree(self.root, ignore_errors=True)


def remove_strangers(pods: Path, known: Iterable[str]) -> None:
    """Delete the folders of pods that no longer exist, which a node that was down could not do."""
    keep = set(known)
    for folder in pods.iterdir() if pods.is_dir() else ():
        if folder.name not in keep:
            PodFolders(folder).remove()


def write_projected(folder: Path, files: Mapping[str, File]) -> None:
    """Replace the files of a projected volume all at once."""
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    fresh.chmod(0o755)
    for path, file in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
        target.chmod(file.mode)
    data, link = folder / _DATA, folder / "..data_tmp"
    before = data.resolve() if data.is_symlink() else None
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.rename(data)
    names = {path.split("/")[0] for path in files}
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{_DATA}/{name}")
    for entry in folder.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)


def host_folder(volume: HostFolder) -> str:
    """Return the path of a hostPath volume, made where its type asks for it.

    Raises: Unresolved when it is not what the type demands.
    """
    path = Path(volume.path)
    try:
        if volume.kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif volume.kind == "FileOrCreate":
            path.touch()
    except OSError as failure:
        raise Unresolved(f"hostPath {volume.path} cannot be made: {failure.strerror}") from None
    wanted = {"Directory": path.is_dir, "File": path.is_file}.get(volume.kind, path.exists)
    if not wanted():
        raise Unresolved(
            f"hostPath type check failed: {volume.path} is not a {volume.kind or 'file or folder'}"
        )
    return str(path)


def mount_source(mount: Mount) -> str:
    """Return what a mount binds, with its sub-path made where it is missing.

    Raises: Unresolved when the sub-path leads outside the volume through a link.
    """
    if not mount.sub_path:
        return mount.source
    path = os.path.realpath(os.path.join(mount.source, mount.sub_path))
    if not path.startswith(os.path.realpath(mount.source) + os.sep):
        raise Unresolved(f'sub-path "{mount.sub_path}" leads out of its volume')
    if not os.path.exists(path):
        os.makedirs(path)
    return path


def write_hosts(folder: Path, *, address: str, hostname: str) -> Path:
    """Write the pod's `/etc/hosts`: its own name is its own address."""
    path = folder / "hosts"
    path.write_text(
        f"# Written by the process node.\n127.0.0.1\tlocalhost\n::1\tlocalhost\n{address}\t{hostname}\n",
        encoding="ascii",
    )
    return path


def fresh_termination_log(folder: Path) -> Path:
    """Return an empty file for a run's termination message."""
    path = folder / "termination-log"
    path.unlink(missing_ok=True)
    path.touch()
    path.chmod(0o666)
    return path


def termination_message(folder: Path) -> str:
    """Return what a run left in its termination log, cut at the API's limit."""
    try:
        with (folder / "termination-log").open("rb") as file:
            return file.read(LARGEST_MESSAGE).decode(errors="replace")
    except OSError:
        return ""
