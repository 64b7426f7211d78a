"""The audit trail on the real API server: the operator's shipped role writes it, nobody else does, and it shows what is done to it."""

import asyncio
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runtime.client import ClientConfig
from runtime.client.rest import Client
from runtime.clock import SystemClock
from runtime.tasks import TaskScope
from trainer_operator.api.resources import AUDIT_LOGS
from trainer_operator.audit.chain import Entry, Head, name_of, seal, verify
from trainer_operator.audit.writer import NAMESPACE, AuditWriter
from trainer_operator.cli.plugin.main import app
from trainer_operator.demo.manifests import service_account_kubeconfig
from trainer_operator.devcluster.kubectl import KubectlFailed

ROOT = Path(__file__).parents[3]
ACCOUNT = "system:serviceaccount:trainer-operator:trainer-operator"
_chains = itertools.count(1)


@pytest.fixture
def access(control_plane, kubectl, tmp_path):
    """The API server as the shipped role of the operator sees it."""
    token = installed(kubectl)
    path = tmp_path / "operator.kubeconfig"
    path.write_text(service_account_kubeconfig(control_plane.kubeconfig.read_text(), token, user=ACCOUNT))
    return ClientConfig.from_kubeconfig(path)


def installed(kubectl):
    """Install, and return a token of the operator; another test's namespace of that name may be on its way out."""
    deadline = time.monotonic() + 90
    while True:
        try:
            kubectl("apply", "-k", str(ROOT / "deploy" / "base"))
            kubectl.wait_established()
            made = kubectl("create", "token", "trainer-operator", "-n", "trainer-operator", "--duration=1h")
            return made.strip()
        except KubectlFailed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


@pytest.fixture
def chain():
    """Name of a chain that nobody has written to."""
    return f"tenant-{next(_chains)}"


def entry(chain, number):
    return Entry(
        id=f"uid/restart/{number}",
        time="2026-01-01T00:00:00Z",
        actor="trainer-operator",
        action="Restart",
        object={
            "apiVersion": AUDIT_LOGS.api_version,
            "kind": "Trainer",
            "namespace": chain,
            "name": "t",
            "uid": "uid",
        },
        details={"message": f"line 1\nline 2 {number} é \U0001f600 \x7f<&>\u2028"},
    )


async def write(client, chain, *numbers, **kept):
    writer = AuditWriter(client, SystemClock(), **kept)
    for number in numbers:
        writer.record(entry(chain, number))
    await writer.flush()


async def trail(client, chain):
    found = await client.list(AUDIT_LOGS, NAMESPACE, fields=f"spec.objectRef.namespace={chain}")
    return sorted(found.items, key=lambda each: each["spec"]["sequence"])


def ids(records):
    return [each["spec"]["auditID"] for each in records if each["spec"]["action"] == "Restart"]


async def test_the_shipped_role_suffices_to_write_go_on_and_remove(access, chain):
    """AU4, AU5, RB5: what the API server keeps has the hash of what was sent, also of odd text."""
    async with Client(access) as client:
        await write(client, chain, 1, 2, 3)
        await write(client, chain, *range(2, 10), kept=4, slack=1)  # as the next leader
        records = await trail(client, chain)
        assert [each.fault for each in verify(records)] == [None]
        assert ids(records)[-1] == "uid/restart/9"
        assert records[0]["spec"]["sequence"] > 1
        assert len(records) <= 4 + 1 + 1


async def test_leaders_at_the_same_time_write_one_chain_with_each_entry_once(access, chain):
    """AU4: create-if-absent by number decides."""
    async with (
        Client(access) as one,
        Client(replace(access, user_agent="other")) as two,
        TaskScope() as scope,
    ):
        for client in (one, two):
            scope.spawn(write(client, chain, *range(1, 16)), name="leader")
    async with Client(access) as client:
        records = await trail(client, chain)
    assert [each.fault for each in verify(records)] == [None]
    assert sorted(ids(records)) == sorted(f"uid/restart/{number}" for number in range(1, 16))


def as_admin(kubectl, *arguments, stdin=None):
    """Return what a cluster administrator is told."""
    with pytest.raises(KubectlFailed) as refused:
        kubectl(*arguments, stdin=stdin)
    return str(refused.value)


async def test_nobody_but_the_operator_writes_changes_labels_or_deletes(access, kubectl, chain):
    """AU6, AU7, ATK15: not even an administrator in passing, and the operator itself can't change one."""
    async with Client(access) as client:
        await write(client, chain, 1)
        (record,) = await trail(client, chain)
        name = record["metadata"]["name"]
        where = ("-n", NAMESPACE)
        only = "only the Trainer Operator writes AuditLogs"
        assert only in as_admin(kubectl, "delete", "auditlog", name, *where)
        assert only in as_admin(kubectl, "delete", "auditlogs", "--all", *where)
        assert only in as_admin(kubectl, "label", "auditlog", name, "seen=yes", *where)
        forged = {
            "apiVersion": AUDIT_LOGS.api_version,
            "kind": "AuditLog",
            "metadata": {"name": name_of(chain, 2), "namespace": NAMESPACE},
            "spec": seal(entry(chain, 2), Head(1, record["spec"]["hash"])),
        }
        assert only in as_admin(kubectl, "create", "-f", "-", stdin=json.dumps(forged))
        patch = json.dumps({"spec": {"actor": "somebody else"}})
        refused = as_admin(
            kubectl,
            *("patch", "auditlog", name, *where, "--type=merge", "-p", patch),
            *("--as", ACCOUNT),
        )
        assert "can't be changed" in refused or "forbidden" in refused
        changed = {**record, "spec": {**record["spec"], "actor": "somebody else"}}
        with pytest.raises(Exception, match=r"can't be changed|cannot update"):
            await client.replace(AUDIT_LOGS, changed)
        assert await trail(client, chain) == [record]


def plugin(kubeconfig, *arguments):
    return CliRunner().invoke(
        app, ["audit", "verify", f"--kubeconfig={kubeconfig}", *arguments], catch_exceptions=False
    )


async def test_the_plugin_says_whether_the_trail_is_whole_and_where_it_is_not(access, kubeconfig, chain):
    """CL2, ATK15: by its exit code, and as JSON."""
    async with Client(access) as client:
        await write(client, chain, 1, 2, 3)
        whole = await asyncio.to_thread(plugin, kubeconfig, "-n", chain)
        assert (whole.exit_code, whole.stdout.split()[-4:]) == (0, [chain, "3", "1-3", "whole"])
        await client.delete(AUDIT_LOGS, name_of(chain, 3), NAMESPACE)  # as the operator's token alone can
        broken = await asyncio.to_thread(plugin, kubeconfig, "-n", chain, "-o", "json")
    assert broken.exit_code == 1
    (told,) = json.loads(broken.stdout)
    assert (told["chain"], told["valid"], told["fault"]["sequence"]) == (chain, False, 3)
    assert f"the audit trail of {chain} is broken: record 3: records are missing" in broken.stderr
    nothing = await asyncio.to_thread(plugin, kubeconfig, "-n", "never-heard-of")
    assert (nothing.exit_code, nothing.stdout) == (0, "nothing is recorded\n")
