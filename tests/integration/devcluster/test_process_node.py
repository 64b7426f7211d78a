"""Pods on a process node, bound by the real scheduler and seen through the real API server."""

import contextlib
import json
import os
import socket
import time
import urllib.request

import pytest

from integration.devcluster.nodeprocess import (
    NodeProcess,
    Pods,
    condition_of,
    container_of,
    ended_of,
    until,
)


@pytest.fixture(scope="module")
def node(control_plane, tmp_path_factory):
    started = NodeProcess(control_plane, "process-node", tmp_path_factory.mktemp("node"), gpus=8).start()
    yield started
    assert started.stop() == 0


@pytest.fixture
def pods(node, namespace):
    return Pods(node, namespace)


def waiting_of(pod):
    statuses = pod["status"].get("containerStatuses") or [{}]
    return statuses[0].get("state", {}).get("waiting") or {}


def shell(script):
    return ["sh", "-c", script]


def create(control_plane, namespace, plural, body):
    answer = control_plane.admin.request("POST", f"/api/v1/namespaces/{namespace}/{plural}", body)
    assert answer.status == 201, answer.body


def test_node_shows_pretended_gpus_and_says_so(control_plane, node):
    found = control_plane.admin.request("GET", f"/api/v1/nodes/{node.name}").json()
    assert found["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert found["metadata"]["labels"]["trainer-operator.dev/pretend-gpus"] == "true"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    assert control_plane.admin.request("GET", lease).json()["spec"]["holderIdentity"] == node.name


def test_pod_runs_to_success(pods):
    pod = pods.create("good", shell("exit 0")).finish("good")
    assert pod["status"]["phase"] == "Succeeded"
    assert ended_of(pod)["reason"] == "Completed"
    assert condition_of(pod, "Ready")["reason"] == "PodCompleted"
    assert condition_of(pod, "PodScheduled")["status"] == "True"


def test_exit_code_fails_the_pod(pods):
    pod = pods.create("bad", shell("exit 3")).finish("bad")
    assert pod["status"]["phase"] == "Failed"
    assert (ended_of(pod)["exitCode"], ended_of(pod)["reason"]) == (3, "Error")


def test_signal_is_reported_as_128_plus_its_number(pods):
    script = "import os, ctypes; ctypes.string_at(0)"
    pod = pods.create("crash", ["python3", "-c", script]).finish("crash")
    assert ended_of(pod)["exitCode"] == 139


def test_missing_program_is_a_start_error(pods):
    pod = pods.create("lost", ["no-such-program"]).finish("lost")
    assert (ended_of(pod)["exitCode"], ended_of(pod)["reason"]) == (128, "StartError")
    assert "executable file not found in $PATH" in ended_of(pod)["message"]


def test_container_without_command_is_refused_with_the_reason(pods):
    pods.create("bare", None)
    pod = pods.wait("bare", lambda p: waiting_of(p).get("reason") == "ImageHasNoCommand")
    assert "run no images" in waiting_of(pod)["message"]


def test_init_containers_run_in_order_and_share_a_folder_with_the_main_one(pods):
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/no/such/folder/on/the/host"}]}
    append = "echo {} >> /no/such/folder/on/the/host/order"
    inits = [
        {"name": n, "image": "none", "command": shell(f"sleep 0.1; {append.format(n)}"), **mount}
        for n in ("one", "two")
    ]
    pods.create(
        "ordered",
        shell("tr '\\n' ' ' < /no/such/folder/on/the/host/order > /dev/termination-log"),
        container=mount,
        initContainers=inits,
        volumes=[{"name": "work", "emptyDir": {}}],
    )
    pod = pods.finish("ordered")
    assert ended_of(pod)["message"] == "one two "
    assert not os.path.exists("/no/such")


def test_failed_init_container_fails_the_pod_before_the_main_one_starts(pods):
    inits = [{"name": "init", "image": "none", "command": shell("exit 5")}]
    pod = pods.create("half", shell("exit 0"), initContainers=inits).finish("half")
    assert pod["status"]["phase"] == "Failed"
    assert container_of(pod)["state"]["waiting"]["reason"] == "PodInitializing"
    assert condition_of(pod, "Initialized")["status"] == "False"


def test_environment_is_composed_of_fields_resources_and_sources(control_plane, pods, namespace):
    create(control_plane, namespace, "configmaps", {"metadata": {"name": "map"}, "data": {"K": "from-map"}})
    secret = {"metadata": {"name": "sec"}, "stringData": {"K": "from-secret", "other": "o"}}
    create(control_plane, namespace, "secrets", secret)
    env = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['role']"}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "K"}}},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "K"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "K", "optional": True}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "ALL", "value": "$(NAME)/$(MAP)/$(SECRET)/$(UNSET)/$$(NAME)"},
    ]
    script = (
        'printf "%s|" "$LABEL" "$CPU" "$ALL" "$P_other" "${NONE-unset}" "$IP" "$0" > /dev/termination-log'
    )
    container = {
        "args": ["-c", script, "$(NAME)"],
        "env": env,
        "envFrom": [{"prefix": "P_", "secretRef": {"name": "sec"}}],
        "resources": {"limits": {"cpu": "250m"}},
    }
    pods.create("env", ["sh"], container=container, metadata={"labels": {"role": "worker"}})
    pod = pods.finish("env")
    assert ended_of(pod)["message"].split("|")[:-1] == [
        "worker",
        "250",
        "env/from-map/from-secret/$(UNSET)/$(NAME)",
        "o",
        "unset",
        pod["status"]["podIP"],
        "env",
    ]


def test_pod_waits_for_a_secret_that_does_not_exist_yet(control_plane, pods, namespace):
    env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    pods.create("early", shell('test "$S" = v'), container={"env": env})
    pod = pods.wait("early", lambda p: waiting_of(p).get("reason") == "CreateContainerConfigError")
    assert waiting_of(pod) == {"reason": "CreateContainerConfigError", "message": 'secret "late" not found'}
    create(control_plane, namespace, "secrets", {"metadata": {"name": "late"}, "stringData": {"k": "v"}})
    assert pods.finish("early")["status"]["phase"] == "Succeeded"


def test_secrets_and_config_maps_are_mounted_read_only_where_asked(control_plane, pods, namespace):
    create(
        control_plane, namespace, "configmaps", {"metadata": {"name": "m"}, "data": {"a.txt": "A", "b": "B"}}
    )
    create(control_plane, namespace, "secrets", {"metadata": {"name": "s"}, "stringData": {"key": "S"}})
    script = (
        "cat /conf/a.txt /conf/b /secret/deep/renamed /single > /dev/termination-log; "
        "stat -L -c %a /secret/deep/renamed >> /dev/termination-log; touch /secret/x 2>/dev/null && exit 9; exit 0"
    )
    pods.create(
        "mounted",
        shell(script),
        container={
            "volumeMounts": [
                {"name": "conf", "mountPath": "/conf"},
                {"name": "secret", "mountPath": "/secret", "readOnly": True},
                {"name": "conf", "mountPath": "/single", "subPath": "b"},
            ]
        },
        volumes=[
            {"name": "conf", "configMap": {"name": "m"}},
            {
                "name": "secret",
                "secret": {
                    "secretName": "s",
                    "items": [{"key": "key", "path": "deep/renamed", "mode": 0o400}],
                },
            },
        ],
    )
    pod = pods.finish("mounted")
    assert (ended_of(pod)["exitCode"], ended_of(pod)["message"]) == (0, "ABSB400\n")


def test_projected_token_is_accepted_for_its_audience_and_bound_to_the_pod(control_plane, pods):
    source = {
        "serviceAccountToken": {"path": "token", "audience": "trainer-operator", "expirationSeconds": 600}
    }
    pods.create(
        "tokened",
        shell("cat /var/run/secrets/trainer-operator/token > /dev/termination-log; sleep 60"),
        container={"volumeMounts": [{"name": "t", "mountPath": "/var/run/secrets/trainer-operator"}]},
        volumes=[{"name": "t", "projected": {"sources": [source]}}],
    )
    pod = pods.start("tokened")
    path = pods.node.folder / "state" / "pods" / pod["metadata"]["uid"] / "volumes" / "t" / "token"
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": path.read_text(), "audiences": ["trainer-operator"]},
    }
    answer = control_plane.admin.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).json()
    assert answer["status"]["authenticated"] is True
    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["tokened"]
    pods.delete("tokened")
    pods.gone("tokened")
    until(lambda: not path.exists(), "the pod's folders outlive it")


def test_readiness_gate_and_probe_decide_readiness(kubectl, pods, namespace):
    probe = {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 1}
    server = "import http.server as h; h.ThreadingHTTPServer(('$(IP)', 8123), h.SimpleHTTPRequestHandler).serve_forever()"
    pods.create(
        "web",
        ["python3", "-c", server],
        container={
            "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            "ports": [{"name": "web", "containerPort": 8123}],
            "readinessProbe": probe,
        },
        readinessGates=[{"conditionType": "example.com/gate"}],
    )
    pod = pods.wait("web", lambda p: (condition_of(p, "ContainersReady") or {}).get("status") == "True")
    assert condition_of(pod, "Ready")["reason"] == "ReadinessGatesNotReady"
    assert pod["status"]["podIP"].startswith("127.")
    assert pod["status"]["podIP"] != pod["status"]["hostIP"]
    with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8123/", timeout=5) as answer:
        assert answer.status == 200
    gate = {"status": {"conditions": [{"type": "example.com/gate", "status": "True"}]}}
    kubectl("patch", "pod", "web", "-n", namespace, "--subresource=status", "-p", json.dumps(gate))
    pod = pods.wait("web", lambda p: condition_of(p, "Ready")["status"] == "True")
    assert condition_of(pod, "example.com/gate")["status"] == "True"
    kinds = [c["type"] for c in pod["status"]["conditions"] if not c["type"].startswith("example")]
    own = [k for k in kinds if k != "PodScheduled"]
    assert own == ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"]


def test_failed_liveness_probe_restarts_the_container_and_crashes_back_off(pods):
    """The first restart is immediate, the second is held back with the reason CrashLoopBackOff."""
    pods.create(
        "sick",
        shell("trap 'exit 1' TERM; while :; do sleep 0.05; done"),
        container={
            "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1},
        },
        restartPolicy="Always",
    )
    pod = pods.wait("sick", lambda p: waiting_of(p).get("reason") == "CrashLoopBackOff")
    status = container_of(pod)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert "back-off 10s restarting failed container=main pod=sick_" in status["state"]["waiting"]["message"]
    assert pod["status"]["phase"] == "Running"


def test_on_failure_restarts_until_success(pods):
    pods.create(
        "twice",
        shell("test -e /scratch/mark && exit 0; touch /scratch/mark; exit 1"),
        container={"volumeMounts": [{"name": "w", "mountPath": "/scratch"}]},
        volumes=[{"name": "w", "emptyDir": {}}],
        restartPolicy="OnFailure",
    )
    pod = pods.finish("twice")
    assert pod["status"]["phase"] == "Succeeded"
    assert container_of(pod)["restartCount"] == 1


def test_memory_above_the_limit_is_killed_as_out_of_memory(pods):
    script = "x = bytearray(200 * 1024 * 1024); import time; time.sleep(60)"
    pods.create("fat", ["python3", "-c", script], container={"resources": {"limits": {"memory": "64Mi"}}})
    pod = pods.finish("fat")
    assert (ended_of(pod)["exitCode"], ended_of(pod)["reason"]) == (137, "OOMKilled")


def test_deleted_pod_gets_its_grace_and_reports_its_end_first(control_plane, pods, namespace):
    pods.create("polite", shell("trap 'sleep 0.5; exit 7' TERM; while :; do sleep 0.05; done"))
    pods.start("polite")
    version = pods.get("polite")["metadata"]["resourceVersion"]
    pods.delete("polite", gracePeriodSeconds=20)
    began = time.monotonic()
    pods.gone("polite")
    assert time.monotonic() - began < 10
    watched = control_plane.admin.request(
        "GET", f"{pods.path}?watch=true&resourceVersion={version}&timeoutSeconds=1"
    ).body.splitlines()
    last = [json.loads(line)["object"]["status"] for line in watched][-2]
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


def test_process_that_ignores_sigterm_is_killed_after_the_grace(pods):
    """Process 1 without a handler ignores SIGTERM, as in a container."""
    pods.create("stubborn", ["sleep", "600"])
    pods.start("stubborn")
    began = time.monotonic()
    pods.delete("stubborn", gracePeriodSeconds=2)
    pods.gone("stubborn")
    assert time.monotonic() - began >= 1.9


def test_pod_that_never_started_is_deleted_at_once(pods):
    pods.create("stuck", shell("exit 0"), volumes=[{"name": "v", "secret": {"secretName": "never"}}])
    pods.wait("stuck", lambda p: "containerStatuses" in p["status"])
    pods.delete("stuck")
    pods.gone("stuck", seconds=5)


def test_name_can_be_used_again_right_after_a_forced_deletion(pods):
    pods.create("again", shell("trap '' TERM; while :; do sleep 0.05; done"))
    first = pods.start("again")["metadata"]["uid"]
    pods.delete("again", gracePeriodSeconds=0)
    pods.create("again", shell("exit 0"))
    pod = pods.finish("again")
    assert pod["metadata"]["uid"] != first
    assert pod["status"]["phase"] == "Succeeded"


def test_deadline_ends_a_pod(pods):
    pods.create("slow", ["sleep", "600"], activeDeadlineSeconds=1)
    pod = pods.finish("slow")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


def test_termination_message_falls_back_to_the_log(pods):
    container = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    pod = pods.create("talker", shell("echo the reason >&2; exit 1"), container=container).finish("talker")
    assert ended_of(pod)["message"] == "the reason\n"


def test_kubectl_logs_shows_tail_timestamps_and_follows_to_the_end(kubectl, pods, namespace):
    pods.create("wordy", shell("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.2; done"))
    pods.start("wordy")
    assert kubectl("logs", "-f", "wordy", "-n", namespace).splitlines() == [f"line {i}" for i in range(1, 7)]
    pods.finish("wordy")
    assert kubectl("logs", "wordy", "-n", namespace, "--tail=2") == "line 5\nline 6\n"
    stamped = kubectl("logs", "wordy", "-n", namespace, "--tail=1", "--timestamps")
    assert stamped.startswith("20")
    assert stamped.endswith("Z line 6\n")


def test_kubectl_logs_shows_the_run_before(kubectl, pods, namespace):
    pods.create(
        "phoenix",
        shell("if test -e /w/x; then echo second; sleep 60; else touch /w/x; echo first; exit 1; fi"),
        container={"volumeMounts": [{"name": "w", "mountPath": "/w"}]},
        volumes=[{"name": "w", "emptyDir": {}}],
        restartPolicy="Always",
    )
    pods.wait(
        "phoenix",
        lambda p: (
            "running" in container_of(p)["state"] and container_of(p)["restartCount"] == 1
            if "containerStatuses" in p["status"]
            else False
        ),
    )
    assert kubectl("logs", "phoenix", "-n", namespace, "--previous") == "first\n"
    until(lambda: kubectl("logs", "phoenix", "-n", namespace) == "second\n", "log of the second run")


def test_logs_are_refused_to_whom_the_cluster_did_not_authorise(node, pods):
    host, port = node_endpoint(node)
    with socket.create_connection((host, port), timeout=5):
        pass
    context = __import__("ssl")._create_unverified_context()
    with pytest.raises(OSError, match=r"(?i)certificate required|handshake|eof|reset|closed connection"):
        urllib.request.urlopen(f"https://{host}:{port}/healthz", context=context, timeout=5).read()


def test_twenty_pods_start_side_by_side(pods):
    began = time.monotonic()
    for number in range(20):
        pods.create(f"many-{number}", ["sleep", "600"])
    addresses = {pods.start(f"many-{number}")["status"]["podIP"] for number in range(20)}
    assert len(addresses) == 20
    assert time.monotonic() - began < 20
    for number in range(20):
        pods.delete(f"many-{number}", gracePeriodSeconds=0)


def node_endpoint(node):
    status = node.plane.admin.request("GET", f"/api/v1/nodes/{node.name}").json()["status"]
    address = next(a["address"] for a in status["addresses"] if a["type"] == "InternalIP")
    return address, status["daemonEndpoints"]["kubeletEndpoint"]["Port"]


@pytest.mark.slow
def test_killed_node_takes_its_pods_with_it_and_reports_them_when_it_is_back(
    control_plane, namespace, tmp_path
):
    """A node's power is cut: its processes end at once, the node becomes Unknown, and its pods have failed."""
    node = NodeProcess(control_plane, "doomed-node", tmp_path).start()
    try:
        pods = Pods(node, namespace)
        mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
        pods.create("victim", shell(f": {mark}; sleep 600 & wait"))
        pods.create("survivor", shell(f": {mark}; sleep 600"), restartPolicy="Always")
        pods.start("victim")
        before = pods.start("survivor")
        assert len(processes_with(mark)) >= 2
        node.kill()
        until(lambda: not processes_with(mark), "processes outlive their node", seconds=2)
        assert pods.phase("victim") == "Running"
        node.wait_ready("Unknown", seconds=40)
        node.start()
        pod = pods.finish("victim")
        assert pod["status"]["phase"] == "Failed"
        assert (ended_of(pod)["exitCode"], ended_of(pod)["reason"]) == (137, "ContainerStatusUnknown")
        after = pods.wait(
            "survivor",
            lambda p: container_of(p)["restartCount"] == 1 and "running" in container_of(p)["state"],
        )
        assert container_of(after)["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert after["status"]["startTime"] == before["status"]["startTime"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            node.stop()


def processes_with(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if mark.encode() in file.read():
                found.append(int(pid))
    return found


@pytest.mark.slow
def test_idle_node_uses_hardly_any_processor_time(pods, node):
    pods.create("idle", ["sleep", "600"])
    pods.start("idle")
    time.sleep(1)
    before = processor_seconds(node.process.pid)
    time.sleep(6)
    assert processor_seconds(node.process.pid) - before < 0.3
    pods.delete("idle", gracePeriodSeconds=0)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
