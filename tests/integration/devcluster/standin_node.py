"""A stand-in for a process node: registers a Node, says that it is Ready, and waits to be ended."""

import argparse
import base64
import http.client
import json
import ssl
import tempfile
import time
from urllib.parse import urlsplit


def main():
    parser = argparse.ArgumentParser()
    for flag in (
        "--name",
        "--kubeconfig",
        "--state-dir",
        "--gpus",
        "--cpu",
        "--memory",
        "--serving-certificate",
        "--serving-key",
    ):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    with open(options.kubeconfig) as stream:
        config = json.load(stream)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(
            base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"])
        )
        pair.flush()
        context.load_cert_chain(pair.name)
    server = urlsplit(cluster["server"])

    def send(method, path, body, kind="application/json"):
        connection = http.client.HTTPSConnection(server.hostname, server.port, context=context)
        connection.request(method, path, json.dumps(body), {"Content-Type": kind})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    metadata = {"name": options.name}
    status = send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    assert status in {201, 409}, status
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "StandIn"}]}}
    path = f"/api/v1/nodes/{options.name}/status"
    status = send("PATCH", path, ready, kind="application/strategic-merge-patch+json")
    assert status == 200, status
    print("ready", flush=True)
    while True:
        time.sleep(60)


main()
