"""The notebook's Secret and pod on the real API server, and the way to the pod by kubectl."""

import json
import os
import sys
from pathlib import Path

import pytest

from trainer_operator.api.trainer import Trainer
from trainer_operator.cli.plugin.access import Access, session
from trainer_operator.cli.plugin.failure import Complaint, ExitCode
from trainer_operator.cli.plugin.forward import port_forward
from trainer_operator.cli.plugin.notebook import ensure_token, secret
from trainer_operator.trainer.notebook import notebook_manifest
from trainer_operator.trainer.views import Settings


@pytest.fixture
async def opened(cluster):
    async with session(Access(cluster.namespace, None, Path(cluster.kubeconfig))) as made:
        yield made


async def test_a_token_is_made_once_and_that_of_an_earlier_trainer_is_replaced(cluster, opened):
    """JK2: one token; whoever has the one of a Trainer that is gone has nothing."""
    trainer = cluster.make()
    token = await ensure_token(opened, trainer)
    assert await ensure_token(opened, trainer) == token
    cluster.kubectl("delete", "secret", "digits-notebook", "-n", cluster.namespace)
    foreign = secret(trainer)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-0000-0000-000000000000"
    cluster.kubectl("create", "-n", cluster.namespace, "-f", "-", stdin=json.dumps(foreign))
    assert await ensure_token(opened, trainer) not in {token, foreign["stringData"]["token"]}


def test_pod_security_restricted_admits_the_pod(cluster):
    """PS1, ATK18."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", cluster.namespace, label)
    made = cluster.make()
    trainer = Trainer.read({**made, "spec": {**made["spec"], "notebook": {}}})
    pod = notebook_manifest(trainer, trainer.spec.notebook, "digits-notebook", Settings())
    body = json.dumps({**pod, "metadata": {**pod["metadata"], "namespace": cluster.namespace}})
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", cluster.namespace)
    answer = cluster.kubectl("create", "--dry-run=server", "-o", "name", "-f", "-", stdin=body)
    assert answer == "pod/digits-notebook\n"
    rooted = {**pod["spec"], "securityContext": {"runAsUser": 0}}
    with pytest.raises(Exception, match="violates PodSecurity"):
        cluster.kubectl(
            "create", "--dry-run=server", "-f", "-", stdin=json.dumps({**json.loads(body), "spec": rooted})
        )


async def test_a_pod_that_is_not_there_is_told_in_kubectls_words(cluster, monkeypatch):
    """CL1: with the real kubectl."""
    monkeypatch.setenv("PATH", f"{cluster.kubectl.program.parent}{os.pathsep}{os.environ['PATH']}")
    access = Access(cluster.namespace, None, Path(cluster.kubeconfig))
    with pytest.raises(Complaint, match=r"failed: .*not found") as complaint:
        async with port_forward(access, cluster.namespace, "absent", 0, 8888):
            pass
    assert complaint.value.code is ExitCode.UNREACHABLE


def kubectl_double(folder, program):
    """Put a program called kubectl first on the PATH."""
    folder.mkdir(exist_ok=True)
    script = folder / "kubectl"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


FORWARDS = """\
import sys, time
print("Forwarding from 127.0.0.1:40123 -> 8888", flush=True)
print(sys.argv[1:], file=open(__file__ + ".argv", "w"), flush=True)
"""


async def test_the_way_is_open_while_it_is_used_and_its_end_is_told(tmp_path, monkeypatch):
    """CL1: with a double of kubectl, whose connection to the pod is lost."""
    ends = FORWARDS + "time.sleep(0.2)\nsys.exit('error: lost connection to pod')\n"
    monkeypatch.setenv("PATH", kubectl_double(tmp_path / "bin", ends))
    async with port_forward(Access("team", "ctx", Path("/k")), "team", "pod-1", 0, 8888) as forward:
        assert forward.address == "http://127.0.0.1:40123"
        assert "lost connection to pod" in str(await forward.closed())
    assert (tmp_path / "bin" / "kubectl.argv").read_text() == (
        "['port-forward', '--namespace=team', '--address=127.0.0.1', '--context=ctx', '--kubeconfig=/k', "
        "'pod/pod-1', ':8888']\n"
    )


async def test_kubectl_is_ended_with_the_way(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", kubectl_double(tmp_path / "bin", FORWARDS + "time.sleep(600)\n"))
    async with port_forward(Access(), "team", "pod-1", 0, 8888) as forward:
        assert forward.process.returncode is None
    assert forward.process.returncode is not None


async def test_without_kubectl_it_says_what_else_can_be_given(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Complaint, match="--url"):
        async with port_forward(Access(), "team", "pod-1", 0, 8888):
            pass
