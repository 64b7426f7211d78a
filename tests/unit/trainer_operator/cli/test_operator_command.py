"""What the operator's command line says when it cannot start: one sentence, exit code 1, no traceback."""

import http.client
import socket
import subprocess
import sys
import time
from importlib import metadata

import pytest

KUBECONFIG = (
    '{"apiVersion":"v1","kind":"Config","current-context":"a",'
    '"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"users":[{"name":"a","user":{"token":"x"}}],'
    '"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}'
)
SHOW_LEASE = """
import asyncio
from trainer_operator.cli import operator

def show(_config, options):
    print(options.leader_election.namespace, options.leader_election.name)

operator.build = show
operator.run_manager = lambda factory: asyncio.run(factory()) or 0
operator.app()
"""
"""Runs the command line without an operator behind it; in a process of its own, since others test what is imported."""
SHOW_LIMITS = SHOW_LEASE.replace("_config, options", "config, _").replace(
    "print(options.leader_election.namespace, options.leader_election.name)",
    "print(config.qps, config.burst)",
)
SHOW_INTERVAL = SHOW_LEASE.replace(
    "options.leader_election.namespace, options.leader_election.name", "options.settings.status_interval"
)
SHOW_AGENT = """
import pathlib, sys
from trainer_operator.cli import operator

print(operator._client_config(pathlib.Path(sys.argv[1])).user_agent)
"""


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


def test_requests_carry_the_products_name_and_version(tmp_path):
    """K7."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    command = [sys.executable, "-c", SHOW_AGENT, str(kubeconfig)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    name, _, version = answer.stdout.strip().partition("/")
    assert name == "trainer-operator"
    assert version == metadata.version("trainer-operator")


def test_a_missing_certificate_is_one_sentence(tmp_path):
    """CT2, rule 7 of the architecture: it names the folder and the flag."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    answer = run("--kubeconfig", kubeconfig, "--certificate-folder", tmp_path / "none")
    assert answer.returncode == 1
    assert "--certificate-folder" in answer.stderr


def test_a_registry_that_is_written_wrong_is_one_sentence(tmp_path):
    """NE3, rule 7 of the architecture."""
    answer = run("--registry", "https://registry.example/team", "--certificate-folder", tmp_path)
    assert answer.returncode == 2
    assert "--registry" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_operator_whose_certificate_is_not_there_yet_is_alive_but_not_ready(tmp_path):
    """TR43, EC4, EC5: a Secret that is still empty ends no process; what is missing is said where it is looked for."""
    kubeconfig, certificates, port = tmp_path / "kubeconfig", tmp_path / "tls", free_port()
    kubeconfig.write_text(KUBECONFIG)
    certificates.mkdir()
    options = [f"--kubeconfig={kubeconfig}", f"--certificate-folder={certificates}"]
    options += [f"--health-probe-bind-address=127.0.0.1:{port}", "--agent-bind-address=127.0.0.1:0"]
    command = [sys.executable, "-m", "trainer_operator.cli.main", "operator", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            missing = f"{certificates / 'tls.crt'} cannot be read"
            deadline = time.monotonic() + 60
            while missing not in (told := page(port, "/readyz"))[1]:
                assert time.monotonic() < deadline, told
                time.sleep(0.1)
            assert told[0] == 503
            assert page(port, "/healthz")[0] == 200
            assert process.poll() is None
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def page(port, path):
    """Return status and text of a health page; 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError as error:
        return 0, str(error)
    finally:
        connection.close()


@pytest.mark.parametrize("address", ["foo", "host:99999", "host:"])
def test_a_bad_address_names_the_flag_and_what_is_allowed(tmp_path, address):
    answer = run("--agent-bind-address", address, "--certificate-folder", tmp_path)
    assert answer.returncode == 2
    assert "--agent-bind-address" in answer.stderr


@pytest.mark.parametrize(
    ("flags", "lease"),
    [
        ((), ("trainer-operator", "trainer-operator")),
        (("--leader-election-id=blue",), ("trainer-operator", "blue")),
        (("--leader-election-namespace=team-a",), ("team-a", "trainer-operator")),
    ],
)
def test_the_lease_is_the_products_own_unless_its_place_or_name_is_given(tmp_path, flags, lease):
    """TR45."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    arguments = [f"--kubeconfig={tmp_path / 'kubeconfig'}", "--leader-elect", *flags]
    command = [sys.executable, "-c", SHOW_LEASE, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert tuple(answer.stdout.split()) == lease


@pytest.mark.parametrize(
    ("flags", "limits"),
    [
        ((), ("None", "100")),
        (("--kube-api-qps=20", "--kube-api-burst=30"), ("20.0", "30")),
        (("--kube-api-qps=0.5",), ("0.5", "100")),
    ],
    ids=["none", "both", "slow"],
)
def test_requests_have_no_limit_unless_one_is_given(tmp_path, flags, limits):
    """K3: what a client with such a configuration lets through is tested beside it."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    command = [sys.executable, "-c", SHOW_LIMITS, f"--kubeconfig={tmp_path / 'kubeconfig'}", *flags]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert tuple(answer.stdout.split()) == limits


@pytest.mark.parametrize(("flags", "interval"), [((), "5.0"), (("--status-interval=0.5",), "0.5")])
def test_progress_is_written_as_often_as_the_flag_says(tmp_path, flags, interval):
    """ST7."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    command = [sys.executable, "-c", SHOW_INTERVAL, f"--kubeconfig={tmp_path / 'kubeconfig'}", *flags]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == interval


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--kube-api-qps", "0"),
        ("--kube-api-qps", "nan"),
        ("--kube-api-qps", "fast"),
        ("--kube-api-burst", "0"),
        ("--status-interval", "-1"),
        ("--status-interval", "nan"),
        ("--status-interval", "inf"),
        ("--voluntary-interval", "inf"),
    ],
)
def test_a_limit_that_is_none_is_one_sentence(tmp_path, flag, value):
    """K3, rule 7 of the architecture: it names the flag, and nothing is started."""
    answer = run(f"{flag}={value}", "--kubeconfig", tmp_path / "none", "--certificate-folder", tmp_path)
    assert answer.returncode == 2
    assert flag in answer.stderr
    assert "Traceback" not in answer.stderr
