"""`kubectl trainer` on the real API server: what it prints, what it changes, how it fails."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import yaml

from trainer_operator.cli.plugin.failure import ExitCode
from trainer_operator.demo.manifests import service_account_kubeconfig
from trainersample import event, pod

SCRIPTS = Path(sys.executable).parent


def test_list_shows_the_trainers_of_a_namespace_or_of_all(cluster):
    """CL1."""
    empty = cluster.plugin("list")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert empty.stderr == f"There are no Trainers in namespace {cluster.namespace}.\n"
    cluster.make("digits", phase="Running")
    cluster.make("mnist", phase="Pending", globalStep=0)
    header, digits, mnist = cluster.plugin("list").stdout.splitlines()
    assert header.split() == [
        "NAME",
        "PHASE",
        "STEP",
        "EPOCH",
        "WORKERS",
        "SERVERS",
        "RESTARTS",
        "CHECKPOINT",
        "AGE",
    ]
    assert digits.split()[:-1] == ["digits", "Running", "1090", "30/50", "2/3", "1/1", "0", "1068"]
    assert mnist.split()[:3] == ["mnist", "Pending", "0"]
    everywhere = cluster.plugin("list", "-A", namespace="default").stdout
    assert [cluster.namespace, "digits"] in [line.split()[:2] for line in everywhere.splitlines()]
    assert "registry.example/digits:1" in cluster.plugin("list", "-o", "wide").stdout


def test_objects_are_written_as_json_yaml_and_names_without_secrets(cluster):
    """CL1, RD2."""
    cluster.make()
    items = json.loads(cluster.plugin("list", "-o", "json").stdout)["items"]
    assert [item["metadata"]["name"] for item in items] == ["digits"]
    written = cluster.plugin("describe", "digits", "-o", "yaml").stdout
    assert yaml.safe_load(written)["spec"]["topology"]["workers"] == 3
    assert "hunter2" not in written
    assert "managedFields" not in written
    assert cluster.plugin("list", "-o", "name").stdout == "trainer.trainer.operator.kubeflow.org/digits\n"


def test_describe_says_what_is_wrong_and_what_to_do(cluster):
    """CL1, EV1, CR7: with members, Checkpoints and Events, without colours and values of variables."""
    uid = cluster.make()["metadata"]["uid"]
    cluster.add_pod(pod("worker", 0))
    cluster.add_event(event("Trainer", "digits", "EpochStarted", "members start together", uid=uid))
    shown = cluster.plugin("describe", "digits")
    assert shown.exit_code == 0
    for part in (
        "Phase:          Recovering",
        "━━━━━━━━━━━━━━━━━━──────────── 60%",
        "Environment:    API_TOKEN, LEVEL",
        "waits for worker-1 → nothing: the operator is at it",
        "● worker-0",
        "EpochStarted",
    ):
        assert part in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "hunter2" not in shown.stdout


def test_tree_is_built_from_status_and_pods(cluster):
    """ST4, CR10: the JSON form has the operator's shape."""
    cluster.make()
    cluster.add_pod(pod("worker", 0))
    cluster.add_pod(pod("worker", 1, 1, phase="Pending", ready=False, node=""))
    lines = cluster.plugin("tree", "digits").stdout.splitlines()
    assert lines[0].split() == ["digits", "Recovering", cluster.namespace]
    assert any(line.split()[:4] == ["│", "├─", "●", "worker-0"] for line in lines)
    told = json.loads(cluster.plugin("tree", "digits", "-o", "json").stdout)
    assert told["trainer"] == f"{cluster.namespace}/digits"
    states = {member["member"]: member["state"] for role in told["roles"] for member in role["members"]}
    assert states == {"worker-0": "Ready", "worker-1": "Pending", "worker-2": "Lost", "ps-0": "Pending"}


def test_watched_tree_tells_each_change_in_a_line_and_ends_with_the_trainer(cluster):
    """ST4, CL1: no terminal, so no page is drawn anew."""
    cluster.make(members=[])
    cluster.add_pod(pod("worker", 0))
    command = [sys.executable, "-m", "trainer_operator.cli.plugin.main", "tree", "digits", "--watch"]
    with subprocess.Popen(
        [*command, f"--kubeconfig={cluster.kubeconfig}", f"--namespace={cluster.namespace}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as watching:
        try:
            wait_line(watching, "ps-0")
            cluster.kubectl("delete", "pod", "digits-worker-0", "-n", cluster.namespace, "--now")
            wait_line(watching, "worker-0 Ready -> ")
            cluster.set_status(
                "digits", phase="Failed", reason="BackoffLimitExceeded", message="too many failures"
            )
            wait_line(watching, "digits Recovering -> Failed at step 1090 (too many failures)")
            assert watching.wait(60) == 0
        finally:
            watching.kill()


def test_events_of_the_trainer_and_what_it_owns_are_sorted_and_counted(cluster):
    """EV1."""
    uid = cluster.make()["metadata"]["uid"]
    cluster.add_event(event("Trainer", "digits", "Scaling", "from 2 to 3", at="12:06:00", uid=uid))
    cluster.add_event(event("Pod", "digits-worker-1", "OOMKilled", "out of memory", at="12:05:00", count=3))
    cluster.add_event(event("Pod", "other-worker-1", "Killing", "another's", at="12:05:00"))
    header, *rows = cluster.plugin("events", "digits").stdout.splitlines()
    assert header.split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]
    assert [row.split()[2] for row in rows] == ["OOMKilled", "Scaling"]
    assert "x3" in rows[0]
    listed = json.loads(cluster.plugin("events", "digits", "-o", "json").stdout)
    assert [item["reason"] for item in listed["items"]] == ["OOMKilled", "Scaling"]


def test_scale_suspend_and_resume_change_the_wish_and_say_so(cluster):
    """CL2, CR6."""
    cluster.make()
    scaled = cluster.plugin("scale", "digits", "--workers", "5")
    assert scaled.stdout == "trainer/digits scaled from 3 to 5 workers\n"
    assert cluster.get()["spec"]["topology"]["workers"] == 5
    assert cluster.plugin("scale", "digits", "--workers=5").stdout == "trainer/digits has 5 workers already\n"
    assert cluster.plugin("suspend", "digits").stdout.startswith("trainer/digits suspended: ")
    assert cluster.get()["spec"]["suspend"] is True
    assert cluster.plugin("suspend", "digits").stdout == "trainer/digits was suspended already\n"
    resumed = cluster.plugin("resume", "digits", "-o", "json")
    assert json.loads(resumed.stdout)["spec"]["suspend"] is False
    assert cluster.plugin("resume", "digits").stdout == "trainer/digits is not suspended\n"


def test_what_the_api_server_refuses_is_told_in_one_line(cluster):
    """CL1, CR6: the CRD's own maximum."""
    cluster.make()
    refused = cluster.plugin("scale", "digits", "--workers=20000")
    assert refused.exit_code == ExitCode.FAILED
    assert refused.stderr.startswith("error: the API server refused: ")
    assert refused.stderr.count("\n") == 1


def test_restart_deletes_the_chosen_pods_only_when_it_was_confirmed(cluster):
    """CL2: off a terminal nobody can be asked."""
    cluster.make()
    for index in (0, 1):
        cluster.add_pod(pod("worker", index))
    asked = cluster.plugin("restart", "digits")
    assert asked.exit_code == ExitCode.NOT_NOW
    assert "needs --yes: it would delete digits-worker-0, digits-worker-1" in asked.stderr
    assert cluster.pod_names() == {"digits-worker-0", "digits-worker-1"}
    unknown = cluster.plugin("restart", "digits", "--member", "worker-7", "--yes")
    assert unknown.exit_code == ExitCode.NOT_FOUND
    assert "has no member worker-7 with a pod to delete: there are worker-0, worker-1" in unknown.stderr
    done = cluster.plugin("restart", "digits", "--member", "worker-1", "--yes")
    assert done.stdout == "pod/digits-worker-1 deleted\n"
    assert cluster.pod_names() == {"digits-worker-0"}
    cluster.set_status("digits", phase="Succeeded")
    ended = cluster.plugin("restart", "digits", "--yes")
    assert (ended.exit_code, ended.stderr) == (
        ExitCode.NOT_NOW,
        "error: trainer/digits has succeeded: its members are not started again\n",
    )


def test_an_unknown_trainer_ends_every_command_alike(cluster):
    """CL1: exit code 3, and what there is instead."""
    cluster.make("mnist")
    expected = f"error: no Trainer nothing in namespace {cluster.namespace}: there are mnist\n"
    for command in ("describe", "tree", "events", "logs", "suspend", "resume", "restart"):
        failed = cluster.plugin(command, "nothing")
        assert (failed.exit_code, failed.stderr) == (ExitCode.NOT_FOUND, expected), command


def test_a_trainer_in_another_namespace_is_named(cluster):
    """CL1."""
    cluster.make("elsewhere")
    failed = cluster.plugin("describe", "elsewhere", namespace="kube-public")
    assert failed.exit_code == ExitCode.NOT_FOUND
    assert f"but in {cluster.namespace}: use -n" in failed.stderr


def test_a_user_without_the_right_is_told_which_one_is_missing(cluster, tmp_path):
    """CL1."""
    token = cluster.kubectl("create", "token", "default", "-n", cluster.namespace).strip()
    file = tmp_path / "kubeconfig"
    user = f"system:serviceaccount:{cluster.namespace}:default"
    file.write_text(service_account_kubeconfig(cluster.kubeconfig.read_text(), token, user=user))
    failed = cluster.plugin("list", kubeconfig=file)
    assert failed.exit_code == ExitCode.FORBIDDEN
    assert failed.stderr == (
        f"error: user {user} may not list trainers.trainer.operator.kubeflow.org in namespace {cluster.namespace}: "
        "ask for a role with the verb list on trainers.trainer.operator.kubeflow.org\n"
    )


def test_an_api_server_that_is_not_there_is_named(cluster, tmp_path):
    """CL1, K2."""
    failed = cluster.plugin("list", kubeconfig=kubeconfig_for("https://127.0.0.1:1", tmp_path))
    assert failed.exit_code == ExitCode.UNREACHABLE
    assert failed.stderr.startswith("error: the API server at https://127.0.0.1:1 cannot be reached: ")
    missing = cluster.plugin("list", kubeconfig=tmp_path / "none")
    assert missing.exit_code == ExitCode.UNREACHABLE
    assert str(tmp_path / "none") in missing.stderr


def test_a_cluster_without_our_kinds_is_told_apart_from_one_without_trainers(cluster, tmp_path):
    """CL1: an API server answers 404 without a Status for a group it does not have."""

    class Nothing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404, "page not found")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            file = kubeconfig_for(f"http://127.0.0.1:{server.server_port}", tmp_path)
            for arguments in (("list",), ("describe", "digits")):
                failed = cluster.plugin(*arguments, kubeconfig=file)
                assert failed.exit_code == ExitCode.NOT_INSTALLED
                assert "has no Trainers: install the operator" in failed.stderr
        finally:
            server.shutdown()
            thread.join()


def test_an_operator_that_cannot_be_asked_is_told(cluster, tmp_path):
    """CL1, NE: https only, with a token, and nothing else of the kubeconfig."""
    cluster.make()
    plain = cluster.plugin("tree", "digits", "--server", "http://127.0.0.1:1")
    assert (plain.exit_code, plain.stderr) == (
        ExitCode.USAGE,
        "error: --server is http://127.0.0.1:1, must be an https address\n",
    )
    no_token = cluster.plugin("tree", "digits", "--server", "https://127.0.0.1:1")
    assert no_token.exit_code == ExitCode.USAGE
    assert "--token-file" in no_token.stderr
    token = tmp_path / "token"
    token.write_text("none")
    gone = cluster.plugin("tree", "digits", "--server", "https://127.0.0.1:1", "--token-file", str(token))
    assert gone.exit_code == ExitCode.UNREACHABLE
    assert gone.stderr.startswith("error: the operator at https://127.0.0.1:1 cannot be reached: ")


def test_kubectl_finds_and_completes_the_plugin(cluster, tmp_path):
    """CL1: the real kubectl, with the scripts on its PATH."""
    cluster.make()
    script = tmp_path / "kubectl_complete-trainer"
    script.write_text(cluster.plugin_script("kubectl"))
    script.chmod(0o755)
    environ = {**cluster.kubectl.environ(), "PATH": f"{tmp_path}:{SCRIPTS}:{os.environ['PATH']}"}

    def kubectl(*arguments):
        return subprocess.run(
            [cluster.kubectl.program, *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    listed = kubectl("trainer", "list", "-n", cluster.namespace, "-o", "name")
    assert (listed.returncode, listed.stdout) == (0, "trainer.trainer.operator.kubeflow.org/digits\n")
    assert kubectl("trainer", "describe", "mnist", "-n", cluster.namespace).returncode == ExitCode.NOT_FOUND
    completed = kubectl("__complete", "trainer", "sus")
    assert completed.stdout.splitlines() == ["suspend", ":4"], completed.stderr


def test_bash_takes_the_completion_script(tmp_path):
    """CL1."""
    environ = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", "source <(kubectl-trainer completion bash) && complete -p kubectl-trainer"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "-F _kubectl_trainer_completion kubectl-trainer" in done.stdout


def test_version_and_help_with_exit_codes_need_no_cluster(tmp_path):
    """CL1."""
    environ = {**os.environ, "HOME": str(tmp_path)}

    def run(*arguments):
        return subprocess.run(
            [SCRIPTS / "kubectl-trainer", *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    assert run("--version").stdout.startswith("kubectl-trainer ")
    assert "3    there is no such Trainer or member" in run("--help").stdout
    assert run("scale", "digits").returncode == ExitCode.USAGE


def kubeconfig_for(server, folder):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server}}],
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def wait_line(process, text):
    """Read on until a line has this text; pytest's own timeout ends a wait that lasts."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return line
    raise AssertionError(f"no line with {text!r} in {seen}")
