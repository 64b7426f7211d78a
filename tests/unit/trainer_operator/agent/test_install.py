"""The zipapp: what goes in, and that it asks nothing of the image but Python 3.8."""

import ast
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainer_operator.agent.__main__ import main
from trainer_operator.agent.install import install

AGENT = Path(sys.modules["trainer_operator.agent.install"].__file__).parent
SOURCES = sorted(AGENT.rglob("*.py"))


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(AGENT).as_posix())
def test_sources_are_python_3_8_and_standard_library(path):
    """AG3: numpy only where arrays become bytes and back."""
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    foreign = {name for name in imported(tree) if name.split(".")[0] not in sys.stdlib_module_names}
    allowed = {"numpy"} if path.name == "arrays.py" else set()
    assert {name for name in foreign if not name.startswith("trainer_operator.agent")} <= allowed


def test_the_zipapp_holds_the_agent_and_nothing_compiled(tmp_path):
    """AG1."""
    target = install(str(tmp_path / "deep" / "agent"))
    names = zipfile.ZipFile(target).namelist()
    assert "__main__.py" in names
    assert "trainer_operator/agent/store.py" in names
    assert not [name for name in names if name.endswith(".pyc")]
    assert sorted(os.listdir(tmp_path / "deep" / "agent")) == ["agent.pyz", "trainer_sdk.py"]


def test_installing_again_replaces_both_files(tmp_path):
    """AG1: the init container may run twice."""
    (tmp_path / "trainer_sdk.py").write_text("old")
    for _ in range(2):
        assert main(["install", str(tmp_path)]) == 0
    assert (tmp_path / "trainer_sdk.py").read_text() == (AGENT / "sdk" / "trainer_sdk.py").read_text()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    """AG1."""
    (tmp_path / "file").write_text("")
    assert main(["install", str(tmp_path / "file" / "agent")]) == 73
    assert capsys.readouterr().err.startswith("the agent cannot be installed into")


@pytest.mark.parametrize("arguments", [[], ["--"], ["install"], ["python3", "train.py"]])
def test_anything_else_is_answered_with_the_usage(arguments, capsys):
    """AG1."""
    assert main(arguments) == 64
    assert capsys.readouterr().err.startswith("usage:")


def test_the_zipapp_starts_isolated(tmp_path):
    """AG1: python -I, no site of the user's."""
    done = subprocess.run(
        [sys.executable, "-I", install(str(tmp_path))], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 64
    assert done.stderr.startswith("usage:")


def test_files_of_a_reproducible_image_are_installed(tmp_path):
    """AG1: such an image gives all its files the time 0, which a zip file cannot hold."""
    package = tmp_path / "image" / "trainer_operator"
    shutil.copytree(AGENT, package / "agent", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    for path in [package, *package.rglob("*")]:
        os.utime(path, (0, 0))
    command = [sys.executable, "-m", "trainer_operator.agent", "install", str(tmp_path / "agent")]
    environ = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=package.parent, env=environ, check=True, timeout=60, capture_output=True)
    assert zipfile.ZipFile(tmp_path / "agent" / "agent.pyz").testzip() is None


OWN_PROCESSES = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
"""Starts a program as the first process of a PID namespace, as a container runtime does."""


def stuck_while_loading(folder):
    """Install an agent that says so when it comes to its large modules, and then gets no further."""
    target = install(str(folder / "whole"))
    with zipfile.ZipFile(target) as whole, zipfile.ZipFile(folder / "agent.pyz", "w") as changed:
        for name in whole.namelist():
            is_large = name == "trainer_operator/agent/agent.py"
            text = b"import time\nprint('loading', flush=True)\ntime.sleep(600)\n"
            changed.writestr(name, text if is_large else whole.read(name))
    return folder / "agent.pyz"


def child_of(pid):
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                return int(path.parent.name)
    raise AssertionError(f"process {pid} has no child")


@pytest.mark.parametrize("wrapper", [[], OWN_PROCESSES], ids=["any-process", "first-process"])
def test_an_agent_that_still_loads_ends_at_the_first_signal(tmp_path, wrapper):
    """AG1, ND6: the first process of a container would otherwise not hear it, and the pod wait out its grace."""
    if wrapper and subprocess.run([*wrapper, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine allows no PID namespaces")
    command = [*wrapper, sys.executable, "-I", str(stuck_while_loading(tmp_path)), "--", "true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stdout.readline() == "loading\n"
            os.kill(child_of(agent.pid) if wrapper else agent.pid, signal.SIGTERM)
            assert agent.wait(60) == 128 + signal.SIGTERM
        finally:
            agent.kill()


def test_a_janitor_needs_no_command_but_what_the_operator_sets(capsys, monkeypatch):
    """AG1: the same agent; nobody tells it to start a process."""
    monkeypatch.delenv("TRAINER_ROLE", raising=False)
    assert main(["janitor"]) == 78
    assert capsys.readouterr().err == (
        "[agent] TRAINER_ROLE is not set; the operator sets it in the pods that it creates\n"
    )
