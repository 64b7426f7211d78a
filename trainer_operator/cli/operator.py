"""`trainer-operator operator`: run the operator in this process."""

import math
import re
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from runtime import logs
from runtime.client.config import ClientConfig
from runtime.leaderelection import LeaderElectionConfig
from runtime.manager import Manager, run_manager
from trainer_operator.cli.failure import reported
from trainer_operator.images import registry_url
from trainer_operator.notify.configuration import read_configuration
from trainer_operator.operator import OperatorConfig, build
from trainer_operator.trainer.views import Settings

HUB = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._/-]*)?")
app = typer.Typer(add_completion=False, help="Run the operator: reconcile Trainers until told to stop.")


@app.command()
def operator(
    certificate_folder: Annotated[
        Path,
        typer.Option(help="Folder with tls.crt, tls.key and ca.crt, as a mounted certificate Secret has it."),
    ] = Path("/etc/trainer-operator/tls"),
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="kubeconfig file; without it the cluster this runs in, else the default file."),
    ] = None,
    agent_bind_address: Annotated[str, typer.Option(help="host:port of the agent API.")] = "0.0.0.0:9443",
    agent_url: Annotated[
        list[str] | None,
        typer.Option(help="Address at which agents reach a replica; repeat it for each replica."),
    ] = None,
    health_probe_bind_address: Annotated[
        str, typer.Option(help="host:port of /healthz, /readyz and /metrics.")
    ] = "0.0.0.0:8081",
    operator_image: Annotated[
        str, typer.Option(help="Image of the init container that brings the agent into training pods.")
    ] = "trainer-operator:latest",
    leader_elect: Annotated[bool, typer.Option(help="Run several replicas, of which one leads.")] = False,
    leader_election_namespace: Annotated[
        str, typer.Option(help="Namespace of the lease.")
    ] = "trainer-operator",
    leader_election_id: Annotated[str, typer.Option(help="Name of the lease.")] = "trainer-operator",
    allow_root: Annotated[
        bool, typer.Option(help="Let training images run as root; pods then meet PodSecurity baseline only.")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Objects of a kind that are reconciled at once.")] = 16,
    kube_api_qps: Annotated[
        float | None,
        typer.Option(help="Requests a second to the API server; without it the server alone sets the pace."),
    ] = None,
    kube_api_burst: Annotated[
        int, typer.Option(min=1, help="Requests at once beyond --kube-api-qps, where that is given.")
    ] = 100,
    voluntary_interval: Annotated[
        float, typer.Option(min=0, help="Seconds between two changes of members that nothing forced.")
    ] = 60.0,
    status_interval: Annotated[
        float,
        typer.Option(min=0, help="Least seconds between two writes of a Trainer's progress and counts."),
    ] = 5.0,
    node_recovery: Annotated[
        bool,
        typer.Option(
            help="Free pods and volumes of nodes that are down by force; "
            "needs the rights of deploy/components/node-recovery."
        ),
    ] = False,
    registry: Annotated[
        list[str] | None,
        typer.Option(
            help="host[:port] of a registry in a private network that is asked for entry points of images; repeat it "
            "for each, and write http:// before one without TLS."
        ),
    ] = None,
    hub: Annotated[
        str, typer.Option(help="Address of the Hugging Face hub, or of a mirror, that weights come from.")
    ] = "https://huggingface.co",
    notifications: Annotated[
        Path | None,
        typer.Option(
            help="File of kind NotificationConfiguration: services, templates and default routes of notifications."
        ),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    log_json: Annotated[bool, typer.Option(help="Write one JSON object per line.")] = True,
) -> None:
    """Run the operator: reconcile Trainers until told to stop."""
    if kube_api_qps is not None and not kube_api_qps > 0:  # what is no number is not above zero either
        raise typer.BadParameter(
            f"--kube-api-qps is {kube_api_qps:g}; give a number above zero, or none for no limit"
        )
    with reported():
        logs.configure(log_level, json=log_json)
        options = OperatorConfig(
            certificates=certificate_folder,
            agent_host=_address(agent_bind_address, "--agent-bind-address")[0],
            agent_port=_address(agent_bind_address, "--agent-bind-address")[1],
            health_address=_address(health_probe_bind_address, "--health-probe-bind-address"),
            leader_election=LeaderElectionConfig(leader_election_namespace, leader_election_id)
            if leader_elect
            else None,
            workers=workers,
            registries=tuple(_registry(each) for each in registry or ()),
            notifications=read_configuration(notifications) if notifications is not None else None,
            settings=Settings(
                operator_image=operator_image,
                agent_urls=tuple(
                    agent_url or (f"https://trainer-operator.{leader_election_namespace}.svc:9443",)
                ),
                hub=_hub(hub),
                allow_root=allow_root,
                voluntary_interval=_seconds(voluntary_interval, "--voluntary-interval"),
                status_interval=_seconds(status_interval, "--status-interval"),
                node_recovery=node_recovery,
            ),
        )

        async def factory() -> Manager:
            limits = replace(_client_config(kubeconfig), qps=kube_api_qps, burst=kube_api_burst)
            return build(limits, options)

        code = run_manager(factory)
    raise typer.Exit(code)


def _client_config(kubeconfig: Path | None) -> ClientConfig:
    found = ClientConfig.from_kubeconfig(kubeconfig) if kubeconfig is not None else ClientConfig.auto()
    return replace(found, user_agent=f"trainer-operator/{metadata.version('trainer-operator')}")


def _seconds(number: float, option: str) -> float:
    if not math.isfinite(number):
        raise typer.BadParameter(f"{option} is {number:g}; give a number of seconds")
    return number


def _registry(text: str) -> str:
    try:
        registry_url(text)
    except ValueError as error:
        raise typer.BadParameter(f"--registry: {error}") from None
    return text


def _hub(text: str) -> str:
    if not HUB.fullmatch(text):
        raise typer.BadParameter(f"--hub is {text!r}; give https://host or https://host/path, without a user")
    return text.rstrip("/")


def _address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise typer.BadParameter(f"{option} is {text!r}; give host:port with a port from 0 to 65535")
    return host.strip("[]"), int(port)
