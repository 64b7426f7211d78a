"""Files of pods on disk."""

import os

import pytest

from trainer_operator.devcluster.node.environment import Unresolved
from trainer_operator.devcluster.node.folders import (
    PodFolders,
    fresh_termination_log,
    host_folder,
    mount_source,
    remove_strangers,
    termination_message,
    write_projected,
)
from trainer_operator.devcluster.node.volumes import File, HostFolder, Mount


def test_projected_files_are_swapped_at_once_and_old_ones_go(tmp_path):
    write_projected(tmp_path, {"a": File(b"1", 0o600), "deep/b": File(b"2", 0o644)})
    held = (tmp_path / "a").open("rb")
    write_projected(tmp_path, {"a": File(b"new", 0o640)})
    with held:
        assert held.read() == b"1"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert os.stat(tmp_path / "a").st_mode & 0o777 == 0o640
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith("..")) == ["a"]
    assert len(os.listdir(tmp_path)) == 3


def test_sub_path_is_made_and_may_not_leave_its_volume(tmp_path):
    volume = tmp_path / "v"
    volume.mkdir()
    assert os.path.isdir(mount_source(Mount(str(volume), "/a", sub_path="x/y")))
    (volume / "out").symlink_to(tmp_path)
    with pytest.raises(Unresolved, match="leads out of its volume"):
        mount_source(Mount(str(volume), "/a", sub_path="out/x"))


def test_host_folder_is_made_or_demanded_as_its_type_says(tmp_path):
    assert host_folder(HostFolder(str(tmp_path / "new"), "DirectoryOrCreate")) == str(tmp_path / "new")
    assert (tmp_path / "new").is_dir()
    with pytest.raises(Unresolved, match="is not a Directory"):
        host_folder(HostFolder(str(tmp_path / "none"), "Directory"))
    with pytest.raises(Unresolved, match="is not a file or folder"):
        host_folder(HostFolder(str(tmp_path / "none")))


def test_termination_message_is_cut_at_the_limit_and_empty_when_there_is_none(tmp_path):
    assert termination_message(tmp_path) == ""
    fresh_termination_log(tmp_path).write_bytes(b"\xff" + b"x" * 5000)
    assert len(termination_message(tmp_path)) == 4096
    assert fresh_termination_log(tmp_path).read_bytes() == b""


def test_folders_of_pods_that_are_gone_are_removed(tmp_path):
    for uid in ("here", "gone"):
        PodFolders(tmp_path / uid).volume("v")
    remove_strangers(tmp_path, ["here"])
    assert os.listdir(tmp_path) == ["here"]
    remove_strangers(tmp_path / "none", [])
