"""Entry point: `install DIRECTORY` in the init container, `-- COMMAND ...` in the training container (AG1), and
`janitor` in a pod that only does the store's work. `weights` in the init containers of members with weights.

Also the start of the zipapp. The first process of a container gets no signal that it has no handler for, so a pod that
is deleted while its agent still loads would wait out its grace. Hence the handler comes before everything else.
"""

from __future__ import annotations

import os
import signal
import sys


def _end(*_: object) -> None:
    os._exit(128 + signal.SIGTERM)  # nothing was begun that would have to be ended


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)

_USAGE = (
    "usage: agent.pyz -- COMMAND [ARGUMENT ...]   or   "
    "python -m trainer_operator.agent install DIRECTORY | janitor | weights ..."
)
_EX_USAGE = 64
_EX_CONFIG = 78
_EX_CANTCREAT = 73


def main(arguments: list[str]) -> int:
    """Run one of the forms and return the exit code."""
    if len(arguments) == 2 and arguments[0] == "install":
        return _install(arguments[1])
    if arguments == ["janitor"]:
        return _launch([])  # nobody tells an agent of this role to start a process
    if arguments[:1] == ["weights"]:
        return _weights(arguments[1:])
    if len(arguments) >= 2 and arguments[0] == "--":
        return _launch(arguments[1:])
    sys.stderr.write(_USAGE + "\n")
    return _EX_USAGE


def _install(directory: str) -> int:
    from trainer_operator.agent.install import install

    try:
        print("installed %s" % install(directory))
    except OSError as error:
        sys.stderr.write("the agent cannot be installed into %s: %s\n" % (directory, error))
        return _EX_CANTCREAT
    return 0


def _weights(arguments: list[str]) -> int:
    from trainer_operator.agent.hub.command import main as weights

    return weights(arguments)


def _launch(command: list[str]) -> int:
    from trainer_operator.agent.agent import Agent
    from trainer_operator.agent.settings import BadSettings, read_settings

    environment = dict(os.environ)
    try:
        settings = read_settings(environment, folder=os.path.dirname(os.path.abspath(sys.argv[0])))
        agent = Agent(settings, command, environment=environment)
    except BadSettings as error:
        sys.stderr.write("[agent] %s\n" % error)
        return _EX_CONFIG
    return agent.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
