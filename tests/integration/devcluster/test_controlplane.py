"""The control plane itself: real programs, real rights, real failures."""

import asyncio
import json
import socket
import time

import pytest

from trainer_operator.devcluster import controlplane as module
from trainer_operator.devcluster import nodeobjects
from trainer_operator.devcluster.assets import Assets, require
from trainer_operator.devcluster.certificates import NODE_GROUPS
from trainer_operator.devcluster.component import Ports
from trainer_operator.devcluster.controlplane import APISERVER, ETCD, ControlPlane
from trainer_operator.devcluster.errors import ClusterFault, ComponentFailed, KubectlFailed
from trainer_operator.devcluster.kubectl import Kubectl


def wait_until(condition, what, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def as_user(control_plane, user, groups=()):
    return Kubectl(control_plane.assets.path("kubectl"), control_plane.user_kubeconfig(user, groups))


def test_pods_are_accepted_in_a_fresh_namespace(kubectl, namespace):
    out = kubectl("run", "one", "-n", namespace, "--image=none", "--restart=Never", "-o", "json")
    assert json.loads(out)["metadata"]["name"] == "one"


def test_version_is_the_pinned_one(kubectl):
    assert json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"].startswith("v1.")


def test_administrator_may_do_everything_and_a_stranger_nothing(control_plane, kubectl, namespace):
    assert kubectl("auth", "can-i", "*", "*").strip() == "yes"
    stranger = as_user(control_plane, "stranger")
    with pytest.raises(KubectlFailed, match='User "stranger" cannot list resource "pods"'):
        stranger("get", "pods", "-n", namespace)


def test_user_gets_the_rights_of_its_groups(control_plane, kubectl, namespace):
    kubectl("create", "rolebinding", "viewers", "-n", namespace, "--clusterrole=view", "--group=viewers")
    viewer = as_user(control_plane, "someone", ["viewers"])
    wait_until(lambda: viewer.run("get", "pods", "-n", namespace).returncode == 0, "the group has no effect")
    assert "cannot create" in viewer.run("create", "configmap", "x", "-n", namespace).stderr


def test_node_registers_itself_and_no_other(control_plane):
    node = as_user(control_plane, "system:node:node-77", NODE_GROUPS)
    manifest = '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "%s"}}'
    node("create", "-f", "-", stdin=manifest % "node-77")
    with pytest.raises(KubectlFailed, match=r"node-77.* is not allowed to modify node"):
        node("create", "-f", "-", stdin=manifest % "node-78")
    assert control_plane.admin.request("DELETE", "/api/v1/nodes/node-77").status == 200


def test_owner_reference_needs_the_right_to_its_finalizers(control_plane, kubectl, namespace):
    """CR: OwnerReferencesPermissionEnforcement is on, as on some distributions."""
    kubectl("create", "configmap", "owner", "-n", namespace)
    uid = kubectl("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    kubectl("create", "role", "writer", "-n", namespace, "--verb=create,get", "--resource=secrets")
    kubectl("create", "rolebinding", "writer", "-n", namespace, "--role=writer", "--user=writer")
    owned = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "owned",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "owner",
                    "uid": uid,
                    "blockOwnerDeletion": True,
                }
            ],
        },
    }
    writer = as_user(control_plane, "writer")
    wait_until(
        lambda: writer.run("auth", "can-i", "create", "secrets", "-n", namespace).returncode == 0, "no rights"
    )
    result = writer.run("create", "-n", namespace, "-f", "-", stdin=json.dumps(owned))
    assert "cannot set blockOwnerDeletion" in result.stderr


def test_garbage_collector_removes_what_a_deleted_owner_owned(kubectl, namespace):
    kubectl("create", "configmap", "owner", "-n", namespace)
    uid = kubectl("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    owner = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]
    owned = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "owned", "ownerReferences": owner}}
    kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(owned))
    kubectl("delete", "configmap", "owner", "-n", namespace)
    wait_until(
        lambda: kubectl.run("get", "secret", "owned", "-n", namespace).returncode != 0, "it is still there"
    )


def test_token_bound_to_a_pod_is_issued_and_accepted(control_plane, kubectl, namespace):
    kubectl("run", "one", "-n", namespace, "--image=none", "--restart=Never")
    token = kubectl(
        "create", "token", "default", "-n", namespace, "--bound-object-kind=Pod", "--bound-object-name=one"
    ).strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = control_plane.admin.request(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", review
    ).json()["status"]
    assert status["authenticated"]
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["one"]


def test_pod_may_have_a_loopback_address_of_its_own(control_plane, kubectl, namespace):
    kubectl("run", "one", "-n", namespace, "--image=none", "--restart=Never")
    patch = '{"status": {"podIP": "127.3.0.7", "podIPs": [{"ip": "127.3.0.7"}]}}'
    kubectl("patch", "pod", "one", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


def test_every_request_is_in_the_audit_log(control_plane, kubectl, namespace):
    kubectl("create", "configmap", "seen", "-n", namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def audited():
        events = [json.loads(line) for line in control_plane.audit_log.read_text().splitlines()]
        return [
            event["responseStatus"]["code"]
            for event in events
            if event["user"]["username"] == "admin"
            and event["verb"] == "create"
            and event["requestURI"].startswith(path)
        ]

    wait_until(audited, "it is not there")
    assert audited() == [201]


async def test_config_is_the_administrator_s_access_for_our_own_client(control_plane, namespace):
    from runtime.client.rest import Client
    from runtime.objects import NAMESPACES

    async with Client(control_plane.config) as client:
        assert (await client.get(NAMESPACES, namespace))["metadata"]["name"] == namespace


# -- life and death; these start control planes of their own, of the least parts -------------------------------


async def test_objects_and_kubeconfigs_outlive_a_restart(tmp_path):
    async with ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0) as plane:
        first = plane.ports
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}}
        assert plane.admin.request("POST", "/api/v1/namespaces", body).status == 201
        stranger = plane.user_kubeconfig("someone", ["system:masters"])
    async with ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0) as plane:
        assert plane.ports == first
        kubectl = Kubectl(plane.assets.path("kubectl"), stranger)
        assert kubectl("get", "namespace", "kept", "-o", "name").strip() == "namespace/kept"


async def test_killed_server_comes_back_on_its_port_with_its_objects(tmp_path):
    async with ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0) as plane:
        await plane.stop_component(APISERVER, grace=0)
        assert plane.ended() == [APISERVER]
        assert not plane.admin.is_ok("/readyz")
        await plane.start_component(APISERVER)
        assert plane.ended() == []
        assert plane.admin.is_ok("/readyz")


async def test_frozen_server_is_silent_until_it_goes_on(tmp_path):
    async with ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0) as plane:
        plane.pause_component(APISERVER)
        assert not plane.admin.is_ok("/readyz", timeout=0.3)
        plane.resume_component(APISERVER)
        assert plane.admin.is_ok("/readyz", timeout=10)


async def test_lost_race_for_a_port_is_repeated_with_other_ports(tmp_path, monkeypatch):
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", 0))
        thief.listen()
        taken = thief.getsockname()[1]
        plane = ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0)
        choose = plane._choose_ports

        def lose_once(*, fresh):
            ports = choose(fresh=fresh)
            return ports if fresh else Ports(ports.etcd, ports.etcd_peer, taken, 1, 1)

        monkeypatch.setattr(plane, "_choose_ports", lose_once)
        async with plane:
            assert plane.ports.apiserver != taken
            assert plane.admin.is_ok("/readyz")


async def test_program_that_ends_is_reported_with_its_last_words_and_the_others_are_ended(tmp_path):
    plane = ControlPlane(tmp_path, components={ETCD, APISERVER}, apiserver_args=["--no-such-flag"], grace=0)
    with pytest.raises(
        ComponentFailed, match=r"^apiserver ended with code 1: .*unknown flag: --no-such-flag"
    ):
        await plane.start()
    assert plane.pids() == {}


async def test_server_that_never_gets_ready_is_given_up_and_ended(tmp_path):
    silent = tmp_path / "bin"
    silent.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (silent / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (silent / name).chmod(0o755)
    plane = ControlPlane(
        tmp_path / "state", components={ETCD, APISERVER}, assets=Assets(silent), ready_timeout=0.5, grace=0
    )
    with pytest.raises(ComponentFailed, match=r"^apiserver was not ready after 0 s: see .*apiserver.log$"):
        await plane.start()
    assert plane.pids() == {}


async def test_cancelled_start_leaves_nothing_running(tmp_path):
    plane = ControlPlane(tmp_path, grace=0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await plane.start()
    assert plane.pids() == {}


def test_unknown_component_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(ClusterFault, match="no component kubelet: there are etcd, apiserver"):
        ControlPlane(tmp_path, components={"kubelet"})


def test_access_before_the_start_is_an_error_and_not_a_guess(tmp_path):
    with pytest.raises(ClusterFault, match="has not been started"):
        _ = ControlPlane(tmp_path, assets=require()).url
    assert {"etcd", "apiserver", "controller-manager", "scheduler"} == module.ALL_COMPONENTS


async def test_nodes_of_an_earlier_run_are_unknown_until_they_report_and_surplus_ones_are_gone(tmp_path):
    async with ControlPlane(tmp_path, components={ETCD, APISERVER}, grace=0) as plane:
        for name in ("node-0", "node-1", "foreign"):
            plane.admin.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            kind = "application/strategic-merge-patch+json"
            plane.admin.request("PATCH", f"/api/v1/nodes/{name}/status", ready, content_type=kind)
        assert nodeobjects.list_ready(plane.admin) == {"node-0", "node-1", "foreign"}
        nodeobjects.tidy(plane.admin, wanted=["node-0"])
        assert nodeobjects.list_ready(plane.admin) == set()
        assert plane.admin.is_ok("/api/v1/nodes/node-0")
        assert plane.admin.is_ok("/api/v1/nodes/foreign")
        assert not plane.admin.is_ok("/api/v1/nodes/node-1")
        await plane.stop_component(APISERVER, grace=0)
        assert nodeobjects.list_ready(plane.admin) == set()
