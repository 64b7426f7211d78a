"""A double of the metrics API, and nothing more: it reports the use of processors that it is told.

A real metrics server reads kubelets; process nodes measure nothing. The API server aggregates it as it would the real
one, and the real autoscaler of kube-controller-manager reads it.
"""

import contextlib
import json
import ssl
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"


class MetricsDouble:
    """Serves `cpu` millicores for every pod that the label selector of a request finds."""

    def __init__(self, kubectl, certificate, key):
        self._kubectl = kubectl
        self.cpu = 0
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self):
                double._answer(self)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._server.server_address[1]

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics double")
        self._thread.start()
        self._install("apply")
        return self

    def __exit__(self, *_):
        # First the registration: while it names a server that is away, no namespace of the cluster can end.
        self._install("delete")
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _install(self, verb):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "metrics-double", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        }
        registration = {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {"name": "metrics-double", "namespace": "kube-system", "port": self.port},
            },
        }
        both = {"apiVersion": "v1", "kind": "List", "items": [service, registration]}
        self._kubectl(verb, "-f", "-", stdin=json.dumps(both))

    def _answer(self, request):
        url = urlsplit(request.path)
        if url.path == ROOT:
            verbs = ["get", "list"]
            resource = {
                "name": "pods",
                "singularName": "",
                "namespaced": True,
                "kind": "PodMetrics",
                "verbs": verbs,
            }
            body = {"kind": "APIResourceList", "groupVersion": f"{GROUP}/{VERSION}", "resources": [resource]}
        elif url.path.startswith(f"{ROOT}/namespaces/") and url.path.endswith("/pods"):
            namespace = url.path.removeprefix(f"{ROOT}/namespaces/").partition("/")[0]
            selector = parse_qs(url.query).get("labelSelector", [""])[0]
            body = {
                "kind": "PodMetricsList",
                "apiVersion": f"{GROUP}/{VERSION}",
                "metadata": {},
                "items": self._metrics(namespace, selector),
            }
        else:
            body = None
        raw = json.dumps(body or {"kind": "Status", "status": "Failure", "code": 404}).encode()
        with contextlib.suppress(OSError):  # who asked has gone away
            request.send_response(200 if body else 404)
            request.send_header("Content-Type", "application/json")
            request.send_header("Content-Length", str(len(raw)))
            request.end_headers()
            request.wfile.write(raw)

    def _metrics(self, namespace, selector):
        found = json.loads(self._kubectl("get", "pods", "-n", namespace, "-l", selector, "-o", "json"))[
            "items"
        ]
        return [
            {
                "metadata": {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")},
                "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "window": "1s",
                "containers": [
                    {"name": container["name"], "usage": {"cpu": f"{self.cpu}m", "memory": "10Mi"}}
                    for container in pod["spec"]["containers"]
                ],
            }
            for pod in found
            if pod.get("status", {}).get("phase") == "Running"
        ]
