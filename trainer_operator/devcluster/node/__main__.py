"""`python -m trainer_operator.devcluster.node`: run one process node until SIGTERM.

Ending this process, in whatever way, ends every process of its pods.
"""

from __future__ import annotations

import argparse
import os
import sys
import zlib
from pathlib import Path

from runtime.client import ClientConfig
from runtime.controller import Controller
from runtime.errors import RuntimeFault
from runtime.logs import configure, get_logger
from runtime.manager import Manager, run_manager
from runtime.objects import PODS
from trainer_operator.devcluster.node.addresses import NETWORKS, Network, NoNetwork, claim_network
from trainer_operator.devcluster.node.attachments import Attachments
from trainer_operator.devcluster.node.host import NodeSettings
from trainer_operator.devcluster.node.kubeletapi import KubeletServer, ServingFiles
from trainer_operator.devcluster.node.pods import PodReconciler
from trainer_operator.devcluster.node.register import Registrar

_WORKERS = 32


def main(arguments: list[str] | None = None) -> int:
    """Run a node; return the exit code."""
    options = _parser().parse_args(arguments)
    configure(options.log_level, json=False)
    settings = NodeSettings(
        name=options.name,
        state_dir=options.state_dir.resolve(),
        cpu=options.cpu,
        memory=options.memory,
        gpus=options.gpus,
        pods=options.pods,
        labels=dict(label.split("=", 1) for label in options.label),
        working_dir=options.working_dir,
    )
    settings.state_dir.mkdir(parents=True, exist_ok=True)
    # What pods write there may hold secrets: other users of the machine have no business in it.
    settings.state_dir.chmod(0o700)
    try:
        config = ClientConfig.from_kubeconfig(options.kubeconfig)
        network = claim_network(_preferred_network(settings))
    except (RuntimeFault, NoNetwork, OSError) as problem:
        print(f"process node {settings.name}: {problem}", file=sys.stderr)
        return 1
    serving = _serving_files(config, options.serving_certificate, options.serving_key)
    return run_manager(lambda: _build(settings, config, network, serving))


def _build(
    settings: NodeSettings, config: ClientConfig, network: Network, serving: ServingFiles | None
) -> Manager:
    # Memory is not frozen: pods are few, and what is read at the start is soon replaced.
    manager = Manager(config, health_address=None, component="process-node", freeze_memory=False)
    pods = manager.informers.informer(PODS, fields=f"spec.nodeName={settings.name}")
    attachments = Attachments(settings.name, manager.client)
    reconciler = PodReconciler(
        settings,
        network,
        pods,
        attachments=attachments,
        client=manager.client,
        events=manager.events,
        clock=manager.clock,
    )
    controller = Controller(
        "pods", reconciler, clock=manager.clock, metrics=manager.metrics, workers=_WORKERS
    )
    controller.watch(pods)
    reconciler.wake_with(controller.trigger)
    manager.add_controller(controller)
    manager.add_runnable(reconciler, name="pods")
    port = 0
    if serving is None:
        get_logger("process-node").warning("no serving certificate was given, kubectl logs will not work")
    else:
        server = KubeletServer(reconciler, address=network.address, files=serving, clock=manager.clock)
        port = server.port
        manager.add_server(server)
    manager.add_runnable(
        Registrar(
            settings,
            manager.client,
            address=network.address,
            port=port,
            in_use=attachments.in_use,
            clock=manager.clock,
        ),
        name="registrar",
    )
    return manager


def _preferred_network(settings: NodeSettings) -> int:
    """Return the network this node had before, else one by its name, so that clusters rarely collide."""
    return NETWORKS.start + zlib.crc32(str(settings.state_dir).encode()) % len(NETWORKS)


def _serving_files(config: ClientConfig, certificate: Path | None, key: Path | None) -> ServingFiles | None:
    if certificate is None or key is None:
        return None
    authority = config.ca_data or (Path(config.ca_file).read_bytes() if config.ca_file else b"")
    return ServingFiles(certificate, key, authority.decode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer_operator.devcluster.node",
        description="Run a Kubernetes node whose pods are processes of this machine.",
    )
    parser.add_argument("--name", required=True, help="name of the Node")
    parser.add_argument("--kubeconfig", required=True, help="credentials of system:node:NAME")
    parser.add_argument("--state-dir", required=True, type=Path, help="folder for pods, volumes and logs")
    parser.add_argument("--cpu", default=str(os.cpu_count() or 1), help="processors the node says it has")
    parser.add_argument("--memory", default="16Gi", help="memory the node says it has")
    parser.add_argument("--gpus", type=int, default=0, help="pretend GPUs (nvidia.com/gpu)")
    parser.add_argument("--pods", type=int, default=110, help="most pods the node takes")
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="label of the Node")
    parser.add_argument("--working-dir", default="/", help="where containers start that name no workingDir")
    parser.add_argument("--serving-certificate", type=Path, help="certificate for the node's address")
    parser.add_argument("--serving-key", type=Path, help="its private key")
    parser.add_argument("--log-level", default="info", help="debug, info, warning or error")
    return parser


if __name__ == "__main__":
    sys.exit(main())
