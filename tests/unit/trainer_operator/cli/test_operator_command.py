"""What the operator's command line says when it cannot start: one sentence, exit code 1, no traceback."""

import subprocess
import sys

import pytest


def run(*arguments):
    """Run it as a process: it configures logging for good."""
    command = [sys.executable, "-m", "trainer_operator.cli.main", "operator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_missing_kubeconfig_is_one_sentence(tmp_path):
    """Rule 7 of the architecture."""
    answer = run("--kubeconfig", tmp_path / "none", "--certificate-folder", tmp_path)
    assert answer.returncode == 1
    assert f"kubeconfig {tmp_path / 'none'} cannot be read" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_missing_certificate_is_one_sentence(tmp_path):
    """CT2, rule 7 of the architecture: it names the folder and the flag."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        '{"apiVersion":"v1","kind":"Config","current-context":"a",'
        '"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"a","user":{"token":"x"}}],'
        '"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}'
    )
    answer = run("--kubeconfig", kubeconfig, "--certificate-folder", tmp_path / "none")
    assert answer.returncode == 1
    assert "--certificate-folder" in answer.stderr


@pytest.mark.parametrize("address", ["foo", "host:99999", "host:"])
def test_a_bad_address_names_the_flag_and_what_is_allowed(tmp_path, address):
    answer = run("--agent-bind-address", address, "--certificate-folder", tmp_path)
    assert answer.returncode == 2
    assert "--agent-bind-address" in answer.stderr
