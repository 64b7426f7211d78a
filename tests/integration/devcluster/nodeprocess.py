"""A process node and the provisioner as processes of their own, for tests."""

import json
import signal
import subprocess
import sys
import time

from trainer_operator.devcluster.node.addresses import NODE_ADDRESSES


class NodeProcess:
    """One process node; its pods are created with a selector for it, so that other tests' nodes do not matter."""

    def __init__(self, plane, name, folder, *, gpus=0):
        self.plane, self.name, self.folder = plane, name, folder
        pair = plane.server_certificate(f"kubelet-{name}", hosts=NODE_ADDRESSES, folder=folder)
        self.argv = [
            *(sys.executable, "-m", "trainer_operator.devcluster.node", f"--name={name}"),
            *(f"--kubeconfig={plane.node_kubeconfig(name)}", f"--state-dir={folder / 'state'}"),
            *("--cpu=64", "--memory=64Gi", f"--gpus={gpus}", "--log-level=debug"),
            *(f"--serving-certificate={pair.certificate}", f"--serving-key={pair.key}"),
        ]
        self.log = folder / "node.log"
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.argv, stdout=log, stderr=log)
        self.wait_ready("True")
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=15)
        self.plane.admin.request("DELETE", f"/api/v1/nodes/{self.name}")
        return code

    def ready(self):
        answer = self.plane.admin.request("GET", f"/api/v1/nodes/{self.name}")
        conditions = answer.json().get("status", {}).get("conditions", []) if answer.status == 200 else []
        return next((c["status"] for c in conditions if c["type"] == "Ready"), None)

    def wait_ready(self, status, seconds=30):
        until(lambda: self.ready() == status, f"{self.name} is not {status}", seconds=seconds)


class Pods:
    """Pods of one namespace on one node."""

    def __init__(self, node, namespace):
        self.node, self.namespace = node, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name, command=None, *, container=None, metadata=None, **spec):
        main = {"name": "main", "image": "none", "command": command} | (container or {})
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": {"kubernetes.io/hostname": self.node.name},
                "containers": [main],
            }
            | spec,
        }
        answer = self.node.plane.admin.request("POST", self.path, body)
        assert answer.status == 201, answer.body
        return self

    def get(self, name):
        answer = self.node.plane.admin.request("GET", f"{self.path}/{name}")
        return answer.json() if answer.status == 200 else None

    def delete(self, name, **options):
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        assert self.node.plane.admin.request("DELETE", f"{self.path}/{name}", body).status in (200, 202)

    def phase(self, name):
        return ((self.get(name) or {}).get("status") or {}).get("phase")

    def wait(self, name, condition, seconds=20):
        """Wait until the pod satisfies a condition and return it."""
        found = {}

        def satisfied():
            found["pod"] = self.get(name)
            return found["pod"] is not None and condition(found["pod"])

        until(
            satisfied,
            lambda: f"pod {name}: {json.dumps((found['pod'] or {}).get('status'), indent=1)}",
            seconds=seconds,
        )
        return found["pod"]

    def finish(self, name, seconds=20):
        """Wait until the pod has ended and return it."""
        return self.wait(name, lambda pod: pod["status"].get("phase") in ("Succeeded", "Failed"), seconds)

    def start(self, name):
        """Wait until the pod runs and return it."""
        return self.wait(name, lambda pod: pod["status"].get("phase") == "Running")

    def gone(self, name, seconds=20):
        until(lambda: self.get(name) is None, f"pod {name} is still there", seconds=seconds)


def until(condition, what, *, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.03)


def container_of(pod, name="main"):
    status = pod["status"]
    every = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
    return next(entry for entry in every if entry["name"] == name)


def ended_of(pod, name="main"):
    return container_of(pod, name)["state"]["terminated"]


def condition_of(pod, kind):
    return next((c for c in pod["status"].get("conditions", []) if c["type"] == kind), None)
