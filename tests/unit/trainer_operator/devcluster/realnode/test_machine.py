"""What a machine lacks is said in one sentence."""

import pytest

from trainer_operator.devcluster.realnode import __main__ as program
from trainer_operator.devcluster.realnode import machine
from trainer_operator.devcluster.realnode.machine import Unsuitable, group_fault, missing_packages


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
    def refuse():
        raise Unsuitable("a real node needs root")

    monkeypatch.setattr(machine, "prepare", refuse)


def test_unsuitable_machine_is_a_failure_unless_it_may_be(unsuitable, capsys):
    assert program.main(["--", "true"]) == 1
    assert capsys.readouterr().err == "e2e: not run here: a real node needs root\n"
    assert program.main(["--skip-if-impossible", "--", "true"]) == 0
    assert capsys.readouterr().out == "e2e: not run here: a real node needs root\n"
