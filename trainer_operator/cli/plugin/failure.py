"""How a command of the plugin ends when it can't do what it was asked: one sentence and an exit code of its own (CL1).

Scripts tell by the code what to do next, so a code never changes its meaning. A traceback always means a defect.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from runtime.client.errors import ApiError, Forbidden, Invalid, TransportError, Unauthorized
from runtime.errors import ConfigurationInvalid, RuntimeFault
from trainer_operator.cli.plugin.words import plain

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)


class ExitCode(IntEnum):
    """What the exit code tells."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    FORBIDDEN = 5
    NOT_INSTALLED = 6
    NOT_NOW = 7
    INTERRUPTED = 130


EXIT_CODES = """\b
Exit codes:
  0    done
  1    the API server refused, or something else failed
  2    wrong usage
  3    there is no such Trainer or member
  4    the API server, or the operator of --server, cannot be reached
  5    you may not do this; the message names the right that is missing
  6    Trainers are not installed in this cluster
  7    not now: it was not confirmed, or the Trainer is in no state for it
  130  interrupted
"""


class Complaint(Exception):
    """A command cannot do what it was asked; the message says why and what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


def complaint_of(error: RuntimeFault, server: str) -> Complaint:
    """Return what a user is told of an error of the client."""
    match error:
        case Forbidden():
            return Complaint(_missing_right(error.message), ExitCode.FORBIDDEN)
        case Unauthorized():
            return Complaint(
                f"{server} does not accept these credentials: check the user of the kubeconfig's context",
                ExitCode.FORBIDDEN,
            )
        case TransportError():
            return Complaint(
                f"the API server at {server} cannot be reached: {plain(_cause(error))}", ExitCode.UNREACHABLE
            )
        case ConfigurationInvalid():
            return Complaint(plain(str(error)), ExitCode.UNREACHABLE)
        case Invalid():
            return Complaint(f"the API server refused: {plain(_causes(error))}")
        case ApiError():
            return Complaint(f"the API server refused: {plain(error.message)}")
        case _:
            return Complaint(plain(str(error)))


@contextmanager
def explained() -> Iterator[None]:
    """Turn expected failures into a sentence on standard error and an exit code; anything else is a defect."""
    try:
        yield
    except Complaint as complaint:
        raise _ended(complaint) from None
    except RuntimeFault as fault:
        raise _ended(complaint_of(fault, "the API server")) from None
    except BaseExceptionGroup as group:
        first = _first(group)
        if isinstance(first, RuntimeFault):
            first = complaint_of(first, "the API server")
        if not isinstance(first, Complaint):
            raise
        raise _ended(first) from None
    except BrokenPipeError:
        # Whoever read us has seen enough; Python would complain again when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.DONE) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _ended(complaint: Complaint) -> typer.Exit:
    typer.secho(f"error: {complaint}", err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)
    return typer.Exit(complaint.code)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _missing_right(message: str) -> str:
    found = _FORBIDDEN.search(message)
    if found is None:
        return f"this is forbidden: {plain(message)}"
    resource = found["resource"] + (f".{found['group']}" if found["group"] else "")
    where = f"in namespace {found['namespace']}" if found["namespace"] else "in the whole cluster"
    return plain(
        f"user {found['user']} may not {found['verb']} {resource} {where}: ask for a role with the verb "
        f"{found['verb']} on {resource}"
    )


def _cause(error: TransportError) -> str:
    return str(error.__cause__ or error)


def _causes(error: Invalid) -> str:
    """Return the reasons of a refusal without the object's whole name in front of them."""
    causes = [
        f"{cause.get('field')}: {cause.get('message')}" if cause.get("field") else str(cause.get("message"))
        for cause in error.details.get("causes") or ()
        if cause.get("message")
    ]
    return "; ".join(dict.fromkeys(causes)) or error.message
