"""The ring and packed files: whole or absent, newest server epoch first, cut on a rollback."""

import os

import pytest

from trainer_operator.agent import packed, ring
from trainer_operator.agent.records import Malformed


def snapshot(folder, step, ps_epoch=1, data=b"abc"):
    path = ring.path_of(str(folder), step, ps_epoch)
    source = packed.Source("w", "|u1", (len(data),), memoryview(data))
    packed.write(path, [source], step=step, ps_epoch=ps_epoch, meta={"cursor": step})
    return path


def test_only_the_last_three_snapshots_stay(tmp_path):
    """PSR1."""
    for step in (20, 40, 60, 80):
        snapshot(tmp_path, step)
        ring.trim(str(tmp_path))
    assert ring.steps(str(tmp_path)) == [40, 60, 80]


def test_a_snapshot_comes_back_with_its_meta(tmp_path):
    """PSR4."""
    snapshot(tmp_path, 40, data=b"state")
    found = ring.find(str(tmp_path), 40)
    assert bytes(packed.read_tensor(found, found.tensors[0])) == b"state"
    assert found.meta == {"cursor": 40}
    assert ring.find(str(tmp_path), 60) is None


def test_a_rollback_cuts_what_no_longer_happened(tmp_path):
    """ND5."""
    for step in (20, 40, 60):
        snapshot(tmp_path, step)
    ring.cut(str(tmp_path), 40)
    assert ring.steps(str(tmp_path)) == [20, 40]


def test_the_newest_server_epoch_wins_and_a_damaged_file_yields_to_an_older_one(tmp_path):
    """ND5."""
    snapshot(tmp_path, 40, 1, b"old")
    newer = snapshot(tmp_path, 40, 2, b"new")
    assert ring.find(str(tmp_path), 40).ps_epoch == 2
    with open(newer, "r+b") as file:
        file.seek(-34, os.SEEK_END)
        file.write(b"X")
    assert ring.find(str(tmp_path), 40).ps_epoch == 1


@pytest.mark.parametrize("left", [0, 1, 20, -1, -32, -33])
def test_a_torn_snapshot_is_not_offered(tmp_path, left):
    """CP12."""
    path = snapshot(tmp_path, 40)
    os.truncate(path, left if left >= 0 else os.path.getsize(path) + left)
    assert ring.steps(str(tmp_path)) == []
    assert ring.find(str(tmp_path), 40) is None


def test_foreign_files_are_left_alone(tmp_path):
    """GC7."""
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "000000000040-p1.ring.ab.tmp").write_text("half")
    ring.cut(str(tmp_path), 0)
    ring.trim(str(tmp_path), keep=1)
    assert len(os.listdir(tmp_path)) == 2
    assert ring.steps(str(tmp_path)) == []
    assert ring.steps(str(tmp_path / "absent")) == []


def test_overlapping_tensors_are_refused(tmp_path):
    """CK5."""
    path = snapshot(tmp_path, 40)
    with open(path, "rb") as file:
        raw = file.read()
    with open(path, "wb") as file:
        file.write(raw.replace(b'"offset":0', b'"offset":1'))
    with pytest.raises(Malformed, match="overlap"):
        packed.read_header(path)
