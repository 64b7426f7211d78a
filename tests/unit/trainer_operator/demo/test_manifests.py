"""The manifests of the repository, made to run on process nodes."""

import base64
import json
from pathlib import Path

import pytest
import yaml

from trainer_operator.api.trainer import Trainer
from trainer_operator.demo.manifests import (
    EXAMPLE,
    load_deployment,
    load_example,
    prepared,
    service_account_kubeconfig,
    token_subject,
)
from trainer_operator.devcluster.errors import ClusterFault


def test_the_example_is_a_valid_trainer_as_it_is_and_as_it_runs():
    for manifest in (yaml.safe_load((EXAMPLE / "trainer.yaml").read_text()), load_example(pace=0.06).trainer):
        trainer = Trainer.read(manifest)
        assert (trainer.spec.topology.workers, trainer.spec.topology.parameter_servers) == (3, 1)
        assert trainer.spec.most_workers == 5


def test_the_example_names_its_claim_and_its_step_logs():
    example = load_example(pace=0.06)
    assert example.claim_name == example.trainer["spec"]["checkpoint"]["bucket"]
    assert example.log_folder == "steps"
    assert example.program.is_file()


def test_only_program_pace_and_epochs_differ_from_the_manifest():
    manifest = {"spec": {"epochs": 5, "command": ["python3", "/digits/train.py"], "args": ["--mode", "ps"]}}
    before = json.dumps(manifest)
    changed = prepared(manifest, program=Path("/here/train.py"), pace=0.06, epochs=7)
    assert changed["spec"] == {
        "epochs": 7,
        "command": ["python3", "/here/train.py"],
        "args": ["--mode", "ps", "--pace", "0.06"],
    }
    assert prepared(manifest, program=Path("/here/train.py"), pace=0)["spec"]["epochs"] == 5
    assert json.dumps(manifest) == before


def test_the_deployment_says_where_the_operator_lives():
    found = load_deployment()
    assert found.namespace
    assert found.service_account


def test_a_missing_checkout_is_told_in_a_sentence(tmp_path):
    with pytest.raises(ClusterFault, match="runs from a checkout of the repository"):
        load_example(tmp_path, pace=0)
    (tmp_path / "service-account.yaml").write_text("[]")
    with pytest.raises(ClusterFault, match="holds no object"):
        load_deployment(tmp_path)


def test_the_operators_kubeconfig_holds_the_token_and_nothing_of_the_administrator():
    """RB5."""
    admin = {
        "clusters": [{"name": "dev", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "admin", "user": {"client-key-data": "c2VjcmV0"}}],
        "contexts": [{"name": "admin@dev", "context": {"cluster": "dev", "user": "admin"}}],
        "current-context": "admin@dev",
    }
    text = service_account_kubeconfig(json.dumps(admin), "tok", user="system:serviceaccount:a:b")
    found = json.loads(text)
    assert found["users"] == [{"name": "system:serviceaccount:a:b", "user": {"token": "tok"}}]
    assert found["contexts"][0]["context"]["user"] == "system:serviceaccount:a:b"
    assert "c2VjcmV0" not in text


@pytest.mark.parametrize("length", range(4))
def test_the_subject_of_a_token_is_read_whatever_its_padding(length):
    payload = base64.urlsafe_b64encode(json.dumps({"sub": "me", "pad": "x" * length}).encode()).rstrip(b"=")
    assert token_subject(f"head.{payload.decode()}.signature") == "me"


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "a.e30.c", "a.W10.c"])
def test_what_is_no_token_speaks_for_nobody(token):
    assert token_subject(token) == ""
