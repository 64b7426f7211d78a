"""Trainers on the real API server without an operator, so that a test decides what their status says."""

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainer_operator.cli.plugin.main import app
from trainersample import GROUP, trainer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cluster(control_plane, kubectl, kubeconfig, namespace):
    """A namespace in a cluster with our CRDs, and the plugin pointed at it."""
    kubectl("apply", "-k", str(ROOT / "crds"))
    kubectl.wait_established()
    deadline = time.monotonic() + 60
    while not control_plane.admin.is_ok(f"/apis/{GROUP}/v1alpha1/trainers"):
        assert time.monotonic() < deadline, "the API server doesn't serve our kinds after 60 s"
        time.sleep(0.05)
    return Cluster(control_plane.admin, kubectl, kubeconfig, namespace)


class Cluster:
    """What tests do to Trainers, and the plugin as a function."""

    def __init__(self, admin, kubectl, kubeconfig, namespace):
        self.admin, self.kubectl, self.kubeconfig, self.namespace = admin, kubectl, kubeconfig, namespace

    def plugin(self, *arguments, kubeconfig=None, namespace=None, stdin=None):
        """Run the plugin in this process; the result has exit_code, stdout and stderr."""
        command, *rest = arguments
        access = [
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--namespace={namespace or self.namespace}",
        ]
        return CliRunner().invoke(app, [command, *access, *rest], input=stdin, catch_exceptions=False)

    def make(self, name="digits", **status):
        """Make a Trainer with this status; return it as the API server has it."""
        sample = trainer(name, namespace=self.namespace, **status)
        body = {**sample, "metadata": {"name": name, "namespace": self.namespace}}
        wanted = body.pop("status")
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        # Counters stay at 0: the audit log's invariants hold here too, and no failure was recorded.
        del wanted["lastRollback"], wanted["failures"], wanted["disruptions"], wanted["restarts"]
        for record in wanted["members"]:
            record.pop("failures", None)
            record.pop("disruptions", None)
        return self.set_status(name, **wanted)

    def set_status(self, name, **status):
        self.kubectl(
            "patch",
            "trainer",
            name,
            "-n",
            self.namespace,
            "--subresource=status",
            "--type=merge",
            "-p",
            json.dumps({"status": status}),
        )
        return self.get(name)

    def get(self, name="digits"):
        return json.loads(self.kubectl("get", "trainer", name, "-n", self.namespace, "-o", "json"))

    def add_pod(self, pod):
        """Make a pod with this status. It is bound to no node: of one that does not exist it would be collected."""
        spec = {
            "containers": [{"name": "trainer", "image": "none"}],
            "schedulerName": "none",
            "terminationGracePeriodSeconds": 0,
        }
        metadata = {"name": pod["metadata"]["name"], "labels": pod["metadata"]["labels"]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.kubectl("create", "-n", self.namespace, "-f", "-", stdin=json.dumps(body))
        self.kubectl(
            "patch",
            "pod",
            metadata["name"],
            "-n",
            self.namespace,
            "--subresource=status",
            "-p",
            json.dumps({"status": {key: pod["status"][key] for key in ("phase", "conditions")}}),
        )

    def add_event(self, event):
        body = {
            **event,
            "metadata": {
                "name": event["metadata"]["name"].lower().replace(":", "-"),
                "namespace": self.namespace,
            },
            "involvedObject": {**event["involvedObject"], "namespace": self.namespace},
        }
        self.kubectl("create", "-f", "-", stdin=json.dumps(body))

    def pod_names(self):
        listed = json.loads(self.kubectl("get", "pods", "-n", self.namespace, "-o", "json"))["items"]
        return {pod["metadata"]["name"] for pod in listed if not pod["metadata"].get("deletionTimestamp")}

    def plugin_script(self, shell):
        return CliRunner().invoke(app, ["completion", shell], catch_exceptions=False).stdout
