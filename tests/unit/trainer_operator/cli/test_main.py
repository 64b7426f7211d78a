"""The command line: help, refusals in a sentence, exit codes."""

import subprocess
import sys
import types

import pytest
import typer
from typer.testing import CliRunner

from trainer_operator.cli import failure
from trainer_operator.cli.main import app
from trainer_operator.devcluster.errors import ClusterFault, KubectlFailed

COMMANDS = (
    [],
    ["dev"],
    ["dev", "up"],
    ["dev", "down"],
    ["dev", "status"],
    ["dev", "kubeconfig"],
    ["dev", "logs"],
    ["dev", "assets"],
    ["dev", "node"],
    ["dev", "node", "list"],
    ["dev", "node", "kill"],
    ["dev", "node", "start"],
    ["version"],
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))  # nothing is ever built here
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["dev", "up", "--nodes", "-1"], 2, "'--nodes'"),
        (["dev", "up", "--gpus", "many"], 2, "'--gpus'"),
        (["dev", "up", "--no-such-flag"], 2, "--no-such-flag"),
        (["dev", "up", "--name", "../x"], 1, "cluster name '../x' is not allowed"),
        (["dev", "up", "--cpu", "many"], 1, "processors 'many'"),
        (["dev", "up", "--memory", "-1Gi"], 1, "memory '-1Gi'"),
        (["dev", "up"], 1, "has no etcd"),
        (["dev", "assets"], 1, "has no etcd"),
        (["dev", "status"], 1, "there is no cluster default"),
        (["dev", "kubeconfig"], 1, "the cluster default is not up"),
        (["dev", "kubectl", "get", "pods"], 1, "the cluster default is not up"),
        (["dev", "node", "kill", "node-0"], 1, "the cluster default is not up"),
        (["dev", "node", "list", "--name", "other"], 1, "the cluster other is not up"),
        (["dev", "logs", "etcd"], 1, "there is no log of etcd: there are none yet"),
        (["dev", "unknown"], 2, "unknown"),
    ],
)
def test_wrong_use_is_refused_in_a_sentence_without_a_traceback(run, arguments, code, sentence):
    result = run(*arguments)
    assert result.exit_code == code
    assert sentence in result.output
    assert "Traceback" not in result.output


def test_taking_down_what_is_not_up_is_no_failure(run):
    result = run("dev", "down")
    assert (result.exit_code, result.output) == (0, "cluster default was not up\n")


def test_version_names_the_program(run):
    assert run("version").output.startswith("trainer-operator ")


def test_shell_completion_knows_the_commands(run, monkeypatch):
    monkeypatch.setenv("_TRAINER_OPERATOR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "trainer-operator dev ")
    monkeypatch.setenv("COMP_CWORD", "2")
    result = CliRunner().invoke(app, [], prog_name="trainer-operator")
    assert {"up", "down", "status", "kubectl", "node"} <= set(result.output.split())


def test_other_commands_are_imported_only_when_called():
    """In a process of its own, since other tests import them."""
    program = "import sys, trainer_operator.cli.main; print('trainer_operator.cli.operator' in sys.modules)"
    asked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"


def test_other_commands_get_their_flags_untouched(run, monkeypatch):
    inner = typer.Typer()
    seen = []

    @inner.command()
    def command(flag: str = "", code: int = 0):
        seen.append(flag)
        raise typer.Exit(code)

    monkeypatch.setitem(sys.modules, "trainer_operator.cli.operator", types.SimpleNamespace(app=inner))
    result = run("operator", "--flag", "--help-me", "--code", "3")
    assert (result.exit_code, seen) == (3, ["--help-me"])
    assert "--flag" in run("operator", "--help").output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClusterFault("x"), 1),
        (KubectlFailed("x", returncode=7), 7),
        (KubectlFailed("x", returncode=-1), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_expected_failure_has_its_exit_code(error, code):
    with pytest.raises(typer.Exit) as caught, failure.reported():
        raise error
    assert caught.value.exit_code == code


def test_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), failure.reported():
        raise ZeroDivisionError
