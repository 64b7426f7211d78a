"""`kubectl trainer completion`: scripts that complete commands, flags, and names of Trainers.

kubectl completes plugins by asking an executable `kubectl_complete-<plugin>` on the PATH, with the words so far; the
last line of the answer tells how (4: no file names).
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # public, not declared so

PROGRAM = "kubectl-trainer"
VARIABLE = "_KUBECTL_TRAINER_COMPLETE"
KUBECTL_SCRIPT = f"""\
#!/bin/sh
# Completes `kubectl trainer`: put this file on your PATH as kubectl_complete-trainer, executable.
{VARIABLE}=complete_bash COMP_WORDS="{PROGRAM} $*" COMP_CWORD=$# {PROGRAM}
echo ":4"
"""


class Shell(StrEnum):
    """Who is to complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    KUBECTL = "kubectl"


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell; kubectl for its kubectl_complete-trainer.")],
) -> None:
    """Print a completion script: source <(kubectl-trainer completion bash).

    For `kubectl trainer <TAB>`: kubectl-trainer completion kubectl > ~/.local/bin/kubectl_complete-trainer, and make
    that file executable.
    """
    sys.stdout.write(script(shell))


def script(shell: Shell) -> str:
    """Return the script."""
    if shell is Shell.KUBECTL:
        return KUBECTL_SCRIPT
    return get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=shell.value).rstrip() + "\n"
