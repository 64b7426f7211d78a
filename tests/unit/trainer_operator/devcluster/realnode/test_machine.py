"""What a machine lacks is said in one sentence."""

import os

import pytest

from trainer_operator.devcluster.realnode import __main__ as program
from trainer_operator.devcluster.realnode import machine
from trainer_operator.devcluster.realnode.machine import Unsuitable, group_fault, missing_packages, room_fault


def test_packages_are_named_whose_programs_are_missing():
    assert missing_packages(lambda name: None if name in {"runc", "mmdebstrap"} else name) == [
        "mmdebstrap",
        "runc",
    ]


@pytest.mark.parametrize("old", [True, False])
def test_writable_control_groups_of_both_kinds_are_good(tmp_path, old):
    if old:
        (tmp_path / "memory").mkdir()
    else:
        (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    assert group_fault(tmp_path) == ""
    assert not list(tmp_path.rglob("*trial*"))


def test_missing_memory_controller_is_a_reason(tmp_path):
    assert "no memory control group controller" in group_fault(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    assert "no memory control group controller" in group_fault(tmp_path)


@pytest.fixture
def unsuitable(monkeypatch):
    def refuse(_folder):
        raise Unsuitable("a real node needs root")

    monkeypatch.setattr(machine, "prepare", refuse)


def test_unsuitable_machine_is_a_failure_unless_it_may_be_skipped_with_the_reason(
    unsuitable, tmp_path, capsys
):
    assert program.main(["--", "true"]) == 1
    assert capsys.readouterr().err == "error: not run here: a real node needs root\n"
    why = tmp_path / "why"
    assert program.main([f"--skip-to={why}", "--", "true"]) == 0
    assert capsys.readouterr().out == "skipped: a real node needs root\n"
    assert why.read_text() == "a real node needs root\n"


def test_kernel_that_allows_no_room_is_a_reason_in_its_own_words(tmp_path, monkeypatch):
    unshare = tmp_path / "bin" / "unshare"
    unshare.parent.mkdir()
    unshare.write_text("#!/bin/sh\necho 'unshare: Operation not permitted' >&2\necho more >&2\nexit 1\n")
    unshare.chmod(0o755)
    monkeypatch.setenv("PATH", str(unshare.parent), prepend=os.pathsep)
    assert room_fault(tmp_path / "state").endswith("here (unshare: Operation not permitted)")
    assert list((tmp_path / "state").iterdir()) == []
