"""`trainer-operator dev`: a whole Kubernetes cluster on this machine, without root and without containers."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from trainer_operator.cli.failure import reported
from trainer_operator.devcluster import supervisor
from trainer_operator.devcluster.assets import require
from trainer_operator.devcluster.build import ensure
from trainer_operator.devcluster.cluster import Cluster
from trainer_operator.devcluster.errors import ClusterFault
from trainer_operator.devcluster.state import ClusterState, Phase, Settings

_VARIABLE = "TRAINER_OPERATOR_CLUSTER"
_DEFAULTS = Settings()
_QUANTITY_HINT = "as Kubernetes writes quantities"

app = typer.Typer(
    help="Run a whole Kubernetes cluster on this machine, without root and without containers.",
    epilog="Commands act on the cluster `default`; `--name` or TRAINER_OPERATOR_CLUSTER names another.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
node_app = typer.Typer(help="List nodes, take one's power, bring it back.", no_args_is_help=True)
app.add_typer(node_app, name="node")


def _complete_node(incomplete: str) -> list[str]:
    try:
        names = Cluster(os.environ.get(_VARIABLE, "default")).state().settings.node_names()
    except ClusterFault:
        return []
    return [name for name in names if name.startswith(incomplete)]


def _complete_log(incomplete: str) -> list[str]:
    try:
        names = Cluster(os.environ.get(_VARIABLE, "default")).logs()
    except ClusterFault:
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[str, typer.Option("--name", envvar=_VARIABLE, help="Which cluster.")]
Node = Annotated[str, typer.Argument(help="Name of the node, such as node-0.", autocompletion=_complete_node)]


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=0, max=64, help="Number of nodes.")] = _DEFAULTS.nodes,
    gpus: Annotated[int, typer.Option(min=0, max=64, help="Pretend GPUs of each node.")] = _DEFAULTS.gpus,
    cpu: Annotated[
        str, typer.Option(help=f"Processors each node claims to have, {_QUANTITY_HINT}.")
    ] = _DEFAULTS.cpu,
    memory: Annotated[
        str, typer.Option(help=f"Memory each node claims to have, {_QUANTITY_HINT}.")
    ] = _DEFAULTS.memory,
    name: Name = "default",
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay until Ctrl-C, then take it down.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return only when all nodes are ready.")
    ] = True,
) -> None:
    """Bring a cluster up: etcd, API server, controllers, scheduler and nodes that run pods as processes.

    The first time on a machine, the control plane's programs are built from source, which takes about 8 minutes.
    """
    with reported():
        settings = Settings(nodes=nodes, gpus=gpus, cpu=cpu, memory=memory)
        settings.check()
        cluster = Cluster(name)
        if cluster.is_running():
            _already_up(cluster, settings)
            return
        ensure()
        if foreground:
            raise typer.Exit(supervisor.run(cluster.folder, settings, announce=_Announcer(foreground=True)))
        if not wait:
            cluster.start(settings)
            typer.echo(f"cluster {name} is starting: `trainer-operator dev status` tells how far it is")
            return
        _show_access(cluster.up(settings, announce=_Announcer()))


@app.command()
def down(
    name: Name = "default",
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove its objects, volumes and logs.")
    ] = False,
) -> None:
    """Take a cluster down; its objects are there again at the next `up`, unless they are purged."""
    with reported():
        cluster = Cluster(name)
        was_up = cluster.down()
        if purge:
            cluster.purge()
        typer.echo(f"cluster {name} {'is down' if was_up else 'was not up'}{' and removed' if purge else ''}")


@app.command()
def status(name: Name = "default") -> None:
    """Show the cluster's processes; exit code 0 only when it is ready."""
    with reported():
        state = Cluster(name).last_state()
        if state is None:
            raise ClusterFault(f"there is no cluster {name}: `trainer-operator dev up` makes one")
        typer.echo(f"cluster {state.name}: {state.phase}{f', {state.message}' if state.message else ''}")
        if state.url:
            typer.echo(f"API server: {state.url}\nkubeconfig: {state.kubeconfig}")
        for member, process in state.members.items():
            restarts = f", restarted {process.restarts} times" if process.restarts else ""
            typer.echo(f"  {member:<20} {f'pid {process.pid}' if process.pid else 'down'}{restarts}")
        raise typer.Exit(0 if state.phase is Phase.READY else 1)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def kubectl(context: typer.Context) -> None:
    """Run the real kubectl as administrator; TRAINER_OPERATOR_CLUSTER names the cluster."""
    with reported():
        cluster = Cluster(os.environ.get(_VARIABLE, "default"))
        cluster.state()
        tool = cluster.kubectl
        arguments = [str(tool.program), *context.args]
        os.execve(tool.program, arguments, tool.environ())  # noqa: S606 - there is no shell to be wanted


@app.command()
def kubeconfig(name: Name = "default") -> None:
    """Print the path of the administrator's kubeconfig."""
    with reported():
        cluster = Cluster(name)
        cluster.state()
        typer.echo(cluster.kubeconfig)


@app.command()
def logs(
    component: Annotated[
        str, typer.Argument(help="A component, a node or `supervisor`.", autocompletion=_complete_log)
    ],
    name: Name = "default",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows.")] = False,
    tail: Annotated[int, typer.Option(min=0, help="Print this many of the last lines.")] = 200,
) -> None:
    """Print the log of a component or node; the logs stay when the cluster is down."""
    with reported():
        found = Cluster(name).logs()
        if component not in found:
            raise ClusterFault(f"there is no log of {component}: there are {', '.join(found) or 'none yet'}")
        arguments = ["tail", f"--lines={tail}", *(["-F"] if follow else []), str(found[component])]
        os.execvp("tail", arguments)  # noqa: S606 - there is no shell to be wanted


@app.command()
def assets() -> None:
    """Build the control plane's programs if they are missing, and print where they are."""
    with reported():
        ensure()
        typer.echo(require().folder)


@node_app.command("list")
def list_nodes(name: Name = "default") -> None:
    """List the cluster's nodes and whether they have power."""
    with reported():
        state = Cluster(name).state()
        for node in state.settings.node_names():
            pid = state.members[node].pid if node in state.members else None
            typer.echo(f"{node:<12} {f'running (pid {pid})' if pid else 'down'}")


@node_app.command()
def kill(node: Node, name: Name = "default") -> None:
    """Take a node's power: it and all its pods' processes are gone at once, and nobody reports it."""
    with reported():
        Cluster(name).kill_node(node)
        typer.echo(f"{node} is down")


@node_app.command()
def start(node: Node, name: Name = "default") -> None:
    """Bring a node back."""
    with reported():
        Cluster(name).start_node(node)
        typer.echo(f"{node} is starting")


class _Announcer:
    """Tells each phase once."""

    def __init__(self, *, foreground: bool = False) -> None:
        self._phase: Phase | None = None
        self._foreground = foreground

    def __call__(self, state: ClusterState) -> None:
        if state.phase is self._phase:
            return
        self._phase = state.phase
        if state.phase is Phase.READY and self._foreground:
            _show_access(state)
            typer.echo("Ctrl-C takes it down.")
        elif state.phase is Phase.FAILED:
            typer.secho(f"error: {state.message}", err=True, fg=typer.colors.RED)
        elif state.phase is not Phase.READY:
            typer.echo(f"{state.phase} ...")


def _already_up(cluster: Cluster, settings: Settings) -> None:
    state = cluster.state()
    if state.settings != settings:
        raise ClusterFault(
            f"cluster {cluster.name} is up with other settings ({state.settings.nodes} nodes with "
            f"{state.settings.gpus} GPUs, {state.settings.cpu} processors, {state.settings.memory} each): "
            "take it down first with `trainer-operator dev down`"
        )
    typer.echo(f"cluster {cluster.name} is up already")
    _show_access(state)


def _show_access(state: ClusterState) -> None:
    typer.echo(f"cluster {state.name} is {state.phase} with {state.settings.nodes} nodes")
    typer.echo(f"  export KUBECONFIG={state.kubeconfig}")
    typer.echo("  trainer-operator dev kubectl get nodes")
