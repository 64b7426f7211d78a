"""`kubectl trainer audit verify`: whether the audit trail is whole (CL2, ATK15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from runtime.client.errors import NotFound
from runtime.objects import CONFIGMAPS
from trainer_operator.audit.chain import Verdict, verify
from trainer_operator.cli.plugin import options
from trainer_operator.cli.plugin.access import Access, Session, run
from trainer_operator.cli.plugin.failure import Complaint, ExitCode, explained
from trainer_operator.cli.plugin.kinds import AUDIT_ANCHORS, AUDIT_LOGS, AUDIT_NAMESPACE
from trainer_operator.cli.plugin.page import Output, columns, show, show_value
from trainer_operator.cli.plugin.words import plain

audit = typer.Typer(help="Look at the record of what the operator decided.", no_args_is_help=True)
Kept = Annotated[str, typer.Option("--audit-namespace", help="Namespace that the audit trail is kept in.")]


@audit.callback()
def _audit() -> None:
    """Look at the record of what the operator decided."""


@audit.command("verify")
def verify_trail(
    namespace: options.Namespace = None,
    kept: Kept = AUDIT_NAMESPACE,
    output: options.OutputOption = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
) -> None:
    """Follow every chain of hashes, or with -n that of one namespace, up to the first fault; a fault is exit code 1."""
    with explained():

        async def work(session: Session) -> tuple[Verdict, ...]:
            return await _verdicts(session, kept, namespace)

        verdicts = run(Access(None, context, kubeconfig), work)
        if output in {Output.JSON, Output.YAML}:
            show_value([as_value(each) for each in verdicts], output)
        elif output is Output.NAME:
            show([each.chain for each in verdicts if each.fault is None])
        else:
            show(page(verdicts))
        broken = [each for each in verdicts if each.fault is not None]
        if broken:
            first = broken[0]
            more = f"; {len(broken) - 1} more chains are broken" if len(broken) > 1 else ""
            raise Complaint(f"the audit trail of {first.chain} is broken: {_said(first)}{more}")


async def _verdicts(session: Session, kept: str, chain: str | None) -> tuple[Verdict, ...]:
    fields = f"spec.objectRef.namespace={chain}" if chain is not None else None
    try:
        found = await session.client.list(AUDIT_LOGS, kept, fields=fields)
    except NotFound:
        raise Complaint(
            f"the cluster at {session.client.config.server} has no AuditLogs: install the operator with "
            "`kubectl apply -k deploy/base`",
            ExitCode.NOT_INSTALLED,
        ) from None
    try:
        anchors = (await session.client.get(CONFIGMAPS, AUDIT_ANCHORS, kept)).get("data") or {}
    except NotFound:
        raise Complaint(
            f"there is no ConfigMap {AUDIT_ANCHORS} in namespace {kept}, so that records that are missing at the end "
            "would not show",
            ExitCode.NOT_FOUND,
        ) from None
    wanted = {name: text for name, text in anchors.items() if chain in (None, name)}
    return verify(found.items, wanted)


def as_value(verdict: Verdict) -> dict[str, Any]:
    """Return what is known of a chain as JSON."""
    value: dict[str, Any] = {
        "chain": verdict.chain,
        "records": verdict.records,
        "first": verdict.first,
        "last": verdict.head.sequence,
        "hash": verdict.head.hash,
        "valid": verdict.fault is None,
    }
    if verdict.fault is not None:
        value["fault"] = {"sequence": verdict.fault.sequence, "reason": verdict.fault.reason}
    return value


def page(verdicts: Sequence[Verdict]) -> Sequence[Any]:
    """Return a line for each chain."""
    if not verdicts:
        return ["nothing is recorded"]
    rows = [
        (each.chain, str(each.records), f"{each.first}-{each.head.sequence}", plain(_said(each)))
        for each in verdicts
    ]
    return columns(("CHAIN", "RECORDS", "FROM-TO", "VERDICT"), rows, keep=("VERDICT",))


def _said(verdict: Verdict) -> str:
    return "whole" if verdict.fault is None else f"record {verdict.fault.sequence}: {verdict.fault.reason}"
